"""Moves that were held or refused just now. The cause may be gone soon, but not at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from respread.api.reasons import Reason
from respread.growing_pause import GrowingPause
from respread.planning.held import Held
from respread.planning.plan import Move

PAUSE: Final = GrowingPause(first_seconds=1.0, longest_seconds=10.0)
"""For this time after it was held, neither a move nor another one for its groups is chosen. It grows only where what is
needed could not be read again and again."""
_FORGET_SECONDS: Final = 60.0
"""How long after a pause it is remembered how long it was."""


class _Pause(NamedTuple):
    held: Held
    times: int
    until: float


class HeldLately:
    """Remembers each for a moment, and for longer what can't be read."""

    __slots__ = ("_clock", "_pauses")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty.

        Args:
            clock: a monotonic clock in seconds.
        """
        self._clock = clock
        self._pauses: dict[Hashable, _Pause] = {}

    def note(self, move: Move, held: Held) -> None:
        """Record that a move was not made, and why."""
        now = self._clock()
        for key in (move.pod.uid, *move.groups):
            times, before = 1, self._pauses.get(key)
            if before is not None and before.held.reason is held.reason is Reason.API_UNAVAILABLE:
                times = before.times + (now >= before.until)
            self._pauses[key] = _Pause(held, times, now + PAUSE.seconds(times))

    def why_not(self, move: Move) -> Held | None:
        """Return why a move is not chosen now, or None if it may be."""
        now = self._clock()
        for key in (move.pod.uid, *move.groups):
            if (pause := self._pauses.get(key)) is not None and now < pause.until:
                return pause.held
        return None

    def next_end(self) -> float | None:
        """Return when the next one may be chosen again, on the clock; None if none is held."""
        now = self._clock()
        self._pauses = {key: each for key, each in self._pauses.items() if now < each.until + _FORGET_SECONDS}
        return min((each.until for each in self._pauses.values() if now < each.until), default=None)
