"""The times in which a policy lets pods be evicted: cron expressions in a time zone, each open for a while.

Schedules follow the wall clock of their zone as Debian's cron does: what is due at a time of day that a change to
daylight saving leaves out is due right after the change, and what is due at one that comes twice is due the first time.
How long a window stays open is real time.
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
    """A window, ready to be asked about times."""

    schedule: str
    duration: timedelta
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime | None:
        """Return when the window next opens after a moment, in UTC; None if it does not within fifty years."""
        for time in CronSim(self.schedule, moment.astimezone(self.zone)):
            # asked in the hour that comes twice, a schedule may answer with its first round, which is over
            if (opens := time.astimezone(UTC)) > moment:
                return opens
        return None

    def is_open(self, now: datetime) -> bool:
        """Tell whether the window is open: from its opening on, until just before its duration is over."""
        opened = self.after(now.astimezone(UTC) - self.duration)
        return opened is not None and opened <= now


class Windows(msgspec.Struct, frozen=True):
    """All windows of a policy; without any it is always open."""

    openings: tuple[Opening, ...] = ()

    @classmethod
    def of(cls, windows: Iterable[Window]) -> Windows:
        """Make a policy's windows ready; `respread.api.validation` has seen to it that they make sense."""
        return cls(tuple(Opening(each.schedule, each.duration, ZoneInfo(each.time_zone)) for each in windows))

    def is_open(self, now: datetime) -> bool:
        """Tell whether pods may be evicted now.

        Args:
            now: the time, with a time zone.
        """
        return not self.openings or any(each.is_open(now) for each in self.openings)

    def next_opening(self, now: datetime) -> datetime | None:
        """Return when the next window opens, in UTC: for whoever has to wake up then. None if none ever does."""
        return min((opens for each in self.openings if (opens := each.after(now)) is not None), default=None)

    def why_closed(self, now: datetime) -> Held | None:
        """Return that all windows are closed and when one opens, or None if one is open."""
        if self.is_open(now):
            return None
        opens = self.next_opening(now)
        when = "never again" if opens is None else f"at {opens:%Y-%m-%d %H:%M} UTC"
        return Held(Reason.WINDOW_CLOSED, f"the policy's windows are all closed; the next one opens {when}")
