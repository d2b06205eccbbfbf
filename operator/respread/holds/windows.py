"""The times in which a policy may evict: cron expressions in a time zone, each with a duration.

Schedules follow the wall clock of their zone like Debian's cron: if daylight saving time skips the opening time, the
window opens right after the change, and if a time occurs twice, the window opens the first time. The duration is
elapsed time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from respread.api.policy import Window
from respread.api.reasons import Reason
from respread.planning.held import Held


class Opening(msgspec.Struct, frozen=True):
    """A window, prepared for questions."""

    schedule: str
    duration: timedelta
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime | None:
        """Return when the window next opens after a time, in UTC; None if it does not within fifty years."""
        for time in CronSim(self.schedule, moment.astimezone(self.zone)):
            # In the hour that occurs twice, a schedule may answer with the first occurrence, which is over.
            if (opens := time.astimezone(UTC)) > moment:
                return opens
        return None

    def is_open(self, now: datetime) -> bool:
        """Return whether the window is open: from its opening until just before the end of its duration."""
        opened = self.after(now.astimezone(UTC) - self.duration)
        return opened is not None and opened <= now


class Windows(msgspec.Struct, frozen=True):
    """All windows of a policy. Without any, it is always open."""

    openings: tuple[Opening, ...] = ()

    @classmethod
    def of(cls, windows: Iterable[Window]) -> Windows:
        """Prepare a policy's windows. `respread.api.validation` has checked them."""
        return cls(tuple(Opening(each.schedule, each.duration, ZoneInfo(each.time_zone)) for each in windows))

    def is_open(self, now: datetime) -> bool:
        """Return whether pods may be evicted now.

        Args:
            now: the time, with a time zone.
        """
        return not self.openings or any(each.is_open(now) for each in self.openings)

    def next_opening(self, now: datetime) -> datetime | None:
        """Return when the next window opens, in UTC; None if none ever does."""
        return min((opens for each in self.openings if (opens := each.after(now)) is not None), default=None)

    def why_closed(self, now: datetime) -> Held | None:
        """Return a message that all windows are closed and when one opens, or None if one is open."""
        if self.is_open(now):
            return None
        opens = self.next_opening(now)
        when = "never again" if opens is None else f"at {opens:%Y-%m-%d %H:%M} UTC"
        return Held(Reason.WINDOW_CLOSED, f"the policy's windows are all closed; the next one opens {when}")
