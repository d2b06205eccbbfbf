"""How many pods the eligible domains of a constraint have, and what follows: minimum, skew, excess, fewest moves.

`Counts` decides it, and `LiveCounts` starts from that and follows each pod.

The fewest moves that restore a single spread group are a formula. With counts c over the eligible domains and
s = maxSkew, a final state satisfies maxSkew if every domain has between some `lo` and `lo + s` pods. Reaching it takes
at least as many moves as there are pods above, and at least as many as there are places below. The larger of the two is
enough, because every pod from above can fill a place below, and the rest fits in between. So the fewest moves are the
minimum of that over `lo`. This is a lower bound for any plan that restores the group among others, because one eviction
takes one pod from one domain and brings one into another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from functools import lru_cache
from math import inf
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from respread.scheduling.filters.topology_spread import minimum_is_zero

_Domain = TypeVar("_Domain", bound=Hashable)

Histogram: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a count and the number of eligible domains with that count, including domains with 0; sorted."""


def histogram_of(counts: Mapping[str, int], domains: int) -> Histogram:
    """Return the histogram of counts by domain, among so many domains; those that are absent have 0."""
    levels = Counter({0: domains - len(counts)})
    levels.update(counts.values())
    return tuple(sorted(pair for pair in levels.items() if pair[1]))


def pods_above(levels: Histogram, limit: int) -> int:
    """Return the pods above a number for each domain."""
    return sum((count - limit) * domains for count, domains in levels if count > limit)


class Counts(msgspec.Struct, frozen=True):
    """How many domains of a constraint have how many matching pods.

    The skew of a domain is its matching pods minus the global minimum. The global minimum is the smallest count of any
    eligible domain, or 0 if there are fewer of them than minDomains (PodTopologySpread's `minMatchNum`).
    """

    levels: Histogram
    max_skew: int
    min_domains: int

    @property
    def too_few(self) -> bool:
        """Whether there are fewer domains than minDomains."""
        return minimum_is_zero(sum(domains for _, domains in self.levels), self.min_domains)

    @property
    def minimum(self) -> int:
        """The global minimum; 0 without domains."""
        return self.levels[0][0] if self.levels and not self.too_few else 0

    @property
    def limit(self) -> int:
        """The most pods that a domain may have: the minimum plus maxSkew."""
        return self.minimum + self.max_skew

    @property
    def skew(self) -> int:
        """The largest skew of any domain; 0 without domains."""
        return self.levels[-1][0] - self.minimum if self.levels else 0

    @property
    def excess(self) -> int:
        """The pods above the limit, summed over the domains."""
        return pods_above(self.levels, self.limit)


class LiveCounts(Generic[_Domain]):
    """Counts by domain that follow every pod, each change in constant time with any number of domains."""

    __slots__ = ("_above", "_domains_with", "counts", "excess", "limit", "max_skew", "minimum", "too_few")

    def __init__(self, counts: dict[_Domain, int], levels: Counts) -> None:
        """Start from counts by domain, which may leave out domains that `levels` contains."""
        self.counts = counts
        self.max_skew = levels.max_skew
        self.too_few = levels.too_few
        self.minimum = levels.minimum
        self.limit = levels.limit
        self.excess = levels.excess
        self._domains_with = dict(levels.levels)
        self._above = sum(domains for count, domains in levels.levels if count > self.limit)
        """How many domains have more pods than the limit."""

    def copy(self) -> LiveCounts[_Domain]:
        """Return independent counts."""
        other: LiveCounts[_Domain] = object.__new__(LiveCounts)
        other.counts, other._domains_with = self.counts.copy(), self._domains_with.copy()
        other.max_skew, other.too_few = self.max_skew, self.too_few
        other.minimum, other.limit = self.minimum, self.limit
        other.excess, other._above = self.excess, self._above
        return other

    @property
    def levels(self) -> Histogram:
        """How many domains have each count."""
        return tuple(sorted(pair for pair in self._domains_with.items() if pair[1]))

    def count(self, domain: _Domain) -> int:
        """Return the matching pods of a domain."""
        return self.counts.get(domain, 0)

    def change(self, domain: _Domain, by: int) -> None:
        """Add (1) or remove (-1) a pod in a domain."""
        limit, domains_with = self.limit, self._domains_with
        before = self.counts.get(domain, 0)
        after = self.counts[domain] = before + by
        domains_with[before] -= 1
        domains_with[after] = domains_with.get(after, 0) + 1
        if before > limit or after > limit:
            self.excess += by
            if limit in (before, after):
                self._above += by
        elif self.too_few:
            return
        elif after < self.minimum:
            self.minimum, self.limit = after, limit - 1
            self._above += domains_with.get(limit, 0)
            self.excess += self._above
        elif before == self.minimum and not domains_with[before]:
            self.minimum, self.limit = after, limit + 1
            self.excess -= self._above
            self._above -= domains_with.get(limit + 1, 0)

    def effect_of_adding(self, count: int) -> int:
        """Return how much one more pod in a domain with this many adds to the excess."""
        if count >= self.limit:
            return 1
        if count != self.minimum or self.too_few or self._domains_with[count] > 1:
            return 0
        return -self._above

    def effect_of_taking(self, count: int) -> int:
        """Return how much one pod less in a domain with this many adds to the excess."""
        if count > self.limit:
            return -1
        if count != self.minimum:
            return 0
        return self._above + self._domains_with.get(self.limit, 0)


class Bounds(NamedTuple):
    """Bounds for the counts that a group can reach."""

    staying: Histogram = ()
    """The counts of the pods that can't be moved, like a histogram of all domains; empty if all can be."""
    most: int | None = None
    """The global minimum can't exceed this: the count of the smallest domain that accepts no more pods, or 0 if there
    are fewer domains than minDomains."""
    incoming: int = 0
    """How many pods outside of all domains may move into one."""
    leaving: bool = False
    """Whether pods may move to where there is no domain."""

    @property
    def least(self) -> int:
        """No limit of a domain's count can get below this."""
        return self.staying[-1][0] if self.staying else 0

    def allow(self, lo: int, histogram: Histogram) -> bool:
        """Return whether there are enough pods for a minimum beside those that stay."""
        pods = sum(count * domains for count, domains in histogram) + self.incoming
        return sum(max(count, lo) * domains for count, domains in self.staying) <= pods


class Reach(NamedTuple):
    """How close to restored a group can be brought."""

    excess: int
    """At least this much excess remains."""
    moves: int
    """The minimum number of moves to reach that excess."""


@lru_cache(maxsize=65536)
def fewest_moves(histogram: Histogram, max_skew: int, bounds: Bounds) -> float:
    """Return the fewest evictions after which the skew is within maxSkew, or infinity if that is impossible."""
    fewest: float = inf
    for lo in range(max(0, bounds.least - max_skew), _highest(histogram, bounds) + 1):
        hi = lo + max_skew
        above, below = pods_above(histogram, hi), _below(histogram, lo)
        if not bounds.allow(lo, histogram):
            break
        if bounds.leaving or above <= _below(histogram, hi):
            fewest = min(fewest, max(above, below))
    return fewest if histogram else 0


def fewest_evictions(counts: Counts) -> float:
    """Return the fewest evictions after which a group holds if all its pods may move anywhere; infinity if none do."""
    return fewest_moves(counts.levels, counts.max_skew, Bounds(most=0 if counts.too_few else None))


def reach(histogram: Histogram, closed: Histogram, max_skew: int, bounds: Bounds) -> Reach:
    """Return how close to restored a group can be brought, and the minimum number of moves.

    `histogram` has the counts of all its domains, and `closed` those of the domains that accept no replacement.
    """
    best = Reach(pods_above(histogram, max_skew + _least(histogram, bounds)), 0)
    for lo in range(_highest(histogram, bounds) + 1):
        hi = lo + max_skew
        above, below = pods_above(histogram, hi), _below(histogram, lo)
        if not bounds.allow(lo, histogram):
            break
        room = above if bounds.leaving else _below(histogram, hi) - _below(closed, hi)
        excess = max(0, above - room, pods_above(bounds.staying, hi))
        best = min(best, Reach(excess, max(above - excess, below)))
    return best


def _highest(histogram: Histogram, bounds: Bounds) -> int:
    """Return the highest possible minimum."""
    domains_in_all = sum(domains for _, domains in histogram)
    if not domains_in_all:
        return -1
    average = (sum(count * domains for count, domains in histogram) + bounds.incoming) // domains_in_all
    return average if bounds.most is None else min(average, bounds.most)


def _least(histogram: Histogram, bounds: Bounds) -> int:
    """Return the current minimum."""
    least = min((count for count, _ in histogram), default=0)
    return least if bounds.most is None else min(least, bounds.most)


def _below(histogram: Histogram, limit: int) -> int:
    return sum((limit - count) * domains for count, domains in histogram if count < limit)
