"""The limits of an invalid policy still apply."""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map

from respread.api.decoding import decode_policy
from respread.api.policy import Policy
from respread.api.record import NOTHING
from respread.controller.records.history import History
from respread.eviction.limiter import Limiters, bounding
from respread.moves.entry import Counting
from tests.eviction_moves import SPEC, move
from tests.worlds import cluster, pod


def policy(name: str = "all", **spec: Any) -> Policy:
    return decode_policy("ClusterRebalancePolicy", {"metadata": {"name": name, "uid": name}, "spec": spec})


RIGHT = policy(limits={"perHour": 3, "inFlight": 2})
WRONG = policy(limits={"perHour": "three", "inFlight": 2})


def per_hour(limiters: Limiters, *policies: Policy) -> dict[str, int | None]:
    found = limiters.of(Map({each.name: each for each in policies}))
    return {each.policy: each.limits.per_hour for each in found}


def test_an_invalid_policy_keeps_the_limits_of_its_last_valid_version() -> None:
    limiters = Limiters()
    assert WRONG.problems
    assert per_hour(limiters, RIGHT) == {"all": 3}
    for _ in range(3):
        assert per_hour(limiters, WRONG) == {"all": 3}
    assert per_hour(limiters, policy(limits={"perHour": 9})) == {"all": 9}
    assert per_hour(limiters, WRONG) == {"all": 9}


def test_a_policy_that_was_never_valid_limits_as_far_as_it_can_be_decoded() -> None:
    (limiter,) = Limiters().of(Map({"all": WRONG}))
    assert limiter.limits.in_flight == 2


def test_a_move_counts_for_its_policy_and_for_those_for_all_that_select_its_pod() -> None:
    databases = policy("databases", podSelector={"matchLabels": {"app": "database"}}, limits={"perHour": 3})
    moves = [move(pod(app, "a1", SPEC, labels=Map(app=app)), policy="all") for app in ("web", "database")]
    own = decode_policy(
        "RebalancePolicy", {"metadata": {"name": "own", "namespace": "default", "uid": "own"}, "spec": {}}
    )
    moves.append(msgspec.structs.replace(moves[0], pod=msgspec.structs.replace(moves[0].pod, uid="x"), policy=own.name))
    limiters = Limiters().of(Map({"all": policy(), "databases": databases, own.name: own}))
    bound = bounding(moves, limiters, cluster([], [each.pod for each in moves]))
    assert [set(bound.of(each)) for each in moves] == [{"all"}, {"all", "databases"}, {"all", own.name}]
    assert [bound.hourly(each) for each in moves] == [(), ("databases",), ()]


def test_the_counts_of_an_invalid_policy_stay_in_its_record() -> None:
    history = History(lambda: 1_800_000_000.0)
    history.count(Counting("shop/own", ("shop/own", "all"), ()))
    counted = history.in_record(RIGHT, NOTHING, ()).recent_evictions
    assert sum(each.evictions for each in counted) == 1
    assert history.in_record(WRONG, NOTHING, ()).recent_evictions == counted
    assert history.in_record(policy(), NOTHING, ()).recent_evictions == ()  # no limit needs it


def test_a_deleted_policy_is_forgotten() -> None:
    limiters = Limiters()
    per_hour(limiters, RIGHT)
    assert per_hour(limiters) == {}
    assert per_hour(limiters, WRONG) == {"all": None}
