"""Without an event, the control loop plans at due times, and while evictions are in flight after enough have ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

import msgspec
import pytest

from respread.api.fields import Problem
from respread.api.policy import ClusterPolicySpec, Limits, Mode, Policy
from respread.api.reasons import Held, Reason
from respread.controller.waking import ENDED_SECONDS, FULL_SECONDS, PROGRESS_SECONDS, Replanning, is_full, next_plan
from respread.eviction.pacing import HeldMove
from respread.planning.plan import BlockedGroup, Plan
from respread.timing import ClockReading
from tests.eviction_moves import group, move

NOW = 1000.0
EPOCH = datetime(2027, 1, 15, 8, tzinfo=UTC)


def look(
    *reasons: Reason,
    held: tuple[Reason, ...] = (),
    others: float = inf,
    changes_at: datetime | None = None,
    full: bool = False,
) -> float:
    """Return the seconds until the next plan, for reasons of blocked groups and held moves."""
    blocked = tuple(
        BlockedGroup(group=group(str(number)), policy="default", reason=reason, message="")
        for number, reason in enumerate(reasons)
    )
    plan, moment = Plan(blocked=blocked, changes_at=changes_at), ClockReading(NOW, EPOCH.timestamp())
    waiting = [HeldMove(move("a"), Held(reason, "")) for reason in held]
    return next_plan(plan, waiting, moment=moment, others=others, full=full) - NOW


def test_the_loop_plans_at_due_times_but_never_in_the_past_and_at_least_once_a_minute() -> None:
    assert look() == 60
    assert look(others=NOW + 5) == 5
    assert look(others=NOW - 5) == 0
    assert look(Reason.NO_FEASIBLE_NODE, changes_at=EPOCH + timedelta(seconds=2)) == 2
    assert look(Reason.HELD_BY_BUDGET, others=NOW + 3600) == 60


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [(Reason.API_UNAVAILABLE, 1), (Reason.LIMIT_REACHED, 10), (Reason.WINDOW_CLOSED, 10), (Reason.DRY_RUN, 60)],
)
def test_the_loop_plans_sooner_while_something_waits_for_time(reason: Reason, seconds: float) -> None:
    assert look(held=(reason,)) == seconds
    assert look(reason) == seconds


def test_quiet_periods_that_end_wait_while_no_limit_lets_another_pod_go() -> None:
    assert look(Reason.QUIET_PERIOD, changes_at=EPOCH + timedelta(seconds=1), full=True) == FULL_SECONDS
    assert look(Reason.QUIET_PERIOD, changes_at=EPOCH + timedelta(seconds=20), full=True) == 20
    assert look(others=NOW + 1, full=True) == 1


LATER = NOW + 60


def pods(number: int) -> frozenset[str]:
    return frozenset(f"pod-{each}" for each in range(number))


def planned(in_flight: int, due: float = LATER, *, full: bool = False) -> Replanning:
    replanning = Replanning()
    replanning.planned(pods(in_flight), NOW, due, full=full)
    return replanning


def test_a_plan_waits_for_moves_to_end_and_longer_while_no_limit_lets_another_pod_go() -> None:
    assert planned(5).due_at(pods(5)) == NOW + PROGRESS_SECONDS
    assert planned(5, due=NOW + 0.1).due_at(pods(5)) == NOW + 0.1
    assert planned(50).due_at(pods(46)) == NOW + ENDED_SECONDS < NOW + PROGRESS_SECONDS
    assert planned(5, full=True).due_at(pods(5)) == NOW + FULL_SECONDS > NOW + PROGRESS_SECONDS
    assert planned(50, full=True).due_at(pods(49)) == NOW + ENDED_SECONDS
    for replanning, seconds in ((planned(5), FULL_SECONDS), (planned(5, due=NOW + 1), 1)):
        assert [replanning.may_go_on(NOW + each) for each in (seconds - 0.1, seconds)] == [True, False]


@pytest.mark.parametrize(("in_flight", "left", "added"), [(0, 0, 0), (1, 0, 0), (5, 4, 0), (50, 45, 0), (5, 4, 9)])
def test_a_plan_is_due_at_once_when_a_tenth_of_the_moves_has_ended(in_flight: int, left: int, added: int) -> None:
    assert planned(in_flight).due_at(pods(left) | {f"added-{each}" for each in range(added)}) <= NOW
    assert Replanning().due_at(frozenset()) <= NOW, "as the first one"


def test_a_plan_is_made_soon_after_a_replacement_has_a_node_that_other_moves_wait_for() -> None:
    replanning = Replanning()
    replanning.planned(pods(50), NOW, LATER, awaited=pods(5), full=False)
    assert replanning.due_at(pods(50), pods(5)) == NOW + PROGRESS_SECONDS
    assert replanning.due_at(pods(50), pods(4)) == NOW + ENDED_SECONDS
    replanning.planned(pods(50), NOW, LATER, awaited=pods(5), full=True)
    assert replanning.due_at(pods(50), pods(4)) == NOW + FULL_SECONDS


def policy(name: str, in_flight: int, mode: Mode = "Enforce") -> Policy:
    spec = ClusterPolicySpec(mode=mode, limits=Limits(in_flight=in_flight))
    return Policy(kind="ClusterRebalancePolicy", object_name=name, spec=spec)


def test_all_limits_are_used_only_if_no_policy_that_evicts_has_a_place() -> None:
    web, api, tried = policy("web", 2), policy("api", 1), policy("tried", 5, "DryRun")
    invalid = msgspec.structs.replace(policy("invalid", 5), problems=(Problem("spec.mode", "is unknown"),))
    assert is_full([web, tried, invalid], {"web": 2})
    assert not is_full([web, tried], {"web": 1})
    assert not is_full([web, api], {"web": 2})
    assert is_full([web, api], {"web": 2, "api": 1})
    assert not is_full([tried], {})
