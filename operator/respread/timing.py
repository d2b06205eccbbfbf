"""Time, as values: one moment on both clocks, how much may be done by now, and pauses that grow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec


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


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done by now, as in a token bucket: it grows with time up to a limit."""

    per_second: float
    most: float
    saved: float
    at: float
    """When `saved` was right, in seconds on a clock that never goes back."""

    @classmethod
    def full(cls, per_second: float, most: float, now: float) -> Allowance:
        """Return an allowance of which nothing has been used."""
        return cls(per_second=per_second, most=most, saved=most, at=now)

    def left(self, now: float) -> float:
        """Return how much may be used now."""
        return min(self.most, self.saved + max(0.0, now - self.at) * self.per_second)

    def used(self, amount: float, now: float) -> Allowance:
        """Return what is left over; using more than there is is made up for by waiting longer afterwards."""
        return msgspec.structs.replace(self, saved=self.left(now) - amount, at=now)

    def wait_seconds(self, amount: float, now: float) -> float:
        """Return how long it takes until so much, or all that can be saved up, may be used."""
        return max(0.0, (min(amount, self.most) - self.left(now)) / self.per_second)


_MOST_DOUBLINGS: Final = 64
"""Floats overflow long before anything happens in a row as often as an int can count."""


class GrowingPause(NamedTuple):
    """A pause after something happened for the first time, twice as long after the second time in a row, and so on."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, times: int) -> float:
        """Return the duration of the pause after something has happened this many times in a row, at least once."""
        doublings = max(0, min(times - 1, _MOST_DOUBLINGS))
        return min(self.longest_seconds, self.first_seconds * 2.0**doublings)
