"""The fewest evictions after which spread constraints hold: the judge's own arithmetic, which shares no code with ours.

It is exact for the worlds of bench/busy: the pods that a constraint counts are those of one Deployment, each of them
may go to any node, nodes have room, and hosts lie within zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

NEVER: Final = 10**9


class _Zone(NamedTuple):
    """What hosts that must each have from `least` to `most` pods ask of their zone."""

    pods: int
    leaving: int
    """Pods beyond the most of their host."""
    coming: int
    """Pods that hosts lack."""
    least: int
    most: int

    def evictions(self, total: int) -> int:
        """Return how many pods leave so that in the end the zone has so many."""
        if not self.least <= total <= self.most:
            return NEVER
        return max(self.leaving, self.pods + self.coming - total)


def skew(counts: Iterable[int]) -> int:
    """Return how many pods the fullest domain has more than the emptiest."""
    numbers = list(counts)
    return max(numbers) - min(numbers)


def fewest_evictions(zones: Mapping[str, Sequence[int]], *, zone_skew: int, host_skew: int | None = None) -> int:
    """Return the fewest evictions after which a Deployment's constraints hold.

    Args:
        zones: the pods on each host of each zone.
        zone_skew: maxSkew of the constraint over zones.
        host_skew: maxSkew of the constraint over hosts, where there is one.
    """
    pods = sum(map(sum, zones.values()))
    if host_skew is None:
        return _over_zones([_Zone(sum(hosts), 0, 0, 0, pods) for hosts in zones.values()], pods, zone_skew)
    host_number = sum(map(len, zones.values()))
    return min(
        _over_zones([_zone(hosts, least, least + host_skew) for hosts in zones.values()], pods, zone_skew)
        for least in _minima(pods, host_number, host_skew)
    )


def _minima(pods: int, domains: int, max_skew: int) -> range:
    """Return how many pods the emptiest domain can have in the end."""
    return range(max(0, -(-(pods - domains * max_skew) // domains)), pods // domains + 1)


def _zone(hosts: Sequence[int], least: int, most: int) -> _Zone:
    return _Zone(
        pods=sum(hosts),
        leaving=sum(max(0, count - most) for count in hosts),
        coming=sum(max(0, least - count) for count in hosts),
        least=least * len(hosts),
        most=most * len(hosts),
    )


def _over_zones(zones: Sequence[_Zone], pods: int, max_skew: int) -> int:
    return min(_with_minimum(zones, pods, least, least + max_skew) for least in _minima(pods, len(zones), max_skew))


def _with_minimum(zones: Sequence[_Zone], pods: int, least: int, most: int) -> int:
    """Return the fewest evictions where each zone ends with `least` to `most` pods, found zone by zone."""
    best = {0: 0}
    for zone in zones:
        following: dict[int, int] = {}
        for placed, evictions in best.items():
            for total in range(least, min(most, pods - placed) + 1):
                cost = evictions + zone.evictions(total)
                following[placed + total] = min(cost, following.get(placed + total, NEVER))
        best = following
    return best.get(pods, NEVER)
