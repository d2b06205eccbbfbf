"""A greedy order of deletion: at each step, the pod whose deletion violates least and levels most.

For one constraint, and for constraints whose domains are nested (zone, rack, hostname), this order is optimal at every
number of remaining pods. If domains cross, it nearly always is; `search` examines the rest.
"""

from __future__ import annotations

from typing import NamedTuple

from respread.prevention.candidates import Candidates
from respread.prevention.layout import OUTSIDE, DomainTally, Layout, tallies_of


class Order(NamedTuple):
    """An order of deletion and its violation."""

    pods: list[int]
    """The first to be deleted first."""
    violation: int
    """As returned by `layout.violation`."""


def greedy_order(layout: Layout) -> Order:
    """Return an order of deletion and its violation."""
    tallies = tallies_of(layout)
    weighted = [(tally, constraint.weight) for tally, constraint in zip(tallies, layout.constraints, strict=True)]
    candidates = Candidates(layout, tallies, range(len(layout.places)))
    order: list[int] = []
    total = 0
    while (found := candidates.best(DomainTally.deletion_effect, fullness=-1)) is not None:
        place = layout.places[found.pod]
        order.append(found.pod)
        candidates.take(place)
        for tally, domain in zip(tallies, place, strict=True):
            if domain != OUTSIDE:
                tally.delete(domain)
        candidates.moved(place)
        for tally, weight in weighted:
            if tally.excess:
                total += tally.excess * weight
    return Order(order, total)
