"""Finds the best pod to delete, or to bring back, without examining every pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from respread.prevention.layout import OUTSIDE, DomainTally, Layout, Place

_LEVEL: Final = 1 << 20
"""More than the pods of any domain, so that the counts of hard and of soft constraints fit into one number."""

Score: TypeAlias = tuple[int, int]
"""How much a step adds to the violation, then how it levels the counts. The lowest is best."""
Effect: TypeAlias = Callable[[DomainTally, int], int]
"""How much a step adds to the excess of a constraint, in a domain with this many pods."""


class Found(NamedTuple):
    """The best pod."""

    score: Score
    preference: int
    pod: int


class _Weighted(NamedTuple):
    """A constraint with its weight."""

    tally: DomainTally
    weight: int
    """The weight of a pod too many."""
    level: int
    """The weight of a pod that is in a domain, compared with deleting or adding another one there."""


class _Class:
    """Pods in the same domain of every constraint. They are equivalent."""

    __slots__ = ("finest", "pods", "region")

    def __init__(self, finest: int, region: _Region) -> None:
        self.finest = finest
        self.region = region
        self.pods: list[tuple[int, int]] = []
        """Preference and index of each, the most preferred last."""


class _Region:
    """Classes that differ only in the finest constraint, by the number of pods in their domain there.

    A step then compares one class per number of pods, and not every host.
    """

    __slots__ = ("by_count", "coarse")

    def __init__(self, coarse: Place) -> None:
        self.coarse = coarse
        """The place of any of them: all except the finest domain is the same."""
        self.by_count: dict[int, list[tuple[int, int, _Class]]] = {}
        """For each count, a heap of preference, a number that makes entries distinct, and class. Outdated entries stay
        until they reach the top."""


class Candidates:
    """Pods of a layout, which are taken one after another."""

    __slots__ = ("_classes", "_classes_in", "_coarse", "_finest_at", "_regions", "_serial", "_weighted")

    def __init__(self, layout: Layout, tallies: Sequence[DomainTally], preferred: Iterable[int]) -> None:
        """Start with some pods.

        Args:
            layout: where they are. It has at least one constraint.
            tallies: the current tallies of its constraints. They are only read.
            preferred: the pods. Among equally good pods, the first of these is taken.
        """
        sizes = [len(constraint.counts) for constraint in layout.constraints]
        self._finest_at = at = sizes.index(max(sizes))
        self._weighted = [
            _Weighted(tally, constraint.weight, _LEVEL if constraint.hard else 1)
            for tally, constraint in zip(tallies, layout.constraints, strict=True)
        ]
        self._coarse = [(other, each) for other, each in enumerate(self._weighted) if other != at]
        self._serial = 0
        self._regions: list[_Region] = []
        self._classes: dict[Place, _Class] = {}
        self._classes_in: defaultdict[int, list[_Class]] = defaultdict(list)
        """The classes in each domain of the finest constraint."""
        regions: dict[Place, _Region] = {}
        for preference, pod in reversed(list(enumerate(preferred))):
            place = layout.places[pod]
            if (found := self._classes.get(place)) is None:
                coarse = (*place[:at], *place[at + 1 :])
                if (region := regions.get(coarse)) is None:
                    region = regions[coarse] = _Region(place)
                    self._regions.append(region)
                found = self._classes[place] = _Class(place[at], region)
                self._classes_in[found.finest].append(found)
            found.pods.append((preference, pod))
        for each in self._classes.values():
            self._enter(each)

    def best(self, effect: Effect, fullness: int) -> Found | None:
        """Return the best remaining pod, or None.

        Args:
            effect: the effect of a step with it on a constraint.
            fullness: 1 to prefer empty domains, -1 to prefer full ones.
        """
        best: Found | None = None
        finest, finest_weight, finest_level = self._weighted[self._finest_at]
        for region in self._regions:
            added = filled = 0
            for at, (tally, weight, on_level) in self._coarse:
                domain = region.coarse[at]
                if domain != OUTSIDE:
                    count = tally.counts[domain]
                    added += effect(tally, count) * weight
                    filled += count * on_level
            for count, heap in list(region.by_count.items()):
                top = _top(heap, count, finest)
                if top is None:
                    del region.by_count[count]
                    continue
                score = added, fullness * filled
                if count != OUTSIDE:
                    score = (
                        added + effect(finest, count) * finest_weight,
                        fullness * (filled + count * finest_level),
                    )
                if best is None or (score, top[0]) < best[:2]:
                    best = Found(score, *top[2].pods[-1])
        return best

    def score(self, place: Place, effect: Effect, fullness: int) -> Score:
        """Return the score of a pod in a place, whether or not it is among these."""
        added = filled = 0
        for (tally, weight, on_level), domain in zip(self._weighted, place, strict=True):
            if domain != OUTSIDE:
                count = tally.counts[domain]
                added += effect(tally, count) * weight
                filled += count * on_level
        return added, fullness * filled

    def take(self, place: Place) -> None:
        """Take the most preferred pod of a place. Call `moved` after the tallies have changed."""
        self._classes[place].pods.pop()

    def moved(self, place: Place) -> None:
        """Process that the domains of a place have changed in the tallies."""
        finest = place[self._finest_at]
        if finest == OUTSIDE:
            if (found := self._classes.get(place)) is not None:
                self._enter(found)
            return
        for each in self._classes_in.get(finest, ()):
            self._enter(each)

    def _enter(self, each: _Class) -> None:
        """Put a class where the count of its finest domain belongs."""
        if not each.pods:
            return
        count = OUTSIDE if each.finest == OUTSIDE else self._weighted[self._finest_at].tally.counts[each.finest]
        self._serial += 1
        heappush(each.region.by_count.setdefault(count, []), (each.pods[-1][0], self._serial, each))


def _top(heap: list[tuple[int, int, _Class]], count: int, finest: DomainTally) -> tuple[int, int, _Class] | None:
    """Return the most preferred class of a heap that still belongs there."""
    while heap:
        preference, _, each = heap[0]
        current = OUTSIDE if each.finest == OUTSIDE else finest.counts[each.finest]
        if current == count and each.pods and each.pods[-1][0] == preference:
            return heap[0]
        heappop(heap)
    return None
