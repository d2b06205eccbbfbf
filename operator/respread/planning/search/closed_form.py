"""The fewest moves that restore a single spread group, as a formula.

With counts c over the eligible domains and s = maxSkew, a final state satisfies maxSkew if every domain has between
some `lo` and `lo + s` pods. Reaching it takes at least as many moves as there are pods above, and at least as many as
there are places below. The larger of the two is enough, because every pod from above can fill a place below, and the
rest fits in between. So the fewest moves are the minimum of that over `lo`. This is a lower bound for any plan that
restores the group among others, because one eviction takes one pod from one domain and brings one into another.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import NamedTuple

from respread.spread.counts import Counts, Histogram, pods_above


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
    """Return the fewest evictions after which the skew is within maxSkew, or infinity if that is impossible.

    Args:
        histogram: the group's counts.
        max_skew: the constraint's maxSkew.
        bounds: the bounds of the counts.
    """
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

    Args:
        histogram: the counts of all its domains.
        closed: the counts of the domains that accept no replacement.
        max_skew: the constraint's maxSkew.
        bounds: the bounds of the counts.
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
