"""Moves that are made together or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from respread.planning.plan import Move

FIRST_PORTION: Final = 48
"""How many moves are made before it is known how long they take."""
LEAST_PORTION: Final = 8
PORTION_SECONDS: Final = 2.0
"""How long a portion of a wave is to take."""

Step: TypeAlias = tuple[Move, ...]
"""Mostly one move. Of several, the replacements fit only if all of the pods are evicted."""


def steps_of(moves: Iterable[Move]) -> Iterator[Step]:
    """Yield the steps of moves that are in the order of a plan."""
    for _, step in groupby(moves, lambda move: (move.turn, move.component, move.step)):
        yield tuple(step)


def lanes_of(steps: Iterable[Step]) -> list[list[Step]]:
    """Return the steps in lanes: those of a lane share controllers, those of different lanes don't."""
    lane_of: dict[str, list[Step]] = {}
    for step in steps:
        owners = {_owner(move) for move in step}
        lane: list[Step] = []
        for other in {id(lane_of[owner]): lane_of[owner] for owner in owners if owner in lane_of}.values():
            lane += other
        lane.append(step)
        lane_of.update((_owner(move), lane) for each in lane for move in each)
    return list({id(lane): lane for lane in lane_of.values()}.values())


def _owner(move: Move) -> str:
    controller = move.pod.controller
    return move.pod.uid if controller is None else controller.uid


class Portions:
    """Moves, a portion at a time: as many as can be made while what they were planned on is not old.

    Steps that share controllers are never in two portions.
    """

    __slots__ = ("_lanes", "_most", "_moves")

    def __init__(self, moves: Sequence[Move]) -> None:
        """Prepare.

        Args:
            moves: in the order of a plan.
        """
        self._moves = moves
        self._lanes = deque(lanes_of(steps_of(moves)))
        self._most = FIRST_PORTION

    def __bool__(self) -> bool:
        """Whether any are left."""
        return bool(self._lanes)

    def take(self) -> tuple[Move, ...]:
        """Return the next portion, at least one lane of it, in the order of the plan."""
        taken: set[str] = set()
        while self._lanes and (not taken or len(taken) + sum(map(len, self._lanes[0])) <= self._most):
            taken.update(move.pod.uid for step in self._lanes.popleft() for move in step)
        return tuple(move for move in self._moves if move.pod.uid in taken)

    def took(self, moves: int, seconds: float) -> None:
        """Note how long a portion took: the next one is of a size that takes `PORTION_SECONDS`."""
        self._most = max(LEAST_PORTION, int(moves * PORTION_SECONDS / max(seconds, 0.001)))
