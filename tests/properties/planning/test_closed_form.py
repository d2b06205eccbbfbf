"""The formulas for one group equal what trying every end finds, also with pods that stay and closed domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from math import inf
from random import Random
from typing import NamedTuple

from respread.spread.counts import Bounds, Histogram, Reach, fewest_moves, histogram_of, reach
from tests.properties.instances import factor

GROUPS = 1_500 * factor()
MOST_PODS = 7


class Group(NamedTuple):
    """A group whose pods are all of one template."""

    counts: tuple[int, ...]
    staying: tuple[int, ...]
    """How many pods of each domain can't be moved."""
    closed: tuple[bool, ...]
    """Whether each domain takes no replacement."""
    too_few: bool
    """Whether there are fewer domains than minDomains."""
    incoming: int
    leaving: bool
    max_skew: int

    def ends(self) -> Iterator[Reach]:
        """Yield the excess of every distribution that its pods can reach, and the moves to it."""
        pods = sum(self.counts) + self.incoming
        for end in product(range(pods + 1), repeat=len(self.counts)):
            if any(after < stay for after, stay in zip(end, self.staying, strict=True)):
                continue
            if any(full and after > now for after, now, full in zip(end, self.counts, self.closed, strict=True)):
                continue
            more = sum(max(0, after - now) for after, now in zip(end, self.counts, strict=True))
            fewer = sum(max(0, now - after) for after, now in zip(end, self.counts, strict=True))
            if more > fewer + self.incoming or (fewer > more and not self.leaving):
                continue
            limit = (0 if self.too_few else min(end)) + self.max_skew
            yield Reach(sum(max(0, after - limit) for after in end), max(more, fewer))

    @property
    def closed_counts(self) -> Histogram:
        return _histogram(count for count, full in zip(self.counts, self.closed, strict=True) if full)

    @property
    def bounds(self) -> Bounds:
        closed = [count for count, full in zip(self.counts, self.closed, strict=True) if full]
        most = 0 if self.too_few else min(closed, default=None)
        staying = _histogram(self.staying) if any(self.staying) else ()
        return Bounds(staying, most, self.incoming, self.leaving)


def test_reach_is_the_least_excess_of_any_end_and_the_fewest_moves_to_it() -> None:
    for group in _groups():
        found = reach(_histogram(group.counts), group.closed_counts, group.max_skew, group.bounds)
        assert found == min(group.ends()), group


def test_fewest_moves_are_those_to_any_end_without_excess() -> None:
    """They may be less where domains are closed above the minimum, too: then they are only a bound."""
    for group in _groups():
        found = fewest_moves(_histogram(group.counts), group.max_skew, group.bounds)
        fewest = min((end.moves for end in group.ends() if not end.excess), default=inf)
        assert found <= fewest if any(group.closed) else found == fewest, group


def test_no_domains_need_no_moves_and_reach_no_excess() -> None:
    for bounds in (Bounds(), Bounds(most=0, incoming=1)):
        assert fewest_moves((), 1, bounds) == 0
        assert reach((), (), 1, bounds) == Reach(0, 0)


def test_a_histogram_contains_the_empty_domains() -> None:
    assert histogram_of({"a": 2, "b": 1, "c": 2}, 5) == ((0, 2), (1, 1), (2, 2))
    assert histogram_of({"a": 1}, 1) == ((1, 1),)
    assert histogram_of({}, 0) == ()


def _groups() -> Iterator[Group]:
    random = Random("groups")
    found = 0
    while found < GROUPS:
        counts = tuple(random.randint(0, 4) for _ in range(random.randint(1, 4)))
        may_stay, may_close = random.random() < 0.5, random.random() < 0.5
        group = Group(
            counts,
            tuple(random.randint(0, count) if may_stay else 0 for count in counts),
            tuple(may_close and random.random() < 0.3 for _ in counts),
            too_few=random.random() < 0.2,
            incoming=random.choice((0, 0, 1, 2)),
            leaving=random.random() < 0.3,
            max_skew=random.randint(1, 2),
        )
        if sum(counts) + group.incoming <= MOST_PODS:
            found += 1
            yield group


def _histogram(counts: Iterable[int]) -> Histogram:
    return tuple(sorted(Counter(counts).items()))
