"""Which pods of a ReplicaSet get which cost: new ones get a rank, others keep theirs unless a change helps.

A cost that somebody else wrote determines when its pod is deleted: below 0 before all others, otherwise after them.
Respread's costs respect that, and order the pods in between.

An order of deletion becomes costs with as few changes as possible. A ReplicaSet deletes the pods of lower cost first.
Costs have gaps, so that a pod can be ranked between two others without changing them. All of them are negative: a pod
without a cost counts as 0, so it is deleted after those that have one, until it has its own.

The same order shows what a scale-down would leave. A complete one is compared with what it would have been without.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite, log2
from typing import Final, NamedTuple, TypeAlias

import msgspec

from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.pod import Pod
from respread.planning.victims.protection import deletion_cost
from respread.prevention.replica_set import CostSelection, ReplicaSetPods, counted_in, layout_of, violation
from respread.prevention.search import best_order, insert
from respread.spread.counts import fewest_evictions
from respread.spread.group import SpreadGroup

LEAST_COST: Final = -(1 << 31)
"""Kubernetes takes 32-bit integers."""
STEP: Final = 1000
"""The gap between ranks if there is room. About ten pods, one after another, fit between any two."""


class NoRoomError(Exception):
    """There are fewer integers between the given bounds than pods to rank."""


def assign_costs(
    deletion_order: Sequence[int], held: Mapping[int, int], *, above: int = LEAST_COST - 1
) -> dict[int, int]:
    """Return the costs to set, so that all costs increase along an order of deletion.

    The first pod is deleted first. Of the costs that pods `held`, as many as possible stay. Every cost is higher than
    `above`, and lower than 0.

    Raises:
        NoRoomError: if there are too few integers between the bounds.
    """
    if -above - 1 < len(deletion_order):
        raise NoRoomError(f"{len(deletion_order)} pods can't have different costs between {above} and 0")
    costs: dict[int, int] = {}
    low, start = above, 0
    for position in (*_kept(deletion_order, held, above), len(deletion_order)):
        high = held[deletion_order[position]] if position < len(deletion_order) else 0
        run = deletion_order[start:position]
        costs.update(zip(run, _spaced(low, high, len(run), first=not start), strict=True))
        low, start = high, position + 1
    return costs


def _kept(order: Sequence[int], held: Mapping[int, int], above: int) -> list[int]:
    """Return the positions whose costs stay: as many as possible, with an integer for every pod in between.

    Two costs can stay if they are at least as far apart as their positions, that is if cost minus position does not
    fall.
    """
    least_ends: list[int] = []
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for position, pod in enumerate(order):
        cost = held.get(pod)
        if cost is None or not above + position < cost <= position - len(order):
            continue
        length = bisect_right(least_ends, cost - position)
        before[position] = ends[length - 1] if length else None
        if length == len(ends):
            least_ends.append(cost - position)
            ends.append(position)
        else:
            least_ends[length] = cost - position
            ends[length] = position
    kept: list[int] = []
    last = ends[-1] if ends else None
    while last is not None:
        kept.append(last)
        last = before[last]
    return kept[::-1]


def _spaced(low: int, high: int, number: int, *, first: bool) -> list[int]:
    """Return this many integers between two others. Those of the first run start a whole gap below what follows."""
    if first and high - low > STEP * number:
        return [high - STEP * (number - at) for at in range(number)]
    return [low + (high - low) * (at + 1) // (number + 1) for at in range(number)]


_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
"""In the order in which a ReplicaSet deletes them (`podPhaseToOrdinal`)."""


class HeldCost(NamedTuple):
    """The pod deletion cost of a pod."""

    value: int
    ours: bool
    """Whether Respread owns it, and nobody else."""


CostOf: TypeAlias = Callable[[Pod], HeldCost | None]
"""Returns the cost of a pod; None if it has none."""

Costs: TypeAlias = dict[str, int]
"""Pod deletion costs by the pods' UIDs."""


class Roles(NamedTuple):
    """A ReplicaSet's bound pods, by what to do about their costs."""

    ranked: tuple[Pod, ...]
    """Pods with a cost of ours, the first one is deleted first."""
    new: tuple[Pod, ...]
    """Pods without a cost, the youngest first."""
    first: tuple[Pod, ...]
    """Pods that somebody else wants to be deleted before the others."""
    last: tuple[Pod, ...]
    """Pods that somebody else wants to be deleted after the others, or gave a cost of 0."""
    above: int
    """Our costs are higher than this."""
    held: Costs
    """The costs of the ranked pods."""


def cost_of(pod: Pod) -> HeldCost | None:
    """Return a pod's cost from its annotation."""
    if POD_DELETION_COST not in pod.annotations:
        return None
    return HeldCost(deletion_cost(pod), pod.deletion_cost_is_ours)


def roles_of(replica_set: ReplicaSetPods, cost_of: CostOf = cost_of) -> Roles:
    """Return what to do about each bound pod's cost."""
    ranked: list[tuple[int, str, Pod]] = []
    new, first, last = list[Pod](), list[Pod](), list[Pod]()
    above = LEAST_COST - 1
    for pod in replica_set.pods:
        if not pod.node_name:
            continue
        cost = cost_of(pod)
        if cost is None:
            new.append(pod)
        elif cost.ours:
            ranked.append((cost.value, pod.name, pod))
        elif cost.value < 0:
            first.append(pod)
            above = max(above, cost.value)
        else:
            last.append(pod)
    ranked.sort(key=lambda each: each[:2])
    new.sort(key=_youngest_first)
    held = {pod.uid: value for value, _, pod in ranked}
    return Roles(tuple(pod for _, _, pod in ranked), tuple(new), tuple(first), tuple(last), above, held)


def rank_new(replica_set: ReplicaSetPods, roles: Roles) -> Costs:
    """Return costs for the pods that have none.

    Others get another cost only if there is no integer left between two of them.

    Raises:
        NoRoomError: costs that somebody else wrote leave no room for ours.
    """
    if not roles.new:
        return {}
    pods = (*roles.new, *roles.ranked)
    layout = layout_of(replica_set, pods, roles.last)
    new = range(len(roles.new))
    ranked = range(len(roles.new), len(pods))
    order = insert(layout, ranked, new) if ranked else best_order(layout)
    return _costs(pods, order.pods, roles)


def rerank(replica_set: ReplicaSetPods, roles: Roles) -> Costs | None:
    """Return costs with which scale-downs violate less, or None if there are none.

    Pods that are not Ready are deleted before Ready ones, whatever their cost. So each such band is ordered with all
    pods that outlast it in place.

    Raises:
        NoRoomError: costs that somebody else wrote leave no room for ours.
    """
    order: list[Pod] = []
    helps = False
    everyone = (*roles.first, *roles.ranked, *roles.last)
    for band in sorted({_band(pod) for pod in roles.ranked}):
        ranked = [pod for pod in roles.ranked if _band(pod) == band]
        outlasting = [pod for pod in everyone if _band(pod) > band]
        outlasting += [pod for pod in roles.last if _band(pod) == band]
        layout = layout_of(replica_set, ranked, outlasting)
        now = violation(layout, range(len(ranked)))
        best = best_order(layout) if now else None
        if best is None or best.violation >= now:
            order += ranked
        else:
            order += [ranked[at] for at in best.pods]
            helps = True
    return _costs(order, range(len(order)), roles) if helps else None


def _band(pod: Pod) -> tuple[int, bool]:
    """Return what a ReplicaSet compares before costs: lower is deleted first (`ActivePodsWithRanks`)."""
    return _PHASES.get(pod.phase, 0), pod.ready


def _costs(pods: Sequence[Pod], order: Sequence[int], roles: Roles) -> Costs:
    held = {at: roles.held[pod.uid] for at, pod in enumerate(pods) if pod.uid in roles.held}
    return {pods[at].uid: cost for at, cost in assign_costs(order, held, above=roles.above).items()}


def _youngest_first(pod: Pod) -> tuple[float, str]:
    created = pod.creation_timestamp
    return 0.0 if created is None else -created.timestamp(), pod.name


def deletion_order(replica_set: ReplicaSetPods, now: datetime, cost_of: CostOf = cost_of) -> list[Pod]:
    """Return a ReplicaSet's pods in the order in which its controller deletes them (`ActivePodsWithRanks`).

    It is not known how long pods have been Ready and how often they restarted. Their age is used instead, so among pods
    of equal cost the order is only the most likely one. `without_ours` gives the order without our costs.
    """
    known = known_order(replica_set, cost_of)
    return sorted(replica_set.pods, key=lambda pod: (*known(pod), _age_class(pod, now), pod.uid))


def known_order(replica_set: ReplicaSetPods, cost_of: CostOf) -> Callable[[Pod], tuple[int, ...]]:
    """Return the sort key before age: of two pods that differ in it, the lower one is certainly deleted first."""
    on_node = Counter(pod.node_name for pod in (*replica_set.pods, *replica_set.siblings))

    def known(pod: Pod) -> tuple[int, ...]:
        cost = cost_of(pod)
        return (
            bool(pod.node_name),
            _PHASES.get(pod.phase, 0),
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
    fewest = ((fewest_evictions(group.levels), group.excess) for group in groups if group.violated)
    return max((int(evictions) if isfinite(evictions) else excess for evictions, excess in fewest), default=0)


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
    """Return what costs saved between two rests of a ReplicaSet; None if nothing was scaled down by them."""
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
