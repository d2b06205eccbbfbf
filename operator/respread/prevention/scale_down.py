"""What a scale-down would leave: the ReplicaSet controller's own order of deletion, and the spread after it.

A complete one is compared with what it would have been without costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from math import log2
from typing import NamedTuple

import msgspec

from respread.cluster.pod import Pod
from respread.planning.search.closed_form import fewest_evictions
from respread.prevention.ranks import PHASES, CostOf, HeldCost, cost_of
from respread.prevention.replica_set import CostSelection, ReplicaSetPods, counted_in
from respread.spread.group import SpreadGroup


def deletion_order(replica_set: ReplicaSetPods, now: datetime, cost_of: CostOf = cost_of) -> list[Pod]:
    """Return a ReplicaSet's pods in the order in which its controller deletes them (`ActivePodsWithRanks`).

    It is not known how long pods have been Ready and how often they restarted. Their age is used instead, so among pods
    of equal cost the order is only the most likely one.

    Args:
        replica_set: the ReplicaSet.
        now: the time, with a time zone.
        cost_of: the costs of the pods. Use `without_ours` for the order without our costs.
    """
    known = known_order(replica_set, cost_of)
    return sorted(replica_set.pods, key=lambda pod: (*known(pod), _age_class(pod, now), pod.uid))


def known_order(replica_set: ReplicaSetPods, cost_of: CostOf = cost_of) -> Callable[[Pod], tuple[int, ...]]:
    """Return the sort key before age: of two pods that differ in it, the lower one is certainly deleted first."""
    on_node = Counter(pod.node_name for pod in (*replica_set.pods, *replica_set.siblings))

    def known(pod: Pod) -> tuple[int, ...]:
        cost = cost_of(pod)
        return (
            bool(pod.node_name),
            PHASES.get(pod.phase, 0),
            pod.ready,
            0 if cost is None else cost.value,
            -on_node[pod.node_name],
        )

    return known


def without_ours(pod: Pod) -> HeldCost | None:
    """Return the cost that a pod would have if Respread had written none."""
    cost = cost_of(pod)
    return None if cost is None or cost.ours else cost


def groups_without(groups: Iterable[SpreadGroup], deleted: Sequence[Pod]) -> tuple[SpreadGroup, ...]:
    """Return spread groups after some of the pods that they count are gone."""
    after = []
    bound = [pod for pod in deleted if pod.node_name]
    for group in groups:
        counts = Counter(group.counts)
        counts.subtract(domain for domain in counted_in(group, bound) if domain is not None)
        after.append(msgspec.structs.replace(group, counts={domain: n for domain, n in counts.items() if n}))
    return tuple(after)


def evictions_needed(groups: Iterable[SpreadGroup]) -> int:
    """Return the minimum number of evictions that would restore groups which share their pods.

    A group that no number of evictions restores counts as its excess.
    """
    return max((_evictions_needed(group) for group in groups if group.violated), default=0)


def _evictions_needed(group: SpreadGroup) -> int:
    fewest = fewest_evictions(group.levels)
    return group.excess if fewest == float("inf") else int(fewest)


def _age_class(pod: Pod, now: datetime) -> int:
    """Return the pod's age as controllers compare ages, by its logarithm (`logarithmicRankDiff`)."""
    if pod.creation_timestamp is None:
        return -1
    nanoseconds = (now - pod.creation_timestamp).total_seconds() * 1e9
    return int(log2(nanoseconds)) if nanoseconds > 0 else -1


class Avoided(NamedTuple):
    """A scale-down that followed our costs."""

    replica_set: ReplicaSetPods
    """The ReplicaSet before it."""
    policy: str
    deleted: int
    evictions: int
    """An estimate of the additional evictions that would have been needed without costs."""


def avoided_between(
    before: ReplicaSetPods | None, after: ReplicaSetPods, selection: CostSelection, time: datetime
) -> Avoided | None:
    """Return what costs saved between two rests of a ReplicaSet; None if nothing was scaled down by them.

    Args:
        before: the earlier rest; None if there was none.
        after: the later one.
        selection: the policy that asks for the costs.
        time: the time, with a time zone.
    """
    if before is None:
        return None
    left = {pod.uid for pod in after.pods}
    deleted = [pod for pod in before.pods if pod.uid not in left]
    if not deleted or len(before.pods) - len(deleted) != len(left):
        return None
    in_order = deletion_order(before, time)
    if {pod.uid for pod in deleted} != {pod.uid for pod in in_order[: len(deleted)]}:
        return None  # Something other than a scale-down removed them.
    without_costs = deletion_order(before, time, without_ours)[: len(deleted)]
    needed = [
        evictions_needed(group for group in groups_without(before.groups, gone) if group.key in selection.restored)
        for gone in (without_costs, deleted)
    ]
    return Avoided(before, selection.policy, len(deleted), max(0, needed[0] - needed[1]))
