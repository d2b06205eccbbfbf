"""The best order of deletion: the greedy one if it is proven optimal, else the best of several followed at once.

The greedy order deletes at each step the pod whose deletion violates least and levels most. One outside of all domains
counts there as one above the limit: a pod of a less full domain may have to be replaced by an eviction. For one or more
constraints whose domains are nested (zone, rack, hostname), it is optimal at every number of remaining pods. If domains
cross, it nearly always is. `Candidates` finds that pod, or the best one to bring back, without examining every pod.

New pods are ranked among pods that keep their ranks (`insert`). The order is built from its end: the pod deleted last
first, then the one before it. While the next ranked pod is as good as any, it is taken. So new pods come in as late as
possible, and are deleted as early as possible: the newest pod is deleted first, as without costs.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import msgspec

from respread.prevention.replica_set import OUTSIDE, Constraint, DomainTally, Layout, Place, tallies_of, tally_of

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


class _Class(msgspec.Struct, eq=False):
    """Pods in the same domain of every constraint. They are equivalent."""

    finest: int
    region: _Region
    pods: list[tuple[int, int]] = []
    """Preference and index of each, the most preferred last."""


class _Region(msgspec.Struct, eq=False):
    """Classes that differ only in the finest constraint, by the number of pods in their domain there.

    A step then compares one class per number of pods, and not every host.
    """

    coarse: Place
    """Their domains in the other constraints."""
    by_count: dict[int, list[tuple[int, int, _Class]]] = {}
    """For each count, a heap of preference, a number that makes entries distinct, and class. Outdated entries stay
    until they reach the top."""


class Candidates:
    """Pods of a layout, which are taken one after another."""

    __slots__ = ("_classes", "_classes_in", "_coarse", "_finest_at", "_regions", "_serial", "_weighted")

    def __init__(self, layout: Layout, tallies: Sequence[DomainTally], preferred: Iterable[int]) -> None:
        """Start with some pods.

        Among equally good ones, the first is taken. The layout has at least one constraint, whose tallies are only
        read.
        """
        sizes = [len(constraint.counts) for constraint in layout.constraints]
        self._finest_at = at = sizes.index(max(sizes))
        self._weighted = [
            _Weighted(tally, constraint.weight, _LEVEL if constraint.hard else 1)
            for tally, constraint in zip(tallies, layout.constraints, strict=True)
        ]
        self._coarse = [*self._weighted[:at], *self._weighted[at + 1 :]]
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
                    region = regions[coarse] = _Region(coarse)
                    self._regions.append(region)
                found = self._classes[place] = _Class(place[at], region)
                self._classes_in[found.finest].append(found)
            found.pods.append((preference, pod))
        for each in self._classes.values():
            self._enter(each)

    def best(self, effect: Effect, fullness: int) -> Found | None:
        """Return the best remaining pod, or None.

        The effect is that of a step with it on a constraint. Fullness is 1 to prefer empty domains, and -1 to prefer
        full ones.
        """
        best: Found | None = None
        finest, finest_weight, finest_level = self._weighted[self._finest_at]
        for region in self._regions:
            added, filled = _sums(self._coarse, region.coarse, effect)
            for count, heap in list(region.by_count.items()):
                top = _top(heap, count, finest)
                if top is None:
                    del region.by_count[count]
                    continue
                score = added, fullness * (filled + (finest.limit + 1) * finest_level)
                if count != OUTSIDE:
                    score = (added + effect(finest, count) * finest_weight, fullness * (filled + count * finest_level))
                if best is None or (score, top[0]) < best[:2]:
                    best = Found(score, *top[2].pods[-1])
        return best

    def score(self, place: Place, effect: Effect, fullness: int) -> Score:
        """Return the score of a pod in a place, whether or not it is among these."""
        added, filled = _sums(self._weighted, place, effect)
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


def _sums(constraints: Iterable[_Weighted], place: Place, effect: Effect) -> tuple[int, int]:
    """Return what a step adds to the violation of some constraints, and how full the domains of its pod are."""
    added = filled = 0
    for (tally, weight, on_level), domain in zip(constraints, place, strict=True):
        count = tally.limit + 1
        if domain != OUTSIDE:
            count = tally.counts[domain]
            added += effect(tally, count) * weight
        filled += count * on_level
    return added, filled


def _top(heap: list[tuple[int, int, _Class]], count: int, finest: DomainTally) -> tuple[int, int, _Class] | None:
    """Return the most preferred class of a heap that still belongs there."""
    while heap:
        preference, _, each = heap[0]
        current = OUTSIDE if each.finest == OUTSIDE else finest.counts[each.finest]
        if current == count and each.pods and each.pods[-1][0] == preference:
            return heap[0]
        heappop(heap)
    return None


class DeletionOrder(NamedTuple):
    """An order of deletion and its violation."""

    pods: list[int]
    """The first to be deleted first."""
    violation: int
    """As returned by `violation`."""


def greedy_order(layout: Layout) -> DeletionOrder:
    """Return an order of deletion and its violation."""
    tallies = tallies_of(layout)
    weighted = [(tally, constraint.weight) for tally, constraint in zip(tallies, layout.constraints, strict=True)]
    candidates = Candidates(layout, tallies, range(len(layout.places)))
    order: list[int] = []
    total = 0
    while (found := candidates.best(DomainTally.effect_of_taking, fullness=-1)) is not None:
        place = layout.places[found.pod]
        order.append(found.pod)
        candidates.take(place)
        for tally, domain in zip(tallies, place, strict=True):
            if domain != OUTSIDE:
                tally.change(domain, -1)
        candidates.moved(place)
        for tally, weight in weighted:
            total += tally.excess * weight
    return DeletionOrder(order, total)


BREADTH: Final = 8
"""How many partial orders are followed at once. A breadth of 4 reached the optimum in each of 4,500 small layouts with
crossing domains."""
LARGEST: Final = 2_500
"""The product of pods and distinct places up to which the search runs. Above, it would take tens of milliseconds."""


def best_order(layout: Layout) -> DeletionOrder:
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
    tally = tally_of(constraint, domains)
    fullest = [(-tally.counts[domain], domain) for domain in inside]
    heapq.heapify(fullest)
    by_number_inside = [tally.excess]
    while fullest:
        _, domain = heapq.heappop(fullest)
        tally.change(domain, -1)
        by_number_inside.append(tally.excess)
        inside[domain] -= 1
        if inside[domain]:
            heapq.heappush(fullest, (-tally.counts[domain], domain))
    by_number_inside.reverse()
    return [min(by_number_inside[max(0, left - outside) : left + 1]) for left in range(len(domains) - 1, -1, -1)]


def broad_order(layout: Layout, stacks: Sequence[Sequence[int]]) -> DeletionOrder:
    """Return the best of several orders that are followed side by side.

    The stacks have all pods of the layout. The last one of each stack is deleted first. Earlier stacks have priority if
    it makes no difference.
    """
    tallies = tuple(tallies_of(layout))
    fullness = sum(count * count for tally in tallies for count in tally.counts.values())
    front = [_Partial(0, fullness, tuple(len(stack) for stack in stacks), tallies, None)]
    for _ in layout.places:
        front = _further(layout, stacks, front)
    order: list[int] = []
    last = front[0].last
    while last is not None:
        order.append(last.pod)
        last = last.before
    return DeletionOrder(order[::-1], front[0].violation)


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
                    excess += tally.effect_of_taking(count)
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
    after = tally.copy()
    after.change(domain, -1)
    return after


def insert(layout: Layout, ranked: Sequence[int], new: Sequence[int]) -> DeletionOrder:
    """Return an order of deletion in which the ranked pods keep their order, and its violation.

    The new ones are all others, in their order of deletion if it makes no difference.
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


def _merge(layout: Layout, ranked: Sequence[int], new: Sequence[int]) -> DeletionOrder:
    """Build an order from its end, each time with the best of the next ranked pod and all new ones."""
    tallies = [tally_of(constraint) for constraint in layout.constraints]
    weighted = [(tally, constraint.weight) for tally, constraint in zip(tallies, layout.constraints, strict=True)]
    coming = Candidates(layout, tallies, reversed(new))
    staying = list(ranked)
    backwards: list[int] = []
    total = 0
    for _ in layout.places:
        for tally, weight in weighted:
            total += tally.excess * weight
        found = coming.best(DomainTally.effect_of_adding, fullness=1)
        if found is None or (
            staying
            and coming.score(layout.places[staying[-1]], DomainTally.effect_of_adding, fullness=1) <= found.score
        ):
            pod = staying.pop()
        else:
            pod = found.pod
            coming.take(layout.places[pod])
        backwards.append(pod)
        for tally, domain in zip(tallies, layout.places[pod], strict=True):
            if domain != OUTSIDE:
                tally.change(domain, 1)
        coming.moved(layout.places[pod])
    return DeletionOrder(backwards[::-1], total)
