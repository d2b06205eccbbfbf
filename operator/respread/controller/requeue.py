"""When the next reconcile is due if nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from respread.api.reasons import Reason
from respread.eviction.pacing import HeldMove
from respread.planning.plan import BlockedGroup, Plan

WAITING_SECONDS: Final = 1.0
"""While something waits for a condition without events."""
IDLE_SECONDS: Final = 60.0
"""In any case: for a window that opens, an hour that is over, a bug in change notifications."""
SOON_SECONDS: Final = 10.0
"""While moves are held by something that ends within minutes: `limits.perHour`, a window."""

_SOON: Final = frozenset({Reason.LIMIT_REACHED, Reason.WINDOW_CLOSED})


def next_reconcile(
    planned: Plan,
    held: Iterable[HeldMove],
    *,
    now: float,
    others: Iterable[float | None],
    release: Callable[[BlockedGroup], float | None],
) -> float:
    """Return when the next reconcile is due, on the clock.

    Args:
        planned: the plan.
        held: its moves that are not made now.
        now: the time on the clock.
        others: when other things are due.
        release: returns when a group is released; None if only a change, or nothing, releases it.
    """
    due = [now + IDLE_SECONDS, *(at for at in others if at is not None)]
    reasons = {each.reason for each in planned.blocked} | {each.held.reason for each in held}
    if Reason.API_UNAVAILABLE in reasons:
        due.append(now + WAITING_SECONDS)
    if reasons & _SOON:
        due.append(now + SOON_SECONDS)
    due.extend(at for each in planned.blocked if (at := release(each)) is not None)
    return max(min(due), now)
