"""The best order of deletion: the greedy one if it is proven optimal, else the best of several followed at once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple

from respread.prevention.greedy import Order, greedy_order
from respread.prevention.layout import OUTSIDE, Constraint, DomainTally, Layout, Place, tallies_of

BREADTH: Final = 8
"""How many partial orders are followed at once. A breadth of 4 reached the optimum in each of 4,500 small layouts with
crossing domains."""
LARGEST: Final = 2_500
"""The product of pods and distinct places up to which the search runs. Above, it would take tens of milliseconds."""


def best_order(layout: Layout) -> Order:
    """Return the order of deletion with the least total violation over all numbers of remaining pods."""
    greedy = greedy_order(layout)
    if not greedy.violation or greedy.violation == least_violation(layout):
        return greedy
    if len(layout.places) * len(set(layout.places)) > LARGEST:
        return greedy
    stacks: dict[Place, list[int]] = {}
    for pod in reversed(range(len(layout.places))):
        stacks.setdefault(layout.places[pod], []).append(pod)
    broad = broad_order(layout, list(stacks.values())[::-1])
    return broad if broad.violation < greedy.violation else greedy


def least_violation(layout: Layout) -> int:
    """Return a lower bound for the violation of any order: the sum of the least violations of each constraint."""
    total = 0
    for at, constraint in enumerate(layout.constraints):
        total += constraint.weight * sum(_least_excesses(constraint, [place[at] for place in layout.places]))
    return total


def _least_excesses(constraint: Constraint, domains: list[int]) -> list[int]:
    """Return the least excess of one constraint alone for each number of remaining pods, from all but one to none.

    With a given number of pods in its domains, the most even distribution has the least excess, and deleting from the
    fullest leads there. How many of the remaining pods are in none of its domains can be chosen, within what exists.
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
        stacks: all pods of the layout. The last one of each stack is deleted first. Earlier stacks have priority if it
            makes no difference.
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
    """A pod, and the pods deleted before it."""

    pod: int
    before: _Deleted | None


class _Partial(NamedTuple):
    """A partial order: some pods, deleted in some order."""

    violation: int
    fullness: int
    """The sum of the squares of all counts: of two with the same violation, the more even one is more promising."""
    left: tuple[int, ...]
    """The remaining pods of each stack."""
    tallies: tuple[DomainTally, ...]
    last: _Deleted | None


def _further(layout: Layout, stacks: Sequence[Sequence[int]], front: list[_Partial]) -> list[_Partial]:
    """Return the most promising results of one more deletion in each."""
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
    """Return the tally with one pod less in a domain."""
    if domain == OUTSIDE:
        return tally
    after = copy(tally)
    after.delete(domain)
    return after
