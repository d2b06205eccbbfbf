"""The fewest moves that cure one spread group alone, in closed form.

With counts c over the eligible domains and s = maxSkew, a final state is within maxSkew if every domain holds between
some `lo` and `lo + s` pods. Reaching it takes at least as many moves as there are pods above, and as many as there
are places below; the larger of the two suffices, since every pod taken from above can fill a place below and the rest
fits between. So the fewest moves are the least of that over `lo`. It is a lower bound for any plan that cures the
group among others, because one eviction takes one pod from one domain and brings one into another.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import NamedTuple, TypeAlias

Histogram: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a count and how many eligible domains hold that many matching pods, domains with 0 included; sorted."""


class Bounds(NamedTuple):
    """What keeps a group's counts from being just any."""

    least: int = 0
    """No domain can be brought below this count, whichever it is: the most immovable pods that one domain holds."""
    most: int | None = None
    """The global minimum cannot rise above this: the fewest pods of a domain that takes no more, or 0 where there are
    fewer domains than minDomains."""
    incoming: int = 0
    """How many pods that are in no domain may come into one."""
    leaving: bool = False
    """Whether pods may go where there is no domain."""


class Reach(NamedTuple):
    """How near to cured a group can be brought."""

    excess: int
    """At least so much excess remains."""
    moves: int
    """To leave no more than that takes at least so many moves."""


@lru_cache(maxsize=65536)
def fewest_moves(histogram: Histogram, max_skew: int, bounds: Bounds) -> float:
    """Return the fewest evictions after which the skew is within maxSkew, or infinity where none suffice.

    Args:
        histogram: the group's counts.
        max_skew: the constraint's maxSkew.
        bounds: what the counts can't become.
    """
    fewest: float = inf
    for lo in range(max(0, bounds.least - max_skew), _highest(histogram, bounds) + 1):
        hi = lo + max_skew
        above, below = _above(histogram, hi), _below(histogram, lo)
        if bounds.leaving or above <= _below(histogram, hi):
            fewest = min(fewest, max(above, below))
    return fewest if histogram else 0


def reach(histogram: Histogram, closed: Histogram, max_skew: int, bounds: Bounds) -> Reach:
    """Return how near to cured a group can be brought, and by how many moves at least.

    Args:
        histogram: the counts of all its domains.
        closed: those of the domains that take no replacement.
        max_skew: the constraint's maxSkew.
        bounds: what the counts can't become.
    """
    best = Reach(_above(histogram, max_skew + _least(histogram, bounds)), 0)
    for lo in range(_highest(histogram, bounds) + 1):
        hi = lo + max_skew
        above, below = _above(histogram, hi), _below(histogram, lo)
        room = above if bounds.leaving else _below(histogram, hi) - _below(closed, hi)
        excess = max(0, above - room, bounds.least - hi)
        best = min(best, Reach(excess, max(above - excess, below)))
    return best


def _highest(histogram: Histogram, bounds: Bounds) -> int:
    """Return what the minimum can't rise above."""
    domains_in_all = sum(domains for _, domains in histogram)
    if not domains_in_all:
        return -1
    average = (sum(count * domains for count, domains in histogram) + bounds.incoming) // domains_in_all
    return average if bounds.most is None else min(average, bounds.most)


def _least(histogram: Histogram, bounds: Bounds) -> int:
    """Return the minimum as it is."""
    least = min((count for count, _ in histogram), default=0)
    return least if bounds.most is None else min(least, bounds.most)


def _above(histogram: Histogram, limit: int) -> int:
    return sum((count - limit) * domains for count, domains in histogram if count > limit)


def _below(histogram: Histogram, limit: int) -> int:
    return sum((limit - count) * domains for count, domains in histogram if count < limit)
