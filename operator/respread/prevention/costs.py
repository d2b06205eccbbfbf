"""Converts an order of deletion to pod deletion costs, and changes as few costs as possible.

A ReplicaSet deletes the pods of lower cost first. Costs have gaps, so that a pod can be ranked between two others
without changing them. All of them are negative: a pod without a cost counts as 0, so it is deleted after those that
have one, until it has its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

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

    Args:
        deletion_order: pods, the first one is deleted first.
        held: the current costs of pods. As many as possible stay.
        above: every cost is higher than this, and lower than 0.

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
