"""The exact result for tiny clusters, from an exhaustive search of safe steps with all likely landings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

from tests.properties.planning.scheduler_model import LARGEST_STEP, Position, SchedulerModel


class Truth(NamedTuple):
    """The best possible result. The better one is less."""

    violated: int
    """The fewest of the selected groups that stay violated."""
    excess: int
    """The least total excess of the selected groups that leaves as few violated."""
    evictions: int
    """The fewest evictions that lead there."""


class TooLargeError(Exception):
    """There are too many positions for an exhaustive search."""


def truth_of(model: SchedulerModel, most_positions: int = 3_000, largest: int = LARGEST_STEP) -> Truth:
    """Return the best result of any sequence of safe steps.

    Args:
        model: the rules of a cluster.
        most_positions: how many positions are looked at.
        largest: the most pods of a step.

    Raises:
        TooLargeError: there are more positions than `most_positions`.
    """
    single = _search(model, 1, most_positions)
    if largest == 1 or (single.excess == 0 and single.evictions <= fewest_of_any_group(model)):
        return single
    return _search(model, largest, most_positions)


def fewest_of_any_group(model: SchedulerModel) -> int:
    """Return the minimum evictions of the selected group that needs most, found by trying all final placements."""
    start = model.start()
    fewest = 0
    for at in model.to_restore(start):
        group = model.groups[at]
        counts = model.counts(group, start)
        elsewhere = sum(
            rows[shape][host]
            for rows in (start.movable, start.staying)
            for shape, counted in enumerate(group.counts)
            for host, domain in enumerate(group.domain_of)
            if counted and domain is None
        )
        if elsewhere or any(model.may_leave(group, shape) for shape, counted in enumerate(group.counts) if counted):
            continue
        fewest = max(fewest, _fewest(tuple(sorted(counts.values())), group.max_skew, group.at_least_zero))
    return fewest


@cache
def _fewest(counts: tuple[int, ...], max_skew: int, at_least_zero: bool) -> int:
    best = sum(counts) + 1
    for end in _ends(len(counts), sum(counts)):
        low = 0 if at_least_zero else min(end)
        if max(end) - low <= max_skew:
            best = min(best, sum(max(0, before - after) for before, after in zip(counts, end, strict=True)))
    return best


@cache
def _ends(domains: int, pods: int) -> tuple[tuple[int, ...], ...]:
    def split(domains: int, pods: int) -> Iterator[tuple[int, ...]]:
        if domains == 1:
            yield (pods,)
            return
        for first in range(pods + 1):
            for rest in split(domains - 1, pods - first):
                yield (first, *rest)

    return tuple(split(domains, pods))


def _search(model: SchedulerModel, largest: int, most_positions: int) -> Truth:
    start = model.start()
    to_restore = model.to_restore(start)
    best = _result(model, to_restore, start, 0)
    reached = {start: 0}
    queue: list[tuple[int, int, Position]] = [(0, 0, start)]
    while queue and best.excess:
        evictions, _, position = heappop(queue)
        if reached[position] < evictions:
            continue
        best = min(best, _result(model, to_restore, position, evictions))
        for step, outcomes in model.safe_steps(position, largest):
            for after in outcomes:
                if reached.get(after, evictions + len(step) + 1) > evictions + len(step):
                    reached[after] = evictions + len(step)
                    heappush(queue, (evictions + len(step), len(reached), after))
        if len(reached) > most_positions:
            raise TooLargeError
    return best


def _result(model: SchedulerModel, to_restore: Sequence[int], position: Position, evictions: int) -> Truth:
    excesses = [model.excess(model.groups[at], position) for at in to_restore]
    return Truth(sum(excess > 0 for excess in excesses), sum(excesses), evictions)
