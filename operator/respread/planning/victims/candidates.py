"""Which pods may be evicted: by their policy, its protections, their owners, budgets and recent refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.api.words import number_of
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.held import Held
from respread.planning.victims.budgets import BudgetBook, why_no_budget
from respread.planning.victims.controllers import ActivePods, controller_of
from respread.planning.victims.protection import Protection, why_owner_unknown
from respread.planning.victims.selection import Selection


def why_too_few(controller: str, replicas: int, min_replicas: int) -> Held | None:
    """Return why the pods of a workload are left alone because it is too small, or None if it is not.

    Args:
        controller: the name of the workload for the message.
        replicas: how many pods it wants, or how many it has, if only that is known.
        min_replicas: the value of the policy.
    """
    if replicas >= min_replicas:
        return None
    return Held(
        Reason.TOO_FEW_REPLICAS,
        f"{controller} has {number_of(replicas, 'replica')}, fewer than the policy's victims.minReplicas of "
        f"{min_replicas}; more replicas, or a lower victims.minReplicas, would allow it",
    )


class Refused(NamedTuple):
    """Refusals that are still valid."""

    why_not: Callable[[Pod, tuple[PodDisruptionBudget, ...]], Held | None]
    """Takes a pod and the budgets that select it, and returns why its eviction would be refused again; None if it would
    not."""
    namespaces: frozenset[str] = frozenset()
    """The namespaces with such refusals."""


NOTHING_REFUSED: Final = Refused(lambda _pod, _budgets: None)


class Rules(NamedTuple):
    """What decides which pods may be evicted."""

    selection: Selection
    protections: Mapping[str, Protection]
    """By policy name. An invalid policy is absent, and may not evict."""
    budgets: BudgetBook
    active_pods: ActivePods
    now: datetime
    """With a time zone."""
    refused: Refused = NOTHING_REFUSED
    snapshot: ClusterSnapshot = ClusterSnapshot()
    """The cluster, for the controllers that are known. Others are read before one of their pods is evicted."""

    @classmethod
    def of(
        cls,
        snapshot: ClusterSnapshot,
        selection: Selection,
        protections: Mapping[str, Protection],
        budgets: BudgetBook,
        now: datetime,
        refused: Refused,
    ) -> Rules:
        """Return the rules for a snapshot, to which the selection has advanced."""
        return cls(selection, protections, budgets, ActivePods(snapshot), now, refused, snapshot)


def why_held(pod: Pod, rules: Rules) -> Held | None:
    """Return why a pod may not be evicted, or None if it may."""
    return why_protected(pod, rules.selection.policy_of(pod.namespace, pod.labels), rules) or why_refused(pod, rules)


def why_protected(pod: Pod, policy: Policy | None, rules: Rules) -> Held | None:
    """Return why a pod that a policy governs may not be evicted, except recent refusals."""
    if policy is None:
        return Held(Reason.NOT_SELECTED, "no policy selects it")
    if (protection := rules.protections.get(policy.name)) is None:
        return Held(Reason.INVALID_POLICY, f"policy {policy.name} is invalid and evicts nothing until it is fixed")
    held = protection.of_pod(pod, rules.now) or _by_owner(pod, policy, rules.snapshot)
    if held is None:
        held = _of_a_small_workload(pod, rules.active_pods, protection.rules.min_replicas)
    if held is not None:
        return held
    verdict = rules.budgets.verdict(pod)
    if isinstance(verdict, Held):
        return verdict
    return why_no_budget(protection.rules, rules.budgets.budgets_of(pod))


def why_refused(pod: Pod, rules: Rules) -> Held | None:
    """Return what the API server refused lately that keeps a pod, or None if nothing does."""
    if pod.namespace not in rules.refused.namespaces:
        return None
    return rules.refused.why_not(pod, rules.budgets.budgets_of(pod))


def _of_a_small_workload(pod: Pod, active_pods: ActivePods, least: int) -> Held | None:
    """Return a reason if the workload has too few pods. What its controller wants is only known at the last look."""
    if pod.controller is None:
        return None
    named = f"{pod.controller.kind} {pod.controller.name}"
    return why_too_few(named, active_pods.up_to(pod, least), least)


def _by_owner(pod: Pod, policy: Policy, snapshot: ClusterSnapshot) -> Held | None:
    """Return why the owner of a pod's controller holds it, if that is already known."""
    controller = controller_of(snapshot, pod)
    if controller is None or pod.controller is None:
        return None
    return why_owner_unknown(pod.controller, controller.controller, policy.spec.victims.trusted_controllers)
