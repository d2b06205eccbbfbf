"""Ranks new pods among pods that keep their ranks.

The order is built from its end: the pod deleted last first, then the one before it. While the next ranked pod is as
good as any, it is taken. So new pods come in as late as possible, and are deleted as early as possible: the newest pod
is deleted first, as without costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from respread.prevention.candidates import Candidates, Score
from respread.prevention.greedy import Order
from respread.prevention.layout import OUTSIDE, DomainTally, Layout
from respread.prevention.search import LARGEST, broad_order, least_violation


def insert(layout: Layout, ranked: Sequence[int], new: Sequence[int]) -> Order:
    """Return an order of deletion in which the ranked pods keep their order, and its violation.

    Args:
        layout: the pods and constraints.
        ranked: the ranked pods, the first one is deleted first.
        new: all others, in their order of deletion if it makes no difference.
    """
    found = _merge(layout, ranked, new)
    if not found.violation or found.violation == least_violation(layout):
        return found
    if len(layout.places) * len({layout.places[pod] for pod in new}) > LARGEST:
        return found
    # Good single steps may leave the ranked pods in a bad place at the end.
    stacks: dict[object, list[int]] = {}
    for pod in reversed(new):
        stacks.setdefault(layout.places[pod], []).append(pod)
    stacks["ranked"] = list(reversed(ranked))
    broad = broad_order(layout, list(stacks.values()))
    return broad if broad.violation < found.violation else found


def _merge(layout: Layout, ranked: Sequence[int], new: Sequence[int]) -> Order:
    """Build an order from its end, each time with the best of the next ranked pod and all new ones."""
    tallies = [DomainTally(constraint) for constraint in layout.constraints]
    weighted = [(tally, constraint.weight) for tally, constraint in zip(tallies, layout.constraints, strict=True)]
    coming = Candidates(layout, tallies, reversed(new))
    staying = list(ranked)
    backwards: list[int] = []
    total = 0
    for _ in layout.places:
        for tally, weight in weighted:
            total += tally.excess * weight
        found = coming.best(DomainTally.addition_effect, fullness=1)
        if found is None or (staying and _score(coming, layout, staying[-1]) <= found.score):
            pod = staying.pop()
        else:
            pod = found.pod
            coming.take(layout.places[pod])
        backwards.append(pod)
        for tally, domain in zip(tallies, layout.places[pod], strict=True):
            if domain != OUTSIDE:
                tally.add(domain)
        coming.moved(layout.places[pod])
    return Order(backwards[::-1], total)


def _score(coming: Candidates, layout: Layout, pod: int) -> Score:
    return coming.score(layout.places[pod], DomainTally.addition_effect, fullness=1)
