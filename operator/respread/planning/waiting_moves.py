"""The moves of solutions whose first step must wait, so that they start one wave later."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.search.solution import Solution


class _Known(NamedTuple):
    solution: Solution
    waits: Held
    moves: tuple[Move, ...]


class WaitingMoves:
    """Moves of solutions that wait. Moves that waited for the same in the last plan stay the same objects."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: dict[int, _Known] = {}
        """By the identity of the solution, which is kept alive."""
        self._now: dict[int, _Known] = {}

    def begin(self) -> None:
        """Forget what was not requested since the last call."""
        self._before, self._now = self._now, {}

    def of(self, solution: Solution, waits: Held) -> tuple[Move, ...]:
        """Return a solution's moves, which start in the second wave. The first ones say what they wait for."""
        known = self._before.get(id(solution))
        if known is None or known.waits != waits:
            known = _Known(solution, waits, tuple(_later(solution, waits)))
        self._now[id(solution)] = known
        return known.moves


def _later(solution: Solution, waits: Held) -> list[Move]:
    return [
        msgspec.structs.replace(move, wave=move.wave + 1, waits=None if number else waits)
        for number, step in enumerate(solution.steps)
        for move in step
    ]
