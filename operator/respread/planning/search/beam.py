"""Many greedy ways side by side: a beam search.

One greedy way may spend the pods that could go anywhere before those that have few places, and end where nothing is
safe any more. So after each number of evictions not one position is kept but some, those that are nearest to cured,
and of every mixture of templates evicted so far the nearest first: which pods to spend on what is just what the
distance to the cure does not tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import count
from typing import NamedTuple, TypeAlias

from respread.planning.search.board import Board, Potential
from respread.planning.search.options import Option, Options
from respread.planning.search.path import Choice, Way
from respread.planning.search.safety import StepOutcome
from respread.planning.search.search_budget import Effort

_Path: TypeAlias = tuple[tuple[Option, StepOutcome], ...]


class Beam(NamedTuple):
    """How broad a search is."""

    width: int
    """How many positions are kept after each number of evictions."""
    jointly: bool = False
    """Whether pods go together too, no part of which is safe alone."""


class _Candidate(NamedTuple):
    """A position that may be gone on from; what is nearer to cured, or was found before, is less."""

    potential: Potential
    number: int
    path: _Path

    @property
    def excess(self) -> int:
        return self.potential[2]

    @property
    def evictions(self) -> int:
        return sum(len(option.step) for option, _ in self.path)

    @property
    def mixture(self) -> Hashable:
        """How many pods of which pieces were evicted."""
        return frozenset(Counter(spot.piece for option, _ in self.path for spot in option.step).items())


def beam_way(board: Board, options: Options, effort: Effort, beam: Beam, best: Way) -> Way:
    """Return a better way than the best that is known, if one is found, else that one; the board is left as it was.

    Args:
        board: at its start, and `fine`.
        options: of this board.
        effort: what it may cost.
        beam: how broad the search is.
        best: known so far.
    """
    start = board.mark()
    levels: dict[int, list[_Candidate]] = {0: [_Candidate(board.potential(), 0, ())]}
    numbers = count(1)
    while levels:
        seen: set[Hashable] = set()
        for candidate in _broadest(levels.pop(min(levels))):
            if effort.exhausted:
                return best
            if len(seen) == beam.width:
                break
            _play(board, candidate.path)
            position = board.likeness()
            steps = () if position in seen else options.every(jointly=beam.jointly)
            board.revert(start)
            seen.add(position)
            for option in steps:
                for outcome, potential in zip(option.outcomes, option.potentials, strict=True):
                    following = _Candidate(potential, next(numbers), (*candidate.path, (option, outcome)))
                    if not best.excess and following.evictions + potential[0] >= best.evictions:
                        continue
                    levels.setdefault(following.evictions, []).append(following)
                    if (following.excess, following.evictions) < best.cost:
                        best = Way(_play(board, following.path), following.excess, proven=False)
                        board.revert(start)
    return best


def _play(board: Board, path: _Path) -> tuple[Choice, ...]:
    return tuple(
        Choice(option.step, board.play(option.step, outcome.placed), option.assessment, outcome)
        for option, outcome in path
    )


def _broadest(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """Sort candidates: the best of each mixture first, then the second of each, and so on."""
    of_mixture: Counter[Hashable] = Counter()
    places: list[tuple[int, _Candidate]] = []
    for candidate in sorted(candidates):
        mixture = candidate.mixture
        places.append((of_mixture[mixture], candidate))
        of_mixture[mixture] += 1
    return [candidate for _, candidate in sorted(places)]
