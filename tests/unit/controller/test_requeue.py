"""Without an event, the control loop plans at due times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from respread.api.reasons import Held, Reason
from respread.controller.waking import FULL_SECONDS, next_plan
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
    return (
        next_plan(
            Plan(blocked=blocked, changes_at=changes_at),
            [HeldMove(move("a"), Held(reason, "")) for reason in held],
            moment=ClockReading(NOW, EPOCH.timestamp()),
            others=others,
            full=full,
        )
        - NOW
    )


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
