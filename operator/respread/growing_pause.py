"""Pauses that are twice as long each time, up to a longest one."""

from __future__ import annotations

from typing import Final, NamedTuple

_MOST_DOUBLINGS: Final = 64
"""Floats overflow long before anything happens in a row as often as an int can count."""


class GrowingPause(NamedTuple):
    """How long to pause after something has happened for the first time, for the second time in a row, and so on."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, times: int) -> float:
        """Return the duration of the pause after something has happened this many times in a row, at least once."""
        doublings = max(0, min(times - 1, _MOST_DOUBLINGS))
        return min(self.longest_seconds, self.first_seconds * 2.0**doublings)
