"""The times in which a policy lets pods be evicted: cron expressions in a time zone, each open for a while.

Schedules follow the wall clock of their zone as Debian's cron does: what is due at a time of day that a change to
daylight saving leaves out is due right after the change, and what is due at one that comes twice is due the first time.
How long a window stays open is real time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from respread.api.policy import Window
from respread.api.reasons import Reason
from respread.planning.held import Held

_FIELDS: Final = 5
"""cronsim would take a sixth, of seconds, and Kubernetes' own schedules have none."""
_ANY_MOMENT: Final = datetime(2000, 1, 1, tzinfo=UTC)


class WindowError(ValueError):
    """A window that can't be read; the message names the field and says what to write there."""


class Opening(msgspec.Struct, frozen=True):
    """A window, ready to be asked about times."""

    schedule: str
    duration: timedelta
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime | None:
        """Return when the window next opens after a moment, in UTC; None if it does not within fifty years."""
        times = CronSim(self.schedule, moment.astimezone(self.zone))
        for time in times:
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
        """Make a policy's windows ready.

        Raises:
            WindowError: one has an unknown time zone, or a schedule that can't be read or never comes.
        """
        return cls(tuple(_opening(index, window) for index, window in enumerate(windows)))

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


def _opening(index: int, window: Window) -> Opening:
    at = f"spec.windows[{index}]"
    try:
        zone = ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise WindowError(
            f"{at}.timeZone: there is no time zone {window.time_zone!r}: write a name of the IANA database such as "
            "Europe/Berlin, or UTC"
        ) from error
    opening = Opening(window.schedule, window.duration, zone)
    try:
        comes = opening.after(_ANY_MOMENT) is not None
        fault = "" if len(window.schedule.split()) == _FIELDS else "wrong number of fields"
    except CronSimError as error:
        fault = str(error).lower()
    if fault:
        raise WindowError(
            f"{at}.schedule: {window.schedule!r} is no cron expression that ever comes ({fault}): write minute, hour, "
            "day of month, month and day of week, such as '0 2 * * *'"
        )
    if not comes:
        raise WindowError(f"{at}.schedule: {window.schedule!r} never comes")
    return opening
