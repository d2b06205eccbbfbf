"""From an order of deletion to the integers that say it: pod deletion costs, as few of them changed as can be.

A ReplicaSet deletes the pods of lower cost first. Costs are spaced, so that a pod can be ranked between two others
without touching them. All of them are negative: a pod without a cost counts as 0 and so is deleted after those that
have one, until it has its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

LEAST_COST: Final = -(1 << 31)
"""Kubernetes takes 32-bit integers."""
STEP: Final = 1000
"""From one rank to the next where nothing is in the way: room for some ten pods, one after another, between any two."""


class NoRoomError(Exception):
    """There are not as many integers between the given bounds as pods to be ranked."""


def assign_costs(
    deletion_order: Sequence[int], held: Mapping[int, int], *, above: int = LEAST_COST - 1, below: int = 0
) -> dict[int, int]:
    """Return the costs that have to be set so that all costs rise along an order of deletion.

    Args:
        deletion_order: pods, the first to be deleted first.
        held: the costs that pods have; as many as possible stay.
        above: every cost is higher than this.
        below: every cost is lower than this.

    Raises:
        NoRoomError: if there are too few integers between.
    """
    if below - above - 1 < len(deletion_order):
        raise NoRoomError(f"{len(deletion_order)} pods can't have different costs between {above} and {below}")
    kept = _longest_rising(deletion_order, held, above, below)
    while (costs := _fill(deletion_order, held, kept, above, below)) is None:
        pass
    return {pod: cost for pod, cost in costs.items() if held.get(pod) != cost}


def _longest_rising(order: Sequence[int], held: Mapping[int, int], above: int, below: int) -> list[int]:
    """Return positions in the order whose costs rise, as many as there can be."""
    least_ends: list[int] = []
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for position, pod in enumerate(order):
        cost = held.get(pod)
        if cost is None or not above < cost < below:
            continue
        length = bisect_left(least_ends, cost)
        before[position] = ends[length - 1] if length else None
        if length == len(ends):
            least_ends.append(cost)
            ends.append(position)
        else:
            least_ends[length] = cost
            ends[length] = position
    rising: list[int] = []
    position_: int | None = ends[-1] if ends else None
    while position_ is not None:
        rising.append(position_)
        position_ = before[position_]
    return rising[::-1]


def _fill(
    order: Sequence[int], held: Mapping[int, int], kept: list[int], above: int, below: int
) -> dict[int, int] | None:
    """Return all costs, those between kept ones spaced evenly; or None, having given up one that left no room."""
    costs: dict[int, int] = {}
    low, start = above, 0
    for at, position in enumerate([*kept, len(order)]):
        high = held[order[position]] if position < len(order) else below
        run = order[start:position]
        if high - low - 1 < len(run):
            _give_up(order, held, kept, at, above, below)
            return None
        costs.update(zip(run, _spaced(low, high, len(run), first=not at), strict=True))
        if position < len(order):
            costs[order[position]] = high
        low, start = high, position + 1
    return costs


def _spaced(low: int, high: int, number: int, *, first: bool) -> list[int]:
    """Return so many integers between two others; those of the first run begin a whole step below what follows."""
    if first and high - low > STEP * number:
        return [high - STEP * (number - at) for at in range(number)]
    return [low + (high - low) * (at + 1) // (number + 1) for at in range(number)]


def _give_up(order: Sequence[int], held: Mapping[int, int], kept: list[int], at: int, above: int, below: int) -> None:
    """Keep one cost less beside a run that is too long: the one that makes more room."""
    left = at - 1
    if left < 0:
        del kept[at]
        return
    if at == len(kept):
        del kept[left]
        return
    beyond_left = held[order[kept[left - 1]]] if left else above
    beyond_right = held[order[kept[at + 1]]] if at + 1 < len(kept) else below
    room_left = held[order[kept[left]]] - beyond_left
    room_right = beyond_right - held[order[kept[at]]]
    del kept[left if room_left >= room_right else at]
