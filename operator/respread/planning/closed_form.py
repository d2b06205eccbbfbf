"""The fewest moves that cure one spread group alone, in closed form.

With counts c over the eligible domains and s = maxSkew, a final state is within maxSkew if every domain holds between
some `lo` and `lo + s` pods. Reaching it takes at least as many moves as there are pods above, and as many as there
are places below; the larger of the two suffices, since every pod taken from above can fill a place below and the rest
fits between. So the fewest moves are the least of that over `lo`. It is a lower bound for any plan that cures the
group among others, because one eviction takes one pod from one domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf


def fewest_moves(
    histogram: Iterable[tuple[int, int]], max_skew: int, *, least: int | None = None, most: int | None = None
) -> float:
    """Return the fewest evictions after which the skew is within maxSkew, or infinity where none suffice.

    Args:
        histogram: pairs of a count and how many eligible domains hold that many matching pods, domains with 0 included.
        max_skew: the constraint's maxSkew.
        least: no domain can be brought below this count: the most immovable pods that one domain holds.
        most: the global minimum cannot rise above this: the fewest pods of a domain that takes no more, or 0 where
        there
            are fewer domains than minDomains.
    """
    levels = [(count, domains) for count, domains in histogram if domains]
    pods = sum(count * domains for count, domains in levels)
    domains_in_all = sum(domains for _, domains in levels)
    if not domains_in_all:
        return 0
    highest = pods // domains_in_all
    if most is not None:
        highest = min(highest, most)
    lowest = max(0, (least or 0) - max_skew)
    fewest: float = inf
    for lo in range(lowest, highest + 1):
        hi = lo + max_skew
        above = sum((count - hi) * domains for count, domains in levels if count > hi)
        below = sum((lo - count) * domains for count, domains in levels if count < lo)
        room = sum((hi - count) * domains for count, domains in levels if count < hi)
        if above <= room:
            fewest = min(fewest, max(above, below))
    return fewest
