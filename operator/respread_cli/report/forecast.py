"""What a scale-down to a number of pods would leave, with and without pod deletion costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from respread.cluster.pod import Pod
from respread.prevention.ranks import CostOf, Costs, HeldCost, NoRoomError, cost_of, rank_new, rerank, roles_of
from respread.prevention.replica_set import ReplicaSetPods
from respread.prevention.scale_down import (
    deletion_order,
    evictions_needed,
    groups_without,
    known_order,
    without_ours,
)
from respread.spread.group import SpreadGroup
from respread_cli.report.scale_down_protection import WorkloadPods

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

    Args:
        workload: the workload.
        replicas: the number of pods to leave. If there are not more pods, none is deleted.
        now: the time, with a time zone.
        ranking: which costs the pods have. It makes no difference for a StatefulSet.

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
    """Return the costs that prevention would set. If others' costs leave no room, return the current ones."""
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
