"""Moves that were held or refused a moment ago: what held them may be over, but not at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from respread.planning.held import Held
from respread.planning.plan import Move

PAUSE_SECONDS: Final = 1.0
"""How long after it was held a move is not chosen again, nor another one for the same groups."""


class HeldLately:
    """Remembers each for a moment."""

    __slots__ = ("_clock", "_held")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Remember none yet.

        Args:
            clock: seconds that never go back.
        """
        self._clock = clock
        self._held: dict[Hashable, tuple[Held, float]] = {}

    def note(self, move: Move, held: Held) -> None:
        """Note that a move was not made, and why."""
        until = self._clock() + PAUSE_SECONDS
        self._held.update(dict.fromkeys((move.pod.uid, *move.groups), (held, until)))

    def why_not(self, move: Move) -> Held | None:
        """Return why a move is not chosen for a moment, or None if it may be."""
        for key in (move.pod.uid, *move.groups):
            held, until = self._held.get(key, (None, 0.0))
            if held is not None and self._clock() < until:
                return held
        return None

    def next_end(self) -> float | None:
        """Return when the next one may be chosen again, on the clock; None where none is held."""
        now = self._clock()
        self._held = {key: (held, until) for key, (held, until) in self._held.items() if now < until}
        return min((until for _, until in self._held.values()), default=None)
