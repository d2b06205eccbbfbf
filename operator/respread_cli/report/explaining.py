"""What a plan means for single constraints, domains and pods, why, and what a user can do, by the rules of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from respread.api.conditions import PASSING_REASONS
from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.planning.audit.limit_rules import why_pending
from respread.planning.explaining import why_none_there
from respread.planning.placement import Placement
from respread.planning.plan import Move
from respread.planning.victims.budgets import BudgetBook
from respread.planning.victims.selection import Rules, Selection, why_held
from respread.scheduling.view.node_table import node_set, union
from respread.spread.group import SpreadGroup
from respread_cli.report.planned import Planned

_PASSES: Final = "nothing to do: it ends by itself"
_REMEDIES: Final[Mapping[Reason, str]] = {
    Reason.BARE_POD: "let a Deployment or StatefulSet own the pods",
    Reason.CONFLICTING_CONSTRAINTS: "raise the maxSkew of one of them, or add nodes",
    Reason.DAEMON_SET_POD: "select no pods of a DaemonSet",
    Reason.DOMAIN_HAS_NO_NODE: "add a node there",
    Reason.DRY_RUN: "set mode: Enforce in the policy",
    Reason.EVICTION_REFUSED: "let the webhook or role allow evictions",
    Reason.FINISHED_POD: "delete the finished pods",
    Reason.GROUP_TOO_LARGE: "let the labelSelector match one workload only",
    Reason.HELD_BY_BUDGET: "make more of the budget's pods Ready",
    Reason.INVALID_POLICY: "correct the policy",
    Reason.LOCAL_STORAGE: "set victims.localStorage: Evict, if the data may go",
    Reason.MIRROR_POD: "move the manifest to another node",
    Reason.NO_BUDGET: "create a PodDisruptionBudget for the pods",
    Reason.NO_FEASIBLE_NODE: "uncordon, free or add nodes",
    Reason.NOT_SELECTED: "select it in a policy",
    Reason.OVERLAPPING_BUDGETS: "keep one PodDisruptionBudget for the pods",
    Reason.PAUSED: "make the new pods Ready",
    Reason.PERSISTENT_VOLUME_CLAIM: "set victims.persistentVolumeClaims: Evict",
    Reason.PODS_NOT_READY: "make its pods Ready",
    Reason.PRIORITY_TOO_HIGH: "raise victims.priorityThreshold in the policy",
    Reason.PROTECTED_POD: "remove what protects the pods",
    Reason.REPLACEMENT_REFUSED: "raise the ResourceQuota or LimitRange",
    Reason.REPLACEMENT_WOULD_WAIT: "set podManagementPolicy: Parallel",
    Reason.TEMPLATE_DIFFERS: "kubectl rollout restart the workload",
    Reason.TOO_FEW_DOMAINS: "add nodes in more domains, or lower minDomains",
    Reason.TOO_FEW_REPLICAS: "add replicas, or lower victims.minReplicas",
    Reason.UNKNOWN_OWNER: "add its kind to victims.trustedControllers",
    Reason.UNKNOWN_REPLACEMENT: "tell Respread of its scheduler or controller",
    Reason.UNREAD_OBJECT: "correct the object that the message names",
}
_BY_NAME: Final[Mapping[Reason, str]] = {
    Reason.DOMAIN_HAS_NO_NODE: "add a node in {}",
    Reason.HELD_BY_BUDGET: "raise maxUnavailable of PodDisruptionBudget {}",
    Reason.NO_FEASIBLE_NODE: "uncordon, free or add nodes in {}",
    Reason.PROTECTED_POD: "remove the annotation {}",
    Reason.UNKNOWN_REPLACEMENT: "{}",
}
"""Remedies where it is known what would have to be changed."""

Fate: TypeAlias = Literal["Moves", "MayMove", "Held", "Stays"]
"""What happens to a pod: the plan evicts it; it could, but does not; the pod may not be evicted; there is no need
to."""


class DomainReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An eligible domain."""

    domain: str
    pods: int
    nodes: int
    too_full: bool
    """Whether it has more pods than the minimum plus maxSkew."""
    closed: str | None
    """Why none of its nodes accepts a replacement now, not considering the spread itself; null if one does."""


class Explainer:
    """Explains one plan."""

    def __init__(self, planned: Planned) -> None:
        snapshot, setting, plan = planned.view.snapshot, planned.setting, planned.plan
        self._selection = Selection(setting.index)
        self._selection.advance(snapshot, planned.spread)
        self._rules = Rules(
            selection=self._selection,
            protections=setting.protections,
            budgets=BudgetBook(snapshot),
            now=planned.view.time,
            snapshot=snapshot,
        )
        self._placement = Placement(planned.predictor)
        self._nodes = sorted(snapshot.nodes)
        self._plan = plan
        self._moves = {move.pod.key: move for move in plan.moves}
        self._blocked = {each.group: each for each in plan.blocked}

    def policy_of(self, pod: Pod) -> Policy | None:
        """Return the policy that governs a pod."""
        return self._selection.policy_of(pod.namespace, pod.labels)

    def why_not_restored(self, group: SpreadGroup) -> Held | None:
        """Return why a group is not, or not fully, restored, whether or not it is violated; None if it is restored.

        A group that no policy restores is `NotSelected`.
        """
        if (blocked := self._blocked.get(group.key)) is not None:
            return blocked
        return None if group.key in self._plan.policies else self._not_selected(group)

    def _not_selected(self, group: SpreadGroup) -> Held:
        governing = {
            policy.name: policy
            for template in group.carriers
            if (policy := self._selection.policy_of(group.key.namespace, template.labels)) is not None
        }
        if not governing:
            return Held(Reason.NOT_SELECTED, "no policy selects the pods that have it")
        name, policy = min(governing.items())
        rules = policy.spec.constraints
        if group.key.when_unsatisfiable not in rules.when_unsatisfiable:
            return Held(
                Reason.NOT_SELECTED,
                f"policy {name} does not restore {group.key.when_unsatisfiable} constraints: add it to "
                "spec.constraints.whenUnsatisfiable",
            )
        return Held(
            Reason.NOT_SELECTED,
            f"policy {name} restores constraints of {', '.join(rules.topology_keys)} only: see "
            "spec.constraints.topologyKeys",
        )

    def domains(self, group: SpreadGroup, carriers: Sequence[Pod]) -> list[DomainReport]:
        """Return a group's domains by name.

        The carriers are pods with the constraint, one of each template. Without any, `closed` is not determined.
        """
        most = group.levels.limit
        replacements = [self._placement.prepare(pod) for pod in carriers]
        nodes = union(each.admitted(spread=False) for each in replacements)
        slot_of = self._placement.table.slot_of
        verdicts = []
        for domain, names in sorted(group.domains.nodes.items()):
            closed = ""
            if replacements and not nodes & node_set([slot_of[name] for name in names]):
                closed = why_none_there(replacements[0], names)
            verdicts.append(
                DomainReport(
                    domain=domain,
                    pods=group.count(domain),
                    nodes=len(names),
                    too_full=group.count(domain) > most,
                    closed=closed or None,
                )
            )
        return verdicts

    def move_of(self, pod: Pod) -> Move | None:
        """Return the move that evicts a pod, if the plan has one."""
        return self._moves.get(pod.key)

    def fate_of(self, pod: Pod, counting: Sequence[SpreadGroup]) -> tuple[Fate, Held | str]:
        """Return what the plan does with a pod, and why: what holds it, or a message.

        The groups are those that count the pod.
        """
        if (move := self.move_of(pod)) is not None:
            return "Moves", move.why if move.waits is None else f"{move.why}; {move.waits.message}"
        if not pod.node_name:
            prepared = self._placement.predictor.prepare(pod)
            waiting = f"{why_pending(prepared, self._nodes)}. Its workload is left alone until it has a node"
            return "Held", Held(Reason.IN_MOTION, waiting)
        if not counting:
            return "Stays", _why_it_stays(counting, ())
        if (held := why_held(pod, self._rules)) is not None:
            return "Held", held
        return self._fate_of_movable(pod, counting)

    def _fate_of_movable(self, pod: Pod, counting: Sequence[SpreadGroup]) -> tuple[Fate, Held | str]:
        violated = [group for group in counting if group.violated and group.key in self._plan.policies]
        too_full = [group for group in violated if group.too_full(pod.node_name) is not None]
        if not too_full:
            return "Stays", _why_it_stays(counting, violated)
        for group in too_full:
            if (blocked := self._blocked.get(group.key)) is not None:
                return "MayMove", blocked
        return "MayMove", "the plan evicts other pods, which cost less or whose replacements get better nodes"


def _why_it_stays(counting: Sequence[SpreadGroup], violated: Sequence[SpreadGroup]) -> str:
    if violated:
        return "no domain of it holds too many pods"
    if not counting:
        return "no constraint counts it"
    if any(group.violated for group in counting):
        return "no policy restores the violated constraints that count it"
    return "every constraint that counts it holds"


def remedy_of(held: Held) -> str:
    """Return what a user can do about what holds a constraint, in at most some 80 characters, without a full stop."""
    if held.named and (remedy := _BY_NAME.get(held.reason)) is not None:
        return remedy.format(held.named)
    return _REMEDIES.get(held.reason, _PASSES if held.reason in PASSING_REASONS else "")
