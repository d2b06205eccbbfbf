"""New pods find their rank among pods that keep theirs.

An order is built from its end: the pod deleted last first, then the one before it. As long as the next of the ranked
pods is as good as any it is taken, so that new pods come in as late as possible, and thus are deleted as early as they
can be: who came last goes first, as without costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from respread.prevention.greedy import Order, level
from respread.prevention.layout import OUTSIDE, Layout, Tally
from respread.prevention.search import LARGEST, broad_order, least_violation


def insert(layout: Layout, ranked: Sequence[int], new: Sequence[int]) -> Order:
    """Return an order of deletion in which the ranked pods keep theirs, and what it violates.

    Args:
        layout: the pods and constraints.
        ranked: the pods that have a rank, the first to be deleted first.
        new: all others, the first to be deleted first where it makes no difference.
    """
    found = _Insertion(layout, ranked, new).run()
    if not found.violation or found.violation == least_violation(layout):
        return found
    if len(layout.places) * len({layout.places[pod] for pod in new}) > LARGEST:
        return found
    # What is good at each step may leave the ranked pods in a bad place at the end.
    stacks: dict[object, list[int]] = {}
    for pod in reversed(new):
        stacks.setdefault(layout.places[pod], []).append(pod)
    stacks["ranked"] = list(reversed(ranked))
    broad = broad_order(layout, list(stacks.values()))
    return broad if broad.violation < found.violation else found


class _Insertion:
    """One run from no pods to all."""

    __slots__ = ("_coming", "_layout", "_staying", "_tallies")

    def __init__(self, layout: Layout, ranked: Sequence[int], new: Sequence[int]) -> None:
        self._layout = layout
        self._staying = list(ranked)
        self._coming = list(new)
        self._tallies = [
            (Tally(constraint), constraint.weight, level(hard=constraint.hard)) for constraint in layout.constraints
        ]

    def run(self) -> Order:
        backwards: list[int] = []
        total = 0
        for _ in self._layout.places:
            for tally, weight, _level in self._tallies:
                total += tally.excess * weight
            pod = self._next()
            backwards.append(pod)
            for (tally, _weight, _level), domain in zip(self._tallies, self._layout.places[pod], strict=True):
                if domain != OUTSIDE:
                    tally.add(domain)
        return Order(backwards[::-1], total)

    def _next(self) -> int:
        """Take the pod that is deleted right before those taken already."""
        staying, coming = self._staying, self._coming
        if not coming:
            return staying.pop()
        at = len(coming) - 1
        best = self._score(coming[at])
        for other in range(at - 1, -1, -1):
            if (score := self._score(coming[other])) < best:
                at, best = other, score
        if staying and self._score(staying[-1]) <= best:
            return staying.pop()
        return coming.pop(at)

    def _score(self, pod: int) -> tuple[int, int]:
        """Return what is best at its least: what the pod adds to the violation, then how full its domains are."""
        effect = fullness = 0
        for (tally, weight, on_level), domain in zip(self._tallies, self._layout.places[pod], strict=True):
            if domain != OUTSIDE:
                count = tally.counts[domain]
                effect += tally.addition_effect(count) * weight
                fullness += count * on_level
        return effect, fullness
