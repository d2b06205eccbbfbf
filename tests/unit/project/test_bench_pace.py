"""The limits, the ideal time and the targets of bench/pace, compared with every possible order of evictions."""

from __future__ import annotations

import math
import sys
from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.judge import Flight, Key
from bench.limits import AtOnce
from bench.live import Live
from bench.pace import WORLDS, smaller, targets
from tests.unit.project.outcomes import outcome

WEB, API, DB = ("shop", "web"), ("shop", "api"), ("data", "db")
LIMITS = {"inFlight": 50, "inFlightPerNamespace": 40, "inFlightPerWorkload": "100%"}


def rounds_by_trying(at_once: AtOnce, moves: dict[Key, int]) -> int:
    """Return the fewest rounds, by trying every set of evictions in each."""
    keys, total = list(moves), tuple(moves.values())
    states, rounds = {total}, 0
    while (0,) * len(keys) not in states:
        rounds += 1
        states = {
            tuple(left - made for left, made in zip(state, chosen, strict=True))
            for state in states
            for chosen in product(*(range(left + 1) for left in state))
            if is_allowed(at_once, dict(zip(keys, chosen, strict=True)))
            if all(made <= at_once.first << all_ - left for made, all_, left in zip(chosen, total, state, strict=True))
        }
    return rounds


def is_allowed(at_once: AtOnce, chosen: dict[Key, int]) -> bool:
    in_flight = Counter[Key]()
    for key in Counter(chosen).elements():
        if not at_once.has_room(in_flight, key):
            return False
        in_flight[key] += 1
    return True


@settings(deadline=None, max_examples=60)
@given(
    st.builds(AtOnce, *(st.integers(1, most) for most in (4, 3, 3)), first=st.sampled_from([1, 2, sys.maxsize])),
    st.fixed_dictionaries({WEB: st.integers(0, 3), API: st.integers(0, 3), DB: st.integers(0, 3)}),
)
@example(AtOnce(3, 2, 2), {DB: 3, API: 3, WEB: 3})
def test_the_rounds_and_the_most_in_flight_equal_an_exhaustive_search(at_once: AtOnce, moves: dict[Key, int]) -> None:
    assert at_once.rounds(moves) == rounds_by_trying(at_once, moves)
    every = product(*(range(number + 1) for number in moves.values()))
    possible = [dict(zip(moves, chosen, strict=True)) for chosen in every]
    at_first = [each for each in possible if max(each.values()) <= at_once.first and is_allowed(at_once, each)]
    assert at_once.most(moves) == max(sum(each.values()) for each in at_first)


@pytest.mark.parametrize(
    ("per_workload", "max_unavailable", "ordered", "expected"),
    [("100%", "", False, 25), ("10%", "", False, 2), (1, "", False, 1), ("100%", "10%", False, 3), ("1%", "", True, 1)],
)
def test_limits_and_budgets_of_a_workload_of_25_pods(
    per_workload: int | str, max_unavailable: str, *, ordered: bool, expected: int
) -> None:
    limits = {**LIMITS, "inFlightPerWorkload": per_workload}
    assert AtOnce.of(limits, 25, max_unavailable, ordered=ordered)[:3] == (50, 40, expected)


@pytest.mark.parametrize(("moves", "rounds"), [(0, 0), (5, 1), (6, 2), (15, 2), (16, 3)])
def test_a_workload_begins_with_five_and_each_ready_one_doubles_them(moves: int, rounds: int) -> None:
    at_once = AtOnce.of({**LIMITS, "inFlightPerWorkload": 10}, 120)
    assert at_once.rounds({WEB: moves}) == rounds
    assert at_once.most({WEB: moves, API: 20}, {API: 1}) == min(5, moves) + 10
    of_many = AtOnce.of({**LIMITS, "inFlightPerWorkload": 100}, 120)
    assert [of_many.most({WEB: 100}, {WEB: ready}) for ready in range(5)] == [5, 10, 20, 40, 40]
    assert of_many.rounds({WEB: 90}) == 4  # 5, 40 in a namespace, 40, and 5


def test_the_share_of_the_limits_that_is_used() -> None:
    at_once, moves = AtOnce(2, 2, 2), {WEB: 4}
    one_at_a_time = [Flight(WEB, 10.0 + number, 11.0 + number) for number in range(4)]
    assert at_once.used(moves, one_at_a_time, 10.0) == pytest.approx(0.5, abs=0.02)
    two_at_a_time = [Flight(WEB, 10.0 + number // 2, 11.0 + number // 2) for number in range(4)]
    assert at_once.used(moves, two_at_a_time, 10.0) == pytest.approx(1.0, abs=0.02)
    assert at_once.used(moves, two_at_a_time, 9.0) == pytest.approx(0.5, abs=0.02)
    assert at_once.used(moves, two_at_a_time, 12.0) is None
    never_ready = [Flight(WEB, 10.0), Flight(WEB, 12.0)]
    assert at_once.used(moves, never_ready, 10.0) == pytest.approx(0.5, abs=0.02)


def live(side: str, done_seconds: float | None, *, used: float = 0.95, **changed: Any) -> Live:
    """Return the result of a side in a world of which the ideal is 22.5 s."""
    changing_seconds, quiet_seconds, rounds, replacement_seconds = 0.5, 2.0, 2, 10.0
    done = outcome(side, done_seconds=done_seconds, **changed)
    return Live(done, changing_seconds, quiet_seconds, rounds, replacement_seconds, used)


def test_targets_that_are_met() -> None:
    rows = list(targets("any", {"respread": live("respread", 24.0), "descheduler": live("descheduler", 25.0)}))
    assert all(row.is_met for row in rows)
    assert [row.what for row in rows] == [
        "any: time over the ideal",
        "any: limits used",
        "any: evictions over the fewest",
        "any: still violated, Pending, refused",
        "any: time over the peer's",
    ]


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (live("respread", 27.0), ["any: time over the ideal", "any: time over the peer's"]),
        (live("respread", None), ["any: time over the ideal", "any: time over the peer's"]),
        (live("respread", 24.0, evictions=3), ["any: evictions over the fewest"]),
        (live("respread", 24.0, refused=1), ["any: still violated, Pending, refused"]),
        (live("respread", 24.0, used=0.4), ["any: limits used"]),
    ],
)
def test_targets_that_are_missed(ours: Live, missed: list[str]) -> None:
    rows = targets("any", {"respread": ours, "descheduler": live("descheduler", 25.0)})
    assert [row.what for row in rows if not row.is_met] == missed


def test_a_peer_that_is_faster_than_the_limits_allow_sets_no_target() -> None:
    rows = targets("any", {"respread": live("respread", 24.0), "descheduler": live("descheduler", 10.1)})
    assert [row.what for row in rows][-1] == "any: still violated, Pending, refused"
    assert math.isclose(live("respread", 24.0).ideal_seconds, 22.5)


@pytest.mark.parametrize("name", WORLDS)
def test_something_must_be_evicted_in_each_world_and_its_small_form(name: str) -> None:
    for world in (WORLDS[name], smaller(WORLDS[name])):
        zones_left = world.zones - world.zones_back
        assert world.replicas > zones_left
        assert world.outage <= bool(world.zones_back)
        assert sum(world.returning().values()) == world.nodes // world.zones * world.zones_back
