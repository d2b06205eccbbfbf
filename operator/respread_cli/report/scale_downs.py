"""Scale-downs: whether pod deletion costs protect a workload's spread, and what one would leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec
from immutables import Map

from respread.api.record import ContestedCosts, Recorded
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import POLICY_KINDS
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.ranks import (
    CostOf,
    Costs,
    HeldCost,
    NoRoomError,
    cost_of,
    deletion_order,
    evictions_needed,
    groups_without,
    known_order,
    rank_new,
    rerank,
    roles_of,
    without_ours,
)
from respread.prevention.replica_set import CostSelection, ReplicaSetIndex, ReplicaSetPods, Wish, counts, select
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.target import WorkloadReference

MOST_FORETOLD: Final = 200
"""No forecast for workloads with more pods, because one forecast for each number of replicas takes too long."""
_DEPENDS_ON: Final = frozenset({"namespaces", *(kind.resource for kind in POLICY_KINDS)})
"""Resources without which protection is unknown."""
NEVER_SCALED: Final = {
    "DaemonSet": "a DaemonSet has a pod on every node that takes one",
    "Job": "a Job runs to its end",
    "Node": "a static pod belongs to its node",
    "Pod": "it has no controller",
}
"""By the kind of a pod's controller, why a number of replicas says nothing about its pods."""
_BY_RULES_OF_THEIR_OWN: Final[Mapping[str, str]] = {
    "CloneSet": (
        "of OpenKruise deletes pods of the lowest pod deletion costs first, and without any costs those of the fullest "
        "domains of its constraints; Respread writes none."
    )
}


class WorkloadPods(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A workload as the snapshot shows it. A workload without pods is unknown."""

    name: WorkloadName
    pods: tuple[Pod, ...]
    """Pods that are neither being deleted nor finished, bound or not, sorted by name."""
    groups: tuple[SpreadGroup, ...]
    """The spread groups of its pods' constraints that count them."""
    replica_sets: tuple[ReplicaSetPods, ...] = ()
    """The ReplicaSets with such pods, if pod deletion costs decide. There are several while a rollout is in
    progress."""

    @property
    def is_stateful_set(self) -> bool:
        """Whether the pods have ordinals, of which a scale-down deletes the highest."""
        return self.name.kind == "StatefulSet"


def workloads_of(
    snapshot: ClusterSnapshot, spread: Spread, namespaces: Iterable[str]
) -> Mapping[WorkloadName, WorkloadPods]:
    """Return every workload of some namespaces that has pods."""
    there = snapshot.pods_by_labels
    chosen = Map({name: there[name] for name in namespaces if name in there})
    pods: dict[WorkloadName, list[Pod]] = {}
    groups: dict[WorkloadName, list[SpreadGroup]] = {}
    for namespace, by_labels in chosen.items():
        for names in by_labels.values():
            for pod in names.values():
                if not pod.terminating and not pod.finished:
                    pods.setdefault(workload_of(pod), []).append(pod)
        for group in spread.by_namespace.get(namespace, {}).values():
            for workload in group.workloads:
                groups.setdefault(workload, []).append(group)
    index = ReplicaSetIndex()
    index.update(msgspec.structs.replace(snapshot, pods_by_labels=chosen), spread)
    replica_sets: dict[WorkloadName, tuple[ReplicaSetPods, ...]] = {}
    for each in index.by_uid.values():
        if each.pods:
            replica_sets[each.workload] = (*replica_sets.get(each.workload, ()), each)
    return {
        name: WorkloadPods(
            name=name,
            pods=tuple(sorted(found, key=lambda pod: pod.name)),
            groups=tuple(
                group for group in groups.get(name, ()) if any(counts(group.key, pod.labels) for pod in found)
            ),
            replica_sets=replica_sets.get(name, ()),
        )
        for name, found in pods.items()
    }


class ScaleDownReason(StrEnum):
    """How scale-downs of a workload choose pods, as one word. Users and programs see the value."""

    PROTECTED = "Protected"
    """Respread's costs decide."""
    SINGLE_POD = "SinglePod"
    NO_CONSTRAINT = "NoConstraint"
    # Prevention is not wanted
    NO_POLICY = "NoPolicy"
    INVALID_POLICY = "InvalidPolicy"
    PREVENTION_DISABLED = "PreventionDisabled"
    CONSTRAINT_NOT_SELECTED = "ConstraintNotSelected"
    # It is, but costs are not reliable
    NOT_RANKED = "NotRanked"
    COSTS_OF_OTHERS = "CostsOfOthers"
    COSTS_CONTESTED = "CostsContested"
    ROLLING_OUT = "RollingOut"
    # Another controller uses other rules
    HIGHEST_ORDINAL = "HighestOrdinal"
    NOT_SCALED_DOWN = "NotScaledDown"
    UNKNOWN_CONTROLLER = "UnknownController"


class ProtectionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a workload is protected, and why."""

    namespace: str
    workload: WorkloadReference
    protected: bool
    """Whether a scale-down follows Respread's pod deletion costs."""
    reason: ScaleDownReason
    message: str
    policy: str | None
    """The policy that decides."""


class _Reason(NamedTuple):
    word: ScaleDownReason
    message: str
    """A sentence for the user: why, and what to do."""
    policy: str = ""
    """The policy that governs the pods; empty if none does, or if it does not matter."""


def protection_of(
    workload: WorkloadPods, policies: PolicyIndex, snapshot: ClusterSnapshot, records: Mapping[str, Recorded] = Map()
) -> ProtectionReport:
    """Return whether a workload is protected, and if not, why.

    The operator has recorded, by the policies' names, who else writes costs.
    """
    why = _reason(workload, policies, snapshot, records)
    return ProtectionReport(
        namespace=workload.name.namespace,
        workload=WorkloadReference.of(workload.name),
        protected=why.word is ScaleDownReason.PROTECTED,
        reason=why.word,
        message=why.message,
        policy=why.policy or None,
    )


def _reason(
    workload: WorkloadPods, policies: PolicyIndex, snapshot: ClusterSnapshot, records: Mapping[str, Recorded]
) -> _Reason:
    kind = workload.name.kind
    if workload.is_stateful_set:
        return _Reason(
            ScaleDownReason.HIGHEST_ORDINAL,
            "A StatefulSet deletes its pods of the highest ordinals first, whatever their pod deletion costs.",
        )
    if kind in NEVER_SCALED:
        return _Reason(ScaleDownReason.NOT_SCALED_DOWN, f"A {kind} is not scaled down by a number of replicas.")
    if kind in _BY_RULES_OF_THEIR_OWN:
        return _Reason(ScaleDownReason.UNKNOWN_CONTROLLER, f"A {kind} {_BY_RULES_OF_THEIR_OWN[kind]}")
    if not workload.replica_sets:
        return _Reason(
            ScaleDownReason.UNKNOWN_CONTROLLER,
            f"How a {kind} chooses the pods it deletes is not known; pod deletion costs are for ReplicaSets.",
        )
    if not workload.groups:
        return _Reason(
            ScaleDownReason.NO_CONSTRAINT,
            "No topology spread constraint of the pods counts them, so that there is nothing to be kept.",
        )
    return _of_replica_sets(workload, policies, snapshot, records)


def _of_replica_sets(
    workload: WorkloadPods, policies: PolicyIndex, snapshot: ClusterSnapshot, records: Mapping[str, Recorded]
) -> _Reason:
    selection = select(workload.replica_sets[0], policies, snapshot)
    policy, number, kind = selection.policy, len(workload.replica_sets), workload.name.kind
    if not policy:
        return _Reason(ScaleDownReason.NO_POLICY, "No policy selects the pods.")
    if selection.wish is not Wish.PROTECT:
        return _of_policy(selection)
    if number > 1:
        return _Reason(
            ScaleDownReason.ROLLING_OUT,
            f"{number} ReplicaSets have pods: while a rollout goes on, the {kind} decides which of them "
            "shrinks before costs decide about pods.",
            policy,
        )
    if len(workload.pods) == 1:
        message = "One pod alone has nothing to be ranked."
        return _Reason(ScaleDownReason.SINGLE_POD, message, policy)
    replica_set = workload.replica_sets[0]
    if (record := records.get(policy)) is not None:
        for contested in record.contested_costs:
            if contested.replica_set == replica_set.controller.uid:
                return _of_contest(contested, policy)
    return _of_costs(replica_set, selection)


def _of_policy(selection: CostSelection) -> _Reason:
    """Return why a policy does not protect the pods that it governs."""
    policy = selection.policy
    if selection.wish is Wish.LEAVE:
        reason = ScaleDownReason.INVALID_POLICY
        message = f"Policy {policy} is invalid: no cost is written or removed until it is fixed."
    elif selection.enabled:
        reason = ScaleDownReason.CONSTRAINT_NOT_SELECTED
        message = f"spec.constraints of policy {policy} selects no constraint of the pods."
    else:
        reason = ScaleDownReason.PREVENTION_DISABLED
        message = f"spec.prevention.podDeletionCost of policy {policy} is not Enabled."
    return _Reason(reason, message, policy)


def _of_contest(contested: ContestedCosts, policy: str) -> _Reason:
    """Return what another writer of costs means for a scale-down."""
    who = f"Field manager {contested.writer}" if contested.writer else "Somebody else"
    return _Reason(
        ScaleDownReason.COSTS_CONTESTED,
        f"{who} has removed or replaced Respread's pod deletion costs {contested.times} times. Respread writes "
        f"them again when pods go, or after {contested.until:%Y-%m-%d %H:%M:%S} UTC: let one of the two write costs.",
        policy,
    )


def _of_costs(replica_set: ReplicaSetPods, selection: CostSelection) -> _Reason:
    """Return the effect of the current costs of the pods on a scale-down."""
    roles, pods = roles_of(replica_set), len(replica_set.pods)
    others, policy = len(roles.first) + len(roles.last), selection.policy
    reason = ScaleDownReason.PROTECTED
    message = "Pods are deleted by Respread's pod deletion costs, which keep the spread."
    if others and selection.replacing:
        reason = ScaleDownReason.NOT_RANKED
        message = f"Somebody else wrote the pod deletion costs of {others} of {pods} pods. Respread is to replace them."
    elif roles.new and not _has_room(replica_set):
        reason = ScaleDownReason.COSTS_OF_OTHERS
        message = (
            f"Somebody else wrote a pod deletion cost of {roles.above}, which leaves no room below 0 for "
            f"{len(roles.new) + len(roles.ranked)} pods: remove it, or make it lower."
        )
    elif roles.new:
        reason = ScaleDownReason.NOT_RANKED
        message = (
            f"{len(roles.new)} of {pods} pods have no pod deletion cost yet. They get one in a moment, unless the "
            "operator does not run or lacks the right to patch pods."
        )
    elif others and not roles.ranked:
        reason = ScaleDownReason.COSTS_OF_OTHERS
        message = "Somebody else wrote the pod deletion costs of all pods, and they are left alone."
    elif others:
        message = (
            f"Pods are deleted by Respread's pod deletion costs, but for {others} of {pods} whose cost somebody else "
            "wrote."
        )
    return _Reason(reason, message, policy)


def _has_room(replica_set: ReplicaSetPods) -> bool:
    try:
        rank_new(replica_set, roles_of(replica_set))
    except NoRoomError:
        return False
    return True


Ranking = Literal["as it is", "with costs", "without costs"]
"""The pod deletion costs that a scale-down uses: the current ones, those after every pod has one, or only those that
somebody else wrote."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A hypothetical scale-down."""

    deleted: tuple[Pod, ...]
    """The deleted pods in their order."""
    groups: tuple[SpreadGroup, ...]
    """The workload's groups after it."""
    evictions: int
    """The minimum number of evictions that would restore them (see `evictions_needed`)."""
    certain: bool
    """Whether it is certain which pods are deleted. It is not if the age of pods decides, which stands for unknown
    values."""


class NotForetoldError(Exception):
    """It can't be known which pods a scale-down would delete. The message says why."""


def foretell(workload: WorkloadPods, replicas: int, now: datetime, ranking: Ranking = "as it is") -> Forecast:
    """Return what a scale-down would leave if it happened now.

    If there are not more pods than `replicas`, none is deleted. The costs of the ranking make no difference for a
    StatefulSet.

    Raises:
        NotForetoldError: the controller's rules are unknown, or a rollout is in progress.
    """
    surplus = max(0, len(workload.pods) - replicas)
    in_order, certain = _in_order(workload, now, ranking, surplus)
    deleted = in_order[:surplus]
    groups = groups_without(workload.groups, deleted)
    return Forecast(deleted=tuple(deleted), groups=groups, evictions=evictions_needed(groups), certain=certain)


def _in_order(workload: WorkloadPods, now: datetime, ranking: Ranking, surplus: int) -> tuple[Sequence[Pod], bool]:
    """Return all pods in the order in which they are deleted, and whether it is certain which ones are."""
    if workload.is_stateful_set:
        return sorted(workload.pods, key=_ordinal, reverse=True), True
    if not workload.replica_sets:
        raise NotForetoldError(f"how a {workload.name.kind} chooses the pods it deletes is not known")
    if len(workload.replica_sets) > 1:
        raise NotForetoldError("a rollout is going on, and which of its ReplicaSets shrinks is not known")
    (replica_set,) = workload.replica_sets
    rules: Mapping[Ranking, CostOf] = {"without costs": without_ours, "as it is": cost_of}
    rule = rules.get(ranking) or costs_once_ranked(replica_set)
    in_order = deletion_order(replica_set, now, rule)
    certain = True
    if 0 < surplus < len(in_order):
        known = known_order(replica_set, rule)
        certain = known(in_order[surplus - 1]) != known(in_order[surplus])
    return in_order, certain


def costs_once_ranked(replica_set: ReplicaSetPods) -> CostOf:
    """Return the costs that prevention would set. If others' costs leave no room, return the current ones."""
    costs: Costs = {}

    def ranked(pod: Pod) -> HeldCost | None:
        cost = costs.get(pod.uid)
        return cost_of(pod) if cost is None else HeldCost(cost, ours=True)

    try:
        costs.update(rank_new(replica_set, roles_of(replica_set)))
        if (better := rerank(replica_set, roles_of(replica_set, ranked))) is not None:
            costs.update(better)
    except NoRoomError:
        return cost_of
    return ranked


def _ordinal(pod: Pod) -> int:
    ordinal = pod.name.rpartition("-")[2]
    return int(ordinal) if ordinal.isdecimal() else -1


class ScaleDownReport(ProtectionReport, frozen=True, kw_only=True, rename="camel"):
    """How scale-downs of a workload choose pods, and what they would leave."""

    replicas: int
    """The current number."""
    violating_replicas: tuple[int, ...] | None
    """The lower numbers at which a scale-down now would leave a constraint violated; null if unknown."""
    certain: bool
    """Whether it is certain which pods are deleted. If their age decides, the likely ones are assumed."""


def scale_down_reports(
    view: ReadCluster, spread: Spread, policies: PolicyIndex, workloads: Iterable[WorkloadName]
) -> tuple[ScaleDownReport, ...]:
    """Return the reports of some workloads, without those that have no pods."""
    names = list(workloads)
    found = workloads_of(view.snapshot, spread, {name.namespace for name in names})
    return tuple(
        _report(found[name], protection_of(found[name], policies, view.snapshot, view.records), view.time)
        for name in names
        if name in found
    )


def _report(workload: WorkloadPods, protection: ProtectionReport, now: datetime) -> ScaleDownReport:
    violating, certain = _violating(workload, now)
    return ScaleDownReport(
        **msgspec.structs.asdict(protection), replicas=len(workload.pods), violating_replicas=violating, certain=certain
    )


def _violating(workload: WorkloadPods, now: datetime) -> tuple[tuple[int, ...] | None, bool]:
    if len(workload.pods) > MOST_FORETOLD:
        return None, False
    violating, certain = [], True
    for replicas in range(1, len(workload.pods)):
        try:
            forecast = foretell(workload, replicas, now)
        except NotForetoldError:
            return None, False
        certain = certain and forecast.certain
        if forecast.evictions:
            violating.append(replicas)
    return tuple(violating), certain


def is_known(view: ReadCluster) -> bool:
    """Return whether everything was read on which protection depends."""
    return _DEPENDS_ON.isdisjoint(view.left_out)


def protection_reports(
    view: ReadCluster, spread: Spread, groups: Iterable[SpreadGroup]
) -> tuple[ProtectionReport, ...] | None:
    """Return whether the workloads of some groups are protected; None if policies could not be read."""
    if not is_known(view):
        return None
    names = sorted(
        {name for group in groups for name in group.workloads}, key=lambda name: (name.namespace, name.kind, name.name)
    )
    workloads = workloads_of(view.snapshot, spread, {name.namespace for name in names})
    index = PolicyIndex(view.policies)
    return tuple(
        protection_of(workloads[name], index, view.snapshot, view.records)
        for name in names
        if name in workloads  # Otherwise all its pods are being deleted.
    )
