"""Whether pod deletion costs protect a workload's spread in a scale-down, and if not, why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from immutables import Map

from respread.api.record import ContestedCosts, Recorded
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.index import ReplicaSetIndex
from respread.prevention.ranks import NoRoomError, rank_new, roles_of
from respread.prevention.replica_set import CostSelection, ReplicaSetPods, Wish, counts, select
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread


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


class ScaleDownProtection(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a workload is protected."""

    reason: ScaleDownReason
    message: str
    """A sentence for the user: why, and what to do."""
    policy: str = ""
    """The policy that governs the pods; empty if none does, or if it does not matter."""

    @property
    def protected(self) -> bool:
        """Whether the next scale-down follows Respread's costs."""
        return self.reason is ScaleDownReason.PROTECTED


_NEVER_SCALED: Final = frozenset({"DaemonSet", "Job", "Node", "Pod"})
"""A DaemonSet has one pod per node, and a Job ends. Static pods and pods without a controller are never scaled."""

_BY_RULES_OF_THEIR_OWN: Final[Mapping[str, str]] = {
    "CloneSet": (
        "of OpenKruise deletes pods of the lowest pod deletion costs first, and without any costs those of the fullest "
        "domains of its constraints; Respread writes none."
    ),
}


def protection_of(
    workload: WorkloadPods,
    policies: PolicyIndex,
    snapshot: ClusterSnapshot,
    records: Mapping[str, Recorded] = Map(),
) -> ScaleDownProtection:
    """Return whether a workload is protected, and if not, why.

    Args:
        workload: the workload.
        policies: all policies of the cluster.
        snapshot: contains the namespaces' labels.
        records: what the operator has recorded, by the policies' names: it knows who else writes costs.
    """
    kind = workload.name.kind
    if workload.is_stateful_set:
        return ScaleDownProtection(
            reason=ScaleDownReason.HIGHEST_ORDINAL,
            message="A StatefulSet deletes its pods of the highest ordinals first, whatever their pod deletion costs.",
        )
    if kind in _NEVER_SCALED:
        return ScaleDownProtection(
            reason=ScaleDownReason.NOT_SCALED_DOWN, message=f"A {kind} is not scaled down by a number of replicas."
        )
    if kind in _BY_RULES_OF_THEIR_OWN:
        return ScaleDownProtection(
            reason=ScaleDownReason.UNKNOWN_CONTROLLER, message=f"A {kind} {_BY_RULES_OF_THEIR_OWN[kind]}"
        )
    if not workload.replica_sets:
        return ScaleDownProtection(
            reason=ScaleDownReason.UNKNOWN_CONTROLLER,
            message=f"How a {kind} chooses the pods it deletes is not known; pod deletion costs are for ReplicaSets.",
        )
    if not workload.groups:
        return ScaleDownProtection(
            reason=ScaleDownReason.NO_CONSTRAINT,
            message="No topology spread constraint of the pods counts them, so that there is nothing to be kept.",
        )
    return _of_replica_sets(workload, policies, snapshot, records)


def _of_replica_sets(
    workload: WorkloadPods, policies: PolicyIndex, snapshot: ClusterSnapshot, records: Mapping[str, Recorded]
) -> ScaleDownProtection:
    selection = select(workload.replica_sets[0], policies, snapshot)
    policy, number, kind = selection.policy, len(workload.replica_sets), workload.name.kind
    if not policy:
        return ScaleDownProtection(reason=ScaleDownReason.NO_POLICY, message="No policy selects the pods.")
    if selection.wish is not Wish.PROTECT:
        return _of_policy(selection)
    if number > 1:
        return ScaleDownProtection(
            reason=ScaleDownReason.ROLLING_OUT,
            policy=policy,
            message=f"{number} ReplicaSets have pods: while a rollout goes on, the {kind} decides which of them "
            "shrinks before costs decide about pods.",
        )
    if len(workload.pods) == 1:
        message = "One pod alone has nothing to be ranked."
        return ScaleDownProtection(reason=ScaleDownReason.SINGLE_POD, policy=policy, message=message)
    replica_set = workload.replica_sets[0]
    if (record := records.get(policy)) is not None:
        for contested in record.contested_costs:
            if contested.replica_set == replica_set.controller.uid:
                return _of_contest(contested, policy)
    return _of_costs(replica_set, selection)


def _of_policy(selection: CostSelection) -> ScaleDownProtection:
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
    return ScaleDownProtection(reason=reason, policy=policy, message=message)


def _of_contest(contested: ContestedCosts, policy: str) -> ScaleDownProtection:
    """Return what another writer of costs means for a scale-down."""
    who = f"Field manager {contested.writer}" if contested.writer else "Somebody else"
    return ScaleDownProtection(
        reason=ScaleDownReason.COSTS_CONTESTED,
        policy=policy,
        message=f"{who} has removed or replaced Respread's pod deletion costs {contested.times} times. Respread writes "
        f"them again when pods go, or after {contested.until:%Y-%m-%d %H:%M:%S} UTC: let one of the two write costs.",
    )


def _of_costs(replica_set: ReplicaSetPods, selection: CostSelection) -> ScaleDownProtection:
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
    return ScaleDownProtection(reason=reason, policy=policy, message=message)


def _has_room(replica_set: ReplicaSetPods) -> bool:
    try:
        rank_new(replica_set, roles_of(replica_set))
    except NoRoomError:
        return False
    return True


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
    snapshot: ClusterSnapshot, spread: Spread, namespaces: Collection[str] | None = None
) -> Mapping[WorkloadName, WorkloadPods]:
    """Return every workload that has pods.

    Args:
        snapshot: the cluster.
        spread: its spread groups.
        namespaces: only these; None for all.
    """
    chosen = snapshot.pods_by_labels
    if namespaces is not None:
        chosen = Map({name: chosen[name] for name in namespaces if name in chosen})
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
