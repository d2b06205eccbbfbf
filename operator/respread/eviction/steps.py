"""Moves that are made together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from respread.planning.plan import Move

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
