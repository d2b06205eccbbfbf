"""What a scale-down to a number of pods would leave, with pod deletion costs and without."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from respread.cluster.pod import Pod
from respread.prevention.costs import NoRoomError
from respread.prevention.ranks import CostOf, Costs, HeldCost, cost_of, rank_new, rerank, roles_of
from respread.prevention.replica_set import ReplicaSetPods
from respread.prevention.scale_down import (
    deletion_order,
    evictions_needed,
    groups_without,
    known_order,
    without_ours,
)
from respread.prevention.workload_pods import WorkloadPods
from respread.spread.group import SpreadGroup

Ranking = Literal["as it is", "with costs", "without costs"]
"""Which pod deletion costs a scale-down goes by: those that the pods have, those that they have once they all have one,
or none but those that somebody else wrote."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A scale-down that has not happened."""

    deleted: tuple[Pod, ...]
    """In their order."""
    groups: tuple[SpreadGroup, ...]
    """The workload's own, as they are then."""
    evictions: int
    """How many evictions at least would restore them (see `evictions_needed`)."""
    certain: bool
    """Whether the pods deleted are known: not where the age of pods decides, which stands for what is not known."""


class NotForetoldError(Exception):
    """Which pods a scale-down would delete can't be known; the message is a sentence that says why."""


def foretell(workload: WorkloadPods, replicas: int, now: datetime, ranking: Ranking = "as it is") -> Forecast:
    """Return what a scale-down would leave if it came now.

    Args:
        workload: the workload.
        replicas: how many pods are to be left; as many as there are, or more, delete none.
        now: the time, with a time zone.
        ranking: which costs the pods have; makes no difference to a StatefulSet.

    Raises:
        NotForetoldError: the controller's rules are not known, or a rollout is going on.
    """
    surplus = max(0, len(workload.pods) - replicas)
    in_order, certain = _in_order(workload, now, ranking, surplus)
    deleted = in_order[:surplus]
    groups = groups_without(workload.groups, deleted)
    return Forecast(deleted=tuple(deleted), groups=groups, evictions=evictions_needed(groups), certain=certain)


def _in_order(workload: WorkloadPods, now: datetime, ranking: Ranking, surplus: int) -> tuple[Sequence[Pod], bool]:
    """Return all pods in the order in which they are deleted, and whether it is certain which go."""
    if workload.is_stateful_set:
        return sorted(workload.pods, key=_ordinal, reverse=True), True
    if not workload.replica_sets:
        raise NotForetoldError(f"how a {workload.name.kind} chooses the pods it deletes is not known")
    if len(workload.replica_sets) > 1:
        raise NotForetoldError("a rollout is going on, and which of its ReplicaSets shrinks is not known")
    (replica_set,) = workload.replica_sets
    rule = _rule(replica_set, ranking)
    in_order = deletion_order(replica_set, now, rule)
    certain = True
    if 0 < surplus < len(in_order):
        known = known_order(replica_set, rule)
        certain = known(in_order[surplus - 1]) != known(in_order[surplus])
    return in_order, certain


def _rule(replica_set: ReplicaSetPods, ranking: Ranking) -> CostOf:
    if ranking == "without costs":
        return without_ours
    if ranking == "as it is":
        return cost_of
    return costs_once_ranked(replica_set)


def costs_once_ranked(replica_set: ReplicaSetPods) -> CostOf:
    """Return the costs that prevention would come to; where others' costs leave no room, those that there are."""
    costs: Costs = {}

    def ranked(pod: Pod) -> HeldCost | None:
        cost = costs.get(pod.uid)
        return cost_of(pod) if cost is None else HeldCost(cost, ours=True)

    try:
        costs.update(rank_new(replica_set, roles_of(replica_set)))
        if (better := rerank(replica_set, roles_of(replica_set, ranked))) is not None:
            costs.update(better.costs)
    except NoRoomError:
        return cost_of
    return ranked


def _ordinal(pod: Pod) -> int:
    ordinal = pod.name.rpartition("-")[2]
    return int(ordinal) if ordinal.isdecimal() else -1
