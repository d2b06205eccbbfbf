"""The estimate of how long the rest takes, held to a simulation in which limits are used fully."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.cluster.pod import WorkloadName
from respread.eviction.limiter import Limiter
from respread.eviction.remaining import Lot, PresentLimits
from respread.eviction.standing import Trust
from tests.properties.instances import factor
from tests.worlds import cluster

EXACT = 1e-6


class Instance(NamedTuple):
    """Limits, and the moves that are left."""

    limits: Limits
    lots: Sequence[Lot]


def instance(rng: Random, *, alike: bool) -> Instance:
    """Return some workloads in some namespaces, with PodDisruptionBudgets.

    Args:
        rng: the source of randomness.
        alike: whether all replacements take as long.
    """
    limits = Limits(
        in_flight=rng.randint(1, 12),
        in_flight_per_namespace=rng.randint(1, 8),
        in_flight_per_node=10_000,
        in_flight_per_workload=rng.choice((1, 2, 5, "10%", "30%", "100%")),
    )
    lots = []
    for number in range(rng.randint(1, 5)):
        disruptions = rng.choice((0, 0, 1, 3))
        lots.append(
            Lot(
                policy="default",
                workload=WorkloadName("Deployment", rng.choice(("shop", "pay")), f"web-{number}"),
                labels=Map(app=f"web-{number}"),
                replicas=rng.randint(2, 60),
                budget=f"web-{number}" if disruptions else "",
                disruptions=disruptions,
                seconds=10.0 if alike else float(rng.randint(1, 60)),
                now=rng.randint(1, 40),
            )
        )
    return Instance(limits, lots)


def estimated(found: Instance, trust: Trust | None = None) -> float:
    spec = ClusterPolicySpec(limits=found.limits)
    policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=spec)
    limits = PresentLimits(snapshot=cluster([], []), limiters=(Limiter.of(policy),), now=0.0, trust=trust)
    seconds = limits.remaining(found.lots)["default"].seconds
    assert seconds is not None
    return seconds


def simulated(found: Instance, trust: Trust | None = None) -> float:
    """Return when the last replacement is Ready if each place that is free goes to what has most rounds left."""
    limits, left = found.limits, [lot.now for lot in found.lots]
    ready: list[tuple[float, int]] = []
    in_flight: Counter[object] = Counter()
    now = 0.0

    def places(lot: Lot) -> list[tuple[object, int]]:
        most = limits.in_flight_of_workload(lot.replicas)
        if lot.disruptions:
            most = min(most, lot.disruptions)
        if trust is not None:
            most = min(most, trust.most(lot.workload, 0.0))
        return [
            ("all", limits.in_flight),
            (lot.workload.namespace, limits.in_flight_per_namespace),
            (lot.workload, most),
        ]

    def rounds(at: int) -> tuple[int, ...]:
        namespace = found.lots[at].workload.namespace
        of_namespace = sum(n for lot, n in zip(found.lots, left, strict=True) if lot.workload.namespace == namespace)
        _, (_, most_of_namespace), (_, most) = places(found.lots[at])
        own = ceil(left[at] / most)
        return max(own, ceil(of_namespace / most_of_namespace)), own, of_namespace

    while True:
        may = [
            at
            for at, lot in enumerate(found.lots)
            if left[at] and all(in_flight[place] < most for place, most in places(lot))
        ]
        if may:
            at = max(may, key=rounds)
            left[at] -= 1
            in_flight.update(place for place, _ in places(found.lots[at]))
            heappush(ready, (now + (found.lots[at].seconds or 0.0), at))
        elif ready:
            now = ready[0][0]
            while ready and ready[0][0] == now:
                _, at = heappop(ready)
                in_flight.subtract(place for place, _ in places(found.lots[at]))
                if trust is not None:
                    trust = trust.with_end(found.lots[at].workload, 0.0, ready=True)
        else:
            return now


@pytest.mark.parametrize("seed", range(300 * factor()))
def test_the_estimate_is_at_most_two_rounds_short_where_replacements_take_as_long(seed: int) -> None:
    found = instance(Random(seed), alike=True)
    seconds, needed = estimated(found), simulated(found)
    assert seconds <= needed + EXACT
    assert needed <= seconds + 20.0 + EXACT, (seconds, needed)


def test_the_estimate_is_nearly_always_exact() -> None:
    instances = [instance(Random(seed), alike=True) for seed in range(300)]
    exact = sum(abs(estimated(each) - simulated(each)) < EXACT for each in instances)
    assert exact >= 0.95 * len(instances), exact


@pytest.mark.parametrize("seed", range(300 * factor()))
def test_the_estimate_is_off_by_no_more_than_the_slowest_twice_where_some_take_longer(seed: int) -> None:
    found = instance(Random(seed), alike=False)
    slowest = max(lot.seconds or 0.0 for lot in found.lots)
    assert abs(estimated(found) - simulated(found)) <= 2 * slowest + EXACT


@pytest.mark.parametrize("seed", range(300 * factor()))
def test_the_first_few_of_each_workload_cost_at_most_two_rounds_more(seed: int) -> None:
    found = instance(Random(seed), alike=True)
    seconds, needed = estimated(found, Trust()), simulated(found, Trust())
    assert seconds <= needed + EXACT
    assert needed <= seconds + 20.0 + EXACT, (seconds, needed)


def test_more_places_never_take_longer() -> None:
    for seed in range(100):
        found = instance(Random(seed), alike=True)
        more = msgspec.structs.replace(found.limits, in_flight=found.limits.in_flight + 1)
        assert estimated(found._replace(limits=more)) <= estimated(found)
