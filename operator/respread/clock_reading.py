"""One moment on the two clocks: the monotonic one of this process, and the time of day, which everybody shares."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class ClockReading(NamedTuple):
    """One moment on both clocks. What lasts is measured on the first; the second is for records, messages and users."""

    now: float
    """Seconds on a monotonic clock."""
    time: float
    """Seconds since the epoch."""

    @property
    def time_of_day(self) -> datetime:
        """The time of day in UTC."""
        return datetime.fromtimestamp(self.time, UTC)

    def on_the_clock(self, other: datetime) -> float:
        """Return another time of day, in seconds on the monotonic clock."""
        return self.now + other.timestamp() - self.time
