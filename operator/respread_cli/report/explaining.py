"""What a plan means for single constraints, domains and pods, and why, by the same rules as planning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.pending import why_pending
from respread.planning.explain.blocked import why_none_there
from respread.planning.held import Held
from respread.planning.placement import Placement
from respread.planning.plan import Move, Plan
from respread.planning.victims.budgets import BudgetBook
from respread.planning.victims.candidates import Rules, why_held
from respread.planning.victims.controllers import ActivePods
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.selection import Selection
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.node_sets import node_set, union
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread

Fate: TypeAlias = Literal["Moves", "MayMove", "Held", "Stays"]
"""What happens to a pod: the plan evicts it; it could, but does not; the pod may not be evicted; there is no need
to."""


class PodVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan does with a pod."""

    fate: Fate
    reason: Reason | None = None
    """Why it is held, or why the plan does not evict it although it could."""
    message: str
    move: Move | None = None


class DomainVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """An eligible domain of a group."""

    domain: str
    pods: int
    nodes: tuple[str, ...]
    too_full: bool
    """Whether it has more pods than the minimum plus maxSkew."""
    closed: str = ""
    """Why none of its nodes accepts a replacement now, not considering the spread itself; empty if one does."""


class Explainer:
    """Explains one plan."""

    __slots__ = ("_blocked", "_moves", "_nodes", "_placement", "_plan", "_rules", "_selection")

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        setting: PolicySetting,
        plan: Plan,
        predictor: Predictor,
        now: datetime,
    ) -> None:
        """Create it.

        Args:
            snapshot: the cluster.
            spread: its spread groups.
            setting: the policies.
            plan: the plan for these.
            predictor: of the schedulers. Its view is at the snapshot.
            now: when the plan was made, with a time zone.
        """
        index = setting.index
        self._selection = Selection(index)
        self._selection.advance(snapshot, spread)
        self._rules = Rules(
            selection=self._selection,
            protections=setting.protections,
            budgets=BudgetBook(snapshot),
            active_pods=ActivePods(snapshot),
            now=now,
            snapshot=snapshot,
        )
        self._placement = Placement(predictor)
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

    def domains(self, group: SpreadGroup, carriers: Sequence[Pod]) -> list[DomainVerdict]:
        """Return a group's domains by name.

        Args:
            group: the group.
            carriers: pods with the constraint, one of each template. Without any, `closed` is not determined.
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
                DomainVerdict(
                    domain=domain,
                    pods=group.count(domain),
                    nodes=names,
                    too_full=group.count(domain) > most,
                    closed=closed,
                )
            )
        return verdicts

    def pod(self, pod: Pod, counting: Sequence[SpreadGroup]) -> PodVerdict:
        """Return what the plan does with a pod.

        Args:
            pod: the pod.
            counting: the groups that count it.
        """
        if (move := self._moves.get(pod.key)) is not None:
            message = move.why if move.waits is None else f"{move.why}; {move.waits.message}"
            return PodVerdict(fate="Moves", message=message, move=move)
        if not pod.node_name:
            prepared = self._placement.predictor.prepare(pod)
            waiting = f"{why_pending(prepared, self._nodes)}. Its workload is left alone until it has a node"
            return PodVerdict(fate="Held", reason=Reason.IN_MOTION, message=waiting)
        if not counting:
            return PodVerdict(fate="Stays", message=_why_it_stays(counting, ()))
        if (held := why_held(pod, self._rules)) is not None:
            return PodVerdict(fate="Held", reason=held.reason, message=held.message)
        return self._of_movable(pod, counting)

    def _of_movable(self, pod: Pod, counting: Sequence[SpreadGroup]) -> PodVerdict:
        violated = [group for group in counting if group.violated and group.key in self._plan.policies]
        too_full = [group for group in violated if group.too_full(pod.node_name) is not None]
        if not too_full:
            return PodVerdict(fate="Stays", message=_why_it_stays(counting, violated))
        for group in too_full:
            if (blocked := self._blocked.get(group.key)) is not None:
                return PodVerdict(fate="MayMove", reason=blocked.reason, message=blocked.message)
        return PodVerdict(
            fate="MayMove",
            message="the plan evicts other pods, which cost less or whose replacements get better nodes",
        )


def _why_it_stays(counting: Sequence[SpreadGroup], violated: Sequence[SpreadGroup]) -> str:
    if violated:
        return "no domain of it holds too many pods"
    if not counting:
        return "no constraint counts it"
    if any(group.violated for group in counting):
        return "no policy restores the violated constraints that count it"
    return "every constraint that counts it holds"
