"""An order of deletion found step by step: each time the pod whose deletion violates least and levels most.

For one constraint, and for constraints whose domains lie within each other (zone, rack, hostname), this order is as
good as any at every number of pods left. Where domains cross it nearly always is; `search` looks at the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from respread.prevention.layout import OUTSIDE, Layout, Place, Tally, tallies_of

_LEVEL: Final = 1 << 20
"""More than any domain's pods, so that counts of hard and of soft constraints fit into one number side by side."""

_Score: TypeAlias = tuple[int, int]
"""What deleting a pod adds to the violation, then how full its domains are, negated: the least is best."""


class Order(NamedTuple):
    """An order of deletion and what it comes to."""

    pods: list[int]
    """The first to be deleted first."""
    violation: int
    """As `layout.violation` has it."""


def greedy_order(layout: Layout, preferred: Sequence[int] | None = None) -> Order:
    """Return an order of deletion, and what it violates.

    Args:
        layout: the pods and constraints.
        preferred: all pods of the layout; of those that may equally well be deleted the first of these is.
    """
    by_size = sorted(range(len(layout.constraints)), key=lambda at: len(layout.constraints[at].counts))
    constraints = tuple(layout.constraints[at] for at in by_size)
    places = tuple(tuple(place[at] for at in by_size) for place in layout.places)
    pods = range(len(places)) if preferred is None else preferred
    return _Deletion(Layout(constraints, places), pods).run()


class _Class:
    """Pods in the same domain of every constraint: which of them goes makes no difference."""

    __slots__ = ("finest", "pods", "regions")

    def __init__(self, place: Place, regions: _Regions) -> None:
        self.finest = place[-1]
        self.regions = regions
        self.pods: list[tuple[int, int]] = []
        """Preference and index of each, the most preferred last."""


class _Regions:
    """Classes that differ in the finest constraint only, by how many pods their domain there has.

    A step then compares one class per number of pods, not every host.
    """

    __slots__ = ("by_count", "coarse")

    def __init__(self, coarse: Place) -> None:
        self.coarse = coarse
        self.by_count: dict[int, list[tuple[int, int, _Class]]] = {}
        """For each count a heap of preference, a number that keeps classes apart, and class. What has moved on since
        stays until it comes up."""


class _Deletion:
    """One run from all pods to none."""

    __slots__ = ("_classes_of", "_layout", "_regions", "_serial", "_tallies")

    def __init__(self, layout: Layout, preferred: Sequence[int]) -> None:
        self._layout = layout
        self._tallies = tallies_of(layout)
        self._regions: list[_Regions] = []
        self._classes_of: defaultdict[int, list[_Class]] = defaultdict(list)
        """The classes in each domain of the finest constraint."""
        self._serial = 0
        classes: dict[Place, _Class] = {}
        regions: dict[Place, _Regions] = {}
        for preference in range(len(preferred) - 1, -1, -1):
            pod = preferred[preference]
            place = layout.places[pod]
            if (found := classes.get(place)) is None:
                coarse = place[:-1]
                if (region := regions.get(coarse)) is None:
                    region = regions[coarse] = _Regions(coarse)
                    self._regions.append(region)
                found = classes[place] = _Class(place, region)
                self._classes_of[found.finest].append(found)
            found.pods.append((preference, pod))
        for each in classes.values():
            self._enter(each)

    def run(self) -> Order:
        order: list[int] = []
        total = 0
        hard = [
            (tally, constraint.weight)
            for tally, constraint in zip(self._tallies, self._layout.constraints, strict=True)
        ]
        for _ in self._layout.places:
            chosen = self._choose()
            _, pod = chosen.pods.pop()
            order.append(pod)
            self._delete(self._layout.places[pod], chosen)
            for tally, weight in hard:
                if tally.excess:
                    total += tally.excess * weight
        return Order(order, total)

    def _choose(self) -> _Class:
        best: _Class | None = None
        best_score: _Score = (0, 0)
        best_preference = 0
        *coarse_tallies, finest = self._tallies
        *coarse_constraints, finest_constraint = self._layout.constraints
        finest_weight, finest_level = finest_constraint.weight, level(hard=finest_constraint.hard)
        for region in self._regions:
            effect = fullness = 0
            for tally, domain, constraint in zip(coarse_tallies, region.coarse, coarse_constraints, strict=True):
                if domain == OUTSIDE:
                    continue
                count = tally.counts[domain]
                effect += tally.deletion_effect(count) * constraint.weight
                fullness += count * level(hard=constraint.hard)
            for count, heap in list(region.by_count.items()):
                top = _top(heap, count, finest)
                if top is None:
                    del region.by_count[count]
                    continue
                if count == OUTSIDE:
                    score = effect, -fullness
                else:
                    score = (
                        effect + finest.deletion_effect(count) * finest_weight,
                        -fullness - count * finest_level,
                    )
                if best is None or score < best_score or (score == best_score and top[0] < best_preference):
                    best, best_score, best_preference = top[2], score, top[0]
        assert best is not None  # noqa: S101 - there are as many steps as pods
        return best

    def _delete(self, place: Place, chosen: _Class) -> None:
        for tally, domain in zip(self._tallies, place, strict=True):
            if domain != OUTSIDE:
                tally.delete(domain)
        if chosen.finest == OUTSIDE:
            self._enter(chosen)
            return
        for each in self._classes_of[chosen.finest]:
            self._enter(each)

    def _enter(self, each: _Class) -> None:
        """Put a class where its finest domain's count says."""
        if not each.pods:
            return
        count = OUTSIDE if each.finest == OUTSIDE else self._tallies[-1].counts[each.finest]
        self._serial += 1
        heappush(each.regions.by_count.setdefault(count, []), (each.pods[-1][0], self._serial, each))


def _top(heap: list[tuple[int, int, _Class]], count: int, finest: Tally) -> tuple[int, int, _Class] | None:
    """Return the most preferred class of a heap that still belongs there."""
    while heap:
        preference, _, each = heap[0]
        current = OUTSIDE if each.finest == OUTSIDE else finest.counts[each.finest]
        if current == count and each.pods and each.pods[-1][0] == preference:
            return heap[0]
        heappop(heap)
    return None


def level(*, hard: bool) -> int:
    """Return what a pod that is already in a domain weighs against deleting or adding another there."""
    return _LEVEL if hard else 1
