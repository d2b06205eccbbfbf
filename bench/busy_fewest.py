"""The fewest evictions after which spread constraints hold, computed independently of Respread's code.

It is exact for the clusters of bench/busy: a constraint counts the pods of one Deployment, each pod may go to any node,
nodes have room, and each host is in one zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

NEVER: Final = 10**9


class _Zone(NamedTuple):
    """The needs of a zone if each of its hosts must have between `least` and `most` pods."""

    pods: int
    leaving: int
    """The pods above the maximum of their host."""
    coming: int
    """The pods that hosts lack."""
    least: int
    most: int

    def evictions(self, total: int) -> int:
        """Return how many pods must leave so that the zone finally has this number."""
        if not self.least <= total <= self.most:
            return NEVER
        return max(self.leaving, self.pods + self.coming - total)


def skew(counts: Iterable[int]) -> int:
    """Return the difference between the fullest and the emptiest domain."""
    numbers = list(counts)
    return max(numbers) - min(numbers)


def fewest_evictions(zones: Mapping[str, Sequence[int]], *, zone_skew: int, host_skew: int | None = None) -> int:
    """Return the fewest evictions after which a Deployment's constraints hold.

    Args:
        zones: the pods on each host of each zone.
        zone_skew: maxSkew of the constraint over zones.
        host_skew: maxSkew of the constraint over hosts, if there is one.
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
    """Return how many pods the emptiest domain can finally have."""
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
    """Return the fewest evictions if each zone finally has `least` to `most` pods, computed for each zone."""
    best = {0: 0}
    for zone in zones:
        following: dict[int, int] = {}
        for placed, evictions in best.items():
            for total in range(least, min(most, pods - placed) + 1):
                cost = evictions + zone.evictions(total)
                following[placed + total] = min(cost, following.get(placed + total, NEVER))
        best = following
    return best.get(pods, NEVER)
