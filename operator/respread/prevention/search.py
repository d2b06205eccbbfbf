"""The best order of deletion: the greedy one where that provably is, else the best of several followed at once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple

from respread.prevention.greedy import Order, greedy_order
from respread.prevention.layout import OUTSIDE, Constraint, DomainTally, Layout, Place, tallies_of

BREADTH: Final = 8
"""How many partial orders are followed at once. Of 4,500 small layouts with domains that cross, 4 reached the optimum
in every one."""
LARGEST: Final = 2_500
"""The product of pods and distinct places up to which it is done: above, it would take tens of milliseconds."""


def best_order(layout: Layout, preferred: Sequence[int] | None = None) -> Order:
    """Return the order of deletion that violates least in total over all numbers of pods left.

    Args:
        layout: the pods and constraints.
        preferred: all pods of the layout; of those that may equally well be deleted the first of these is.
    """
    greedy = greedy_order(layout, preferred)
    if not greedy.violation or greedy.violation == least_violation(layout):
        return greedy
    if len(layout.places) * len(set(layout.places)) > LARGEST:
        return greedy
    stacks: dict[Place, list[int]] = {}
    for pod in range(len(layout.places) - 1, -1, -1) if preferred is None else reversed(preferred):
        stacks.setdefault(layout.places[pod], []).append(pod)
    broad = broad_order(layout, list(stacks.values())[::-1])
    return broad if broad.violation < greedy.violation else greedy


def least_violation(layout: Layout) -> int:
    """Return a bound: no order violates less, since none violates less of any one constraint at any number of pods."""
    total = 0
    for at, constraint in enumerate(layout.constraints):
        total += constraint.weight * sum(_least_excesses(constraint, [place[at] for place in layout.places]))
    return total


def _least_excesses(constraint: Constraint, domains: list[int]) -> list[int]:
    """Return the least excess of one constraint alone for each number of pods left, from all but one to none.

    With so many pods left in its domains, the levellest way to have them is the least: deleting from the fullest leads
    there. How many of those left are in none of its domains is free within what there is.
    """
    inside = Counter(domain for domain in domains if domain != OUTSIDE)
    outside = len(domains) - inside.total()
    tally = DomainTally(constraint, domains)
    fullest = [(-tally.counts[domain], domain) for domain in inside]
    heapq.heapify(fullest)
    by_number_inside = [tally.excess]
    while fullest:
        _, domain = heapq.heappop(fullest)
        tally.delete(domain)
        by_number_inside.append(tally.excess)
        inside[domain] -= 1
        if inside[domain]:
            heapq.heappush(fullest, (-tally.counts[domain], domain))
    by_number_inside.reverse()
    return [min(by_number_inside[max(0, left - outside) : left + 1]) for left in range(len(domains) - 1, -1, -1)]


def broad_order(layout: Layout, stacks: Sequence[Sequence[int]]) -> Order:
    """Return the best of several orders that are followed side by side.

    Args:
        layout: the pods and constraints.
        stacks: all pods of the layout; of each stack the last is deleted first. Where it makes no difference those of
            earlier stacks are.
    """
    tallies = tuple(tallies_of(layout))
    fullness = sum(count * count for tally in tallies for count in tally.counts)
    front = [_Partial(0, fullness, tuple(len(stack) for stack in stacks), tallies, None)]
    for _ in layout.places:
        front = _further(layout, stacks, front)
    order: list[int] = []
    last = front[0].last
    while last is not None:
        order.append(last.pod)
        last = last.before
    return Order(order[::-1], front[0].violation)


class _Deleted(NamedTuple):
    """A pod, and what was deleted before it."""

    pod: int
    before: _Deleted | None


class _Partial(NamedTuple):
    """Some pods deleted in some order."""

    violation: int
    fullness: int
    """Squares of all counts, summed: of two that violate the same the levelled one promises more."""
    left: tuple[int, ...]
    """Pods of each stack."""
    tallies: tuple[DomainTally, ...]
    last: _Deleted | None


def _further(layout: Layout, stacks: Sequence[Sequence[int]], front: list[_Partial]) -> list[_Partial]:
    """Return the most promising of what one more deletion makes of each."""
    found: dict[tuple[int, ...], tuple[int, int, _Partial, int]] = {}
    for partial in front:
        for at, left in enumerate(partial.left):
            if not left:
                continue
            pod = stacks[at][left - 1]
            violation, fullness = partial.violation, partial.fullness
            for tally, domain, constraint in zip(partial.tallies, layout.places[pod], layout.constraints, strict=True):
                excess = tally.excess
                if domain != OUTSIDE:
                    count = tally.counts[domain]
                    excess += tally.deletion_effect(count)
                    fullness -= 2 * count - 1
                violation += excess * constraint.weight
            remaining = (*partial.left[:at], left - 1, *partial.left[at + 1 :])
            known = found.get(remaining)
            if known is None or (violation, fullness) < known[:2]:
                found[remaining] = violation, fullness, partial, pod
    best = heapq.nsmallest(BREADTH, found.items(), key=lambda each: each[1][:2])
    return [
        _Partial(
            violation,
            fullness,
            remaining,
            tuple(_without(tally, domain) for tally, domain in zip(partial.tallies, layout.places[pod], strict=True)),
            _Deleted(pod, partial.last),
        )
        for remaining, (violation, fullness, partial, pod) in best
    ]


def _without(tally: DomainTally, domain: int) -> DomainTally:
    """Return the tally with a pod less in a domain."""
    if domain == OUTSIDE:
        return tally
    after = copy(tally)
    after.delete(domain)
    return after
