"""Moves that are made together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from respread.planning.plan import Move

Step: TypeAlias = tuple[Move, ...]
"""Usually one move. If there are several, the replacements fit only if all of the pods are evicted."""


def steps_of(moves: Iterable[Move]) -> Iterator[Step]:
    """Yield the steps of moves in the order of a plan."""
    for _, step in groupby(moves, lambda move: (move.wave, move.component, move.step)):
        yield tuple(step)
