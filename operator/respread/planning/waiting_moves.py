"""The moves of solutions, each in the wave in which it may start."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.solution import Solution


class _Known(NamedTuple):
    solution: Solution
    together: int
    waits: Held | None
    moves: tuple[Move, ...]


class WaitingMoves:
    """Moves of solutions. While they wait for the same as in the last plan, they stay the same objects."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: dict[int, _Known] = {}
        """By the identity of the solution, which is kept alive."""
        self._now: dict[int, _Known] = {}

    def begin(self) -> None:
        """Forget what was not requested since the last call."""
        self._before, self._now = self._now, {}

    def of(self, solution: Solution, together: int, waits: Held | None) -> tuple[Move, ...]:
        """Return a solution's moves.

        Args:
            solution: the solution.
            together: how many of its first steps may be made now, at the same time.
            waits: what the step after them waits for.
        """
        known = self._before.get(id(solution))
        if known is None or known.together != together or known.waits != waits:
            known = _Known(solution, together, waits, tuple(_moves(solution, together, waits)))
        self._now[id(solution)] = known
        return known.moves


def _moves(solution: Solution, together: int, waits: Held | None) -> list[Move]:
    return [
        msgspec.structs.replace(move, wave=max(0, number - together + 1), waits=waits if number == together else None)
        for number, step in enumerate(solution.steps)
        for move in step
    ]
