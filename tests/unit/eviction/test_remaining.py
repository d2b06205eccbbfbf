"""How long the moves that are left take within limits, and which limit bounds that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, Limits, Policy, PolicySpec
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import WorkloadName
from respread.eviction.limiter import Limiter
from respread.eviction.remaining import (
    Lot,
    PresentLimits,
    Remaining,
    about,
    in_short,
    in_words,
    lots_of,
    seconds_of_pods,
)
from respread.eviction.standing import Trust
from respread.eviction.tallies import EvictionHistory, Needed
from respread.planning.victims.budgets import BudgetIndex
from tests.eviction_moves import SPEC, move
from tests.worlds import cluster, pod

WIDE = Limits(in_flight=500, in_flight_per_namespace=500, in_flight_per_node=500, in_flight_per_workload="100%")


def lot(name: str = "web", namespace: str = "shop", **fields: Any) -> Lot:
    given: dict[str, Any] = {"policy": "default", "labels": Map(app=name), "replicas": 100, "seconds": 60.0, **fields}
    return Lot(workload=WorkloadName("Deployment", namespace, name), **given)


def remaining(*lots: Lot, limits: Limits = WIDE, **fields: Any) -> Remaining:
    policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(limits=limits))
    present = PresentLimits(snapshot=cluster([], []), limiters=(Limiter.of(policy),), now=10_000.0, **fields)
    return present.remaining(lots).get("default", Remaining())


def limited(**fields: Any) -> Limits:
    return msgspec.structs.replace(WIDE, **fields)


@pytest.mark.parametrize(
    ("limits", "seconds", "bound"),
    [
        (limited(in_flight_per_workload=1), 43 * 60, "inFlightPerWorkload 1"),
        (limited(in_flight_per_workload="10%"), 5 * 60, "inFlightPerWorkload 10"),
        (limited(in_flight_per_namespace=4), 13 * 60, "inFlightPerNamespace 4"),
        (limited(in_flight=8), 7 * 60, "inFlight 8"),
        (limited(in_flight_per_node=2), 6 * 60, "inFlightPerNode 2"),
        (limited(per_hour=30), 3600, "perHour 30"),
        (limited(per_hour=10), 4 * 3600, "perHour 10"),
        (WIDE, 60, "inFlightPerWorkload 100"),
        (Limits(), 6 * 60, "inFlightPerNode 2"),
    ],
)
def test_the_limit_that_takes_longest_bounds_the_rest(limits: Limits, seconds: int, bound: str) -> None:
    """A workload of 100 pods, with 43 to move and 7 in flight in a second one."""
    nodes = {"a": 11, "b": 11, "c": 11, "d": 10}
    found = remaining(lot(now=43, nodes=nodes), lot("api", in_flight=7), limits=limits)
    assert (found.seconds, str(found.bound), found.evictions, found.in_flight) == (seconds, bound, 43, 7)


def test_a_share_of_a_workload_is_that_of_its_largest_replica_set() -> None:
    old = lot(labels=Map(app="web", hash="old"), now=1, replicas=10)
    for lots in ((lot(now=20), old), (old, lot(now=20))):
        assert str(remaining(*lots, limits=limited(in_flight_per_workload="10%")).bound) == "inFlightPerWorkload 10"


def test_a_disruption_budget_bounds_all_workloads_that_it_selects() -> None:
    budget: dict[str, Any] = {"budget": "all", "disruptions": 2}
    found = remaining(lot(now=4, **budget), lot("api", now=3, in_flight=1, **budget), lot("other", now=9))
    assert (found.seconds, str(found.bound)) == (4 * 60, "PodDisruptionBudget 2 of shop/all")


def test_a_workload_begins_with_a_few_until_replacements_are_ready() -> None:
    limits = limited(in_flight_per_workload=20)
    assert remaining(lot(now=40), limits=limits).seconds == 2 * 60
    assert remaining(lot(now=40), limits=limits, trust=Trust()).seconds == 3 * 60
    assert str(remaining(lot(now=40), limits=limits, trust=Trust()).bound) == "inFlightPerWorkload 20 (5 for now)"
    assert str(remaining(lot(now=5), limits=limits, trust=Trust()).bound) == "inFlightPerWorkload 20"
    failed = Trust().with_end(lot().workload, 9_999.0, ready=False)
    assert remaining(lot(now=40), limits=limits, trust=failed).seconds == 4 * 60  # 1, 10, 20, 9
    assert remaining(lot(now=1), limits=limits, trust=failed).seconds == 60


def test_an_ordered_stateful_set_moves_one_pod_at_a_time() -> None:
    found = remaining(lot(now=4, in_flight=1, is_ordered=True), lot("api", now=9))
    assert (found.seconds, str(found.bound)) == (5 * 60, "OrderedReady 1 of Deployment/web")
    assert found.used == 1 / 10


@pytest.mark.parametrize(
    ("now", "seconds"),
    [(5, 0), (6, 1_600), (15, 1_600), (16, 3_500), (30, 3_500), (36, 3_600 + 1_600), (300, 9 * 3_600 + 3_500)],
)
def test_evictions_of_the_last_hour_are_waited_for_until_the_limit_of_an_hour_has_room(now: int, seconds: int) -> None:
    made = EvictionHistory().with_evictions(["default"], 8_000.0, 10).with_evictions(["default"], 9_900.0, 15)
    found = remaining(lot(now=now, seconds=0.0), limits=limited(per_hour=30), history=made)
    assert (found.seconds, found.used) == (seconds, 0.0)


def test_a_limit_of_an_hour_that_was_lowered_has_room_once_enough_are_an_hour_old() -> None:
    made = EvictionHistory().with_evictions(["default"], 8_000.0, 10).with_evictions(["default"], 9_900.0, 15)
    assert remaining(lot(now=1), limits=limited(per_hour=20), history=made).seconds == 1_600
    assert remaining(lot(now=1), limits=limited(per_hour=10), history=made).seconds == 3_500


def test_limits_of_another_policy_are_named_with_it() -> None:
    whole = Policy(
        kind="ClusterRebalancePolicy", object_name="all", spec=ClusterPolicySpec(limits=limited(in_flight=1))
    )
    own = Policy(kind="RebalancePolicy", namespace="shop", object_name="own", spec=PolicySpec(limits=WIDE))
    moved = pod("web-1", "node-1", SPEC, namespace="shop", labels=Map(app="web"))
    others = ClusterPolicySpec(pod_selector=LabelSelector(match_labels=Map(app="api")), limits=limited(per_hour=1))
    of_others = msgspec.structs.replace(whole, object_name="others", spec=others)
    policies = (whole, of_others, own, msgspec.structs.replace(own, object_name="idle"))
    limits = PresentLimits(snapshot=cluster([], [moved]), limiters=tuple(map(Limiter.of, policies)), now=0.0)
    found = limits.remaining([lot(policy="shop/own", now=2)])
    assert (str(found["shop/own"].bound), found["shop/own"].used) == ("inFlight 1 of policy all", 0.0)
    assert found.keys() == {"shop/own"}
    found = limits.remaining([lot(policy="shop/own", now=2, is_ordered=True)])
    assert str(found["shop/own"].bound) == "OrderedReady 1 of Deployment/web"


def test_the_time_is_unknown_if_no_workload_tells_it_and_else_that_of_the_others() -> None:
    silent = lot("api", now=30, seconds=None)
    assert remaining(silent).seconds is None
    assert remaining(silent, limits=limited(per_hour=30)).seconds is None
    assert remaining(silent).about_seconds is None
    assert remaining(silent, lot(now=1, seconds=20.0), limits=limited(in_flight_per_workload=10)).seconds == 3 * 20
    assert remaining().seconds == remaining().about_seconds == remaining(lot()).seconds == 0


def test_slow_replacements_take_at_least_their_own_time() -> None:
    lots = lot(now=1, seconds=90.0), lot("api", now=99, seconds=1.0)
    assert remaining(*lots, limits=limited(in_flight=10)).seconds == 90
    slow = lot("api", now=1, seconds=300.0, nodes={"b": 1})
    assert remaining(lot(now=9, nodes={"a": 9}), slow, limits=limited(in_flight_per_node=1)).seconds == 9 * 60


def test_a_replacement_that_is_late_takes_about_as_long_again() -> None:
    waited = {lot().workload: 290.0}
    assert remaining(lot(now=4, in_flight=1), waited=waited).seconds == 290
    assert remaining(lot(now=9, in_flight=1), waited=waited, limits=limited(in_flight_per_workload=1)).seconds == 600
    assert remaining(lot("api", in_flight=4), waited=waited).seconds == 60


@pytest.mark.parametrize(("in_flight", "used"), [(0, 0.0), (3, 0.3), (10, 1.0), (12, 1.0)])
def test_the_share_of_the_limits_that_is_used(in_flight: int, used: float) -> None:
    limits = limited(in_flight_per_workload=10)
    assert remaining(lot(now=40, in_flight=in_flight), limits=limits).used == used
    assert remaining(lot(later=40, in_flight=in_flight), limits=limits).used is None


def test_no_more_is_possible_than_is_left_and_budgets_allow() -> None:
    assert remaining(lot(now=1, in_flight=3)).used == 0.75
    budget: dict[str, Any] = {"budget": "all", "disruptions": 2}
    assert remaining(lot(now=30, in_flight=2, **budget), lot("api", now=30, **budget)).used == 1.0
    assert remaining(lot(now=30, in_flight=2), trust=Trust()).used == 0.4
    made = EvictionHistory().with_evictions(["default"], 9_900.0, 2)
    assert remaining(lot(now=30, in_flight=2), limits=limited(per_hour=4), history=made).used == 0.5
    assert remaining(lot(now=30, in_flight=2), limits=limited(per_hour=0)).used == 1.0
    assert remaining(lot(now=30), limits=limited(per_hour=0)).used is None
    assert remaining(lot(now=4, in_flight=1, nodes={"a": 4}), limits=limited(in_flight_per_node=1)).used == 0.5
    lots = lot(now=4, in_flight=1), lot("api", now=4), lot("db", later=4)
    assert remaining(*lots, limits=limited(in_flight_per_namespace=2)).used == 0.5


def test_moves_are_counted_by_workload_with_budget_and_times() -> None:
    pods = [pod(f"web-{number}", "node-1", SPEC, ready_seconds=20 + number) for number in range(5)]
    budget = PodDisruptionBudget(
        namespace="default", name="web", selector=LabelSelector(), expected_pods=5, desired_healthy=3
    )
    snapshot = cluster([], pods, poddisruptionbudgets=[budget])
    moves = [move(each) for each in pods]
    later = [Needed("default", "default", (pods[4].labels,), 7)]
    (found,) = lots_of(snapshot, BudgetIndex(), moves[:2], moves[2:3], waiting=moves[3:4], later=later)
    assert (found.now, found.in_flight, found.later, found.left, found.all) == (2, 1, 8, 10, 11)
    assert (found.replicas, found.budget, found.disruptions, found.seconds) == (5, "web", 2, 22.0)
    assert found.nodes == {"node-1": 4}
    tight = cluster([], pods, poddisruptionbudgets=[msgspec.structs.replace(budget, desired_healthy=6)])
    (measured,) = lots_of(tight, BudgetIndex(), moves, (), measured=lambda _: 7.5)
    assert (measured.seconds, measured.disruptions) == (7.5, 0)


def test_later_evictions_are_those_of_pods_that_a_controller_replaces() -> None:
    """A bare pod is a workload of its own, and lets one pod go at a time."""
    bare, web = pod("bare", "node-1", SPEC, controller=None, labels=Map(app="a")), pod("web-1", "node-1", SPEC)
    needed = [Needed("default", "default", (bare.labels, web.labels), 7)]
    (found,) = lots_of(cluster([], [bare, web]), BudgetIndex(), (), (), later=needed)
    assert (found.workload, found.later) == (move(web).workload, 7)
    assert not list(lots_of(cluster([], [bare]), BudgetIndex(), (), (), later=needed))


def test_pods_that_were_ready_before_or_are_not_say_nothing_about_starting() -> None:
    pods = [
        pod("web-1", "node-1", SPEC, ready_seconds=3_601),
        pod("web-2", "node-1", SPEC, ready_seconds=None, ready=False),
        pod("web-3", "node-1", SPEC, ready_seconds=0),
    ]
    assert seconds_of_pods(cluster([], pods), pods[0]) == 1.0
    assert seconds_of_pods(cluster([], pods[:2]), pods[0]) is None
    slow = pod("web-4", "node-1", SPEC, ready_seconds=3_600)
    assert seconds_of_pods(cluster([], [slow]), slow) == 3_600.0


def test_the_time_until_ready_is_a_mean_of_the_last_replacements() -> None:
    trust, web = Trust(), lot().workload
    assert trust.seconds(web, 0.0) is None
    trust = trust.with_end(web, 0.0, ready=True, seconds=10.0).with_end(web, 1.0, ready=False, seconds=300.0)
    assert trust.seconds(web, 2.0) == 10.0
    assert trust.with_end(web, 2.0, ready=True, seconds=20.0).seconds(web, 3.0) == 12.0
    assert (trust.seconds(web, 3_600.9), trust.seconds(web, 3_601.0)) == (10.0, None)


@pytest.mark.parametrize(
    ("seconds", "rounded", "words", "short"),
    [
        (0.0, 0, "0 s", "0s"),
        (0.2, 10, "10 s", "10s"),
        (41.0, 50, "50 s", "50s"),
        (110.0, 110, "110 s", "110s"),
        (110.5, 120, "2 min", "2m"),
        (121.0, 180, "3 min", "3m"),
        (41 * 60 - 5, 41 * 60, "41 min", "41m"),
        (59 * 60 + 30, 3600, "1 h", "1h"),
        (7000.0, 7200, "2 h", "2h"),
        (7201.0, 7800, "2 h 10 min", "2h10m"),
        (36_001.0, 39_600, "11 h", "11h"),
    ],
)
def test_an_estimate_is_rounded_as_people_say_it(seconds: float, rounded: int, words: str, short: str) -> None:
    assert about(seconds) == rounded
    assert (in_words(rounded), in_short(rounded)) == (words, short)
