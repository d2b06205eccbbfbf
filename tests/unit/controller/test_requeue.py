"""Without an event, the control loop reconciles at due times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from respread.api.reasons import Reason
from respread.clock_reading import ClockReading
from respread.controller.waking import IDLE_SECONDS, SOON_SECONDS, WAITING_SECONDS, next_reconcile
from respread.eviction.pacing import HeldMove
from respread.planning.held import Held
from respread.planning.plan import BlockedGroup, Plan
from tests.eviction_moves import group, move

NOW = 1000.0
EPOCH = datetime(2027, 1, 15, 8, tzinfo=UTC)


def look(
    *reasons: Reason,
    held: tuple[Reason, ...] = (),
    others: tuple[float | None, ...] = (),
    changes_at: datetime | None = None,
) -> float:
    """Return the seconds until the next reconcile, for reasons of blocked groups and held moves."""
    blocked = tuple(
        BlockedGroup(group=group(str(number)), policy="default", reason=reason, message="")
        for number, reason in enumerate(reasons)
    )
    return (
        next_reconcile(
            Plan(blocked=blocked, changes_at=changes_at),
            [HeldMove(move("a"), Held(reason, "")) for reason in held],
            moment=ClockReading(NOW, EPOCH.timestamp()),
            others=others,
        )
        - NOW
    )


def test_the_loop_reconciles_at_least_once_a_minute() -> None:
    assert look() == IDLE_SECONDS
    assert look(Reason.HELD_BY_BUDGET, others=(None, NOW + 3600)) == IDLE_SECONDS


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [
        (Reason.API_UNAVAILABLE, WAITING_SECONDS),
        (Reason.LIMIT_REACHED, SOON_SECONDS),
        (Reason.WINDOW_CLOSED, SOON_SECONDS),
        (Reason.DRY_RUN, IDLE_SECONDS),
    ],
)
def test_the_loop_reconciles_sooner_while_something_waits_for_time(reason: Reason, seconds: float) -> None:
    assert look(held=(reason,)) == seconds
    assert look(reason) == seconds


def test_the_loop_reconciles_at_other_due_times_but_never_in_the_past() -> None:
    assert look(others=(NOW + 7, NOW + 5, None)) == 5
    assert look(others=(NOW - 5,)) == 0


def test_the_loop_reconciles_when_a_held_group_is_released() -> None:
    assert look(Reason.NO_FEASIBLE_NODE, changes_at=EPOCH + timedelta(seconds=20)) == 20
