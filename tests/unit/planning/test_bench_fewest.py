"""The judge of bench/busy compared with an exhaustive search."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.busy_fewest import NEVER, fewest_evictions, skew
from bench.judge import flights


def by_trying(zones: dict[str, list[int]], zone_skew: int, host_skew: int | None) -> int:
    """Try every number of pods on every host, and return the fewest evictions; NEVER if no placement holds."""
    before = [count for hosts in zones.values() for count in hosts]
    pods = sum(before)
    best = NEVER
    for after in product(range(pods + 1), repeat=len(before)):
        left = list(after)
        if sum(left) != pods or (host_skew is not None and skew(left) > host_skew):
            continue
        totals = [sum(left.pop(0) for _ in hosts) for hosts in zones.values()]
        if skew(totals) <= zone_skew:
            best = min(best, sum(max(0, old - new) for old, new in zip(before, after, strict=True)))
    return best


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=2, max_size=3).filter(
        lambda zones: 1 <= sum(map(sum, zones)) <= 5
    ),
    st.integers(1, 2),
    st.none() | st.integers(1, 2),
)
def test_the_fewest_evictions_equal_an_exhaustive_search(
    sizes: list[list[int]], zone_skew: int, host_skew: int | None
) -> None:
    zones = {f"zone-{number}": hosts for number, hosts in enumerate(sizes)}
    wanted = by_trying(zones, zone_skew, host_skew)
    found = fewest_evictions(zones, zone_skew=zone_skew, host_skew=host_skew)
    assert min(found, NEVER) == wanted


def test_the_fewest_evictions_of_known_cases() -> None:
    for counts, max_skew, fewest in (((4, 0, 0), 1, 2), ((4, 4, 0), 2, 2), ((5, 5, 5), 1, 0), ((1, 0, 0), 1, 0)):
        zones = {f"zone-{number}": [count] for number, count in enumerate(counts)}
        assert fewest_evictions(zones, zone_skew=max_skew) == fewest


def test_each_eviction_is_paired_with_a_later_ready_pod_of_its_deployment() -> None:
    web, shop, gone = ("busy", "web"), ("busy", "shop"), ("busy", "gone")
    evicted = [(web, 10.0), (web, 10.5), (shop, 11.0), (gone, 9.0), (web, 30.0)]
    ready = [(web, 1.0), (web, 12.0), (web, 12.1), (shop, 10.9), (shop, 11.25), (gone, 8.0)]
    assert [(each.key, each.ready_at - each.evicted_at) for each in flights(evicted, ready)] == [
        (gone, math.inf),
        (web, pytest.approx(2.0)),
        (web, pytest.approx(1.6)),
        (shop, pytest.approx(0.25)),
        (web, math.inf),
    ]
