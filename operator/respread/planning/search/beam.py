"""Beam search: follows many greedy paths side by side.

A single greedy path may evict the pods that could go anywhere before those that have few places, and end where no step
is safe. So after each number of evictions, several positions are kept, the best ones for every mixture of templates
evicted so far. The mixture matters because the distance to the goal does not show which pods to keep for later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import count
from typing import NamedTuple, TypeAlias

from respread.planning.search.board import Board, Potential
from respread.planning.search.cost import Cost
from respread.planning.search.options import Option, Options
from respread.planning.search.path import Choice, Path
from respread.planning.search.safety import StepOutcome
from respread.planning.search.search_budget import SearchBudget

_Played: TypeAlias = tuple[tuple[Option, StepOutcome], ...]


class Beam(NamedTuple):
    """The size of a beam search."""

    width: int
    """How many positions are kept after each number of evictions."""
    jointly: bool = False
    """Whether to evict pods together that can't be evicted alone."""


class _Candidate(NamedTuple):
    """A position to continue from. It sorts by distance to the goal, then by when it was found."""

    potential: Potential
    number: int
    path: _Played

    @property
    def cost(self) -> Cost:
        return Cost(self.potential.violated, self.potential.excess, self.evictions)

    @property
    def evictions(self) -> int:
        return sum(len(option.step) for option, _ in self.path)

    @property
    def mixture(self) -> Hashable:
        """The number of evicted pods of each piece."""
        return frozenset(Counter(spot.piece for option, _ in self.path for spot in option.step).items())


def beam_path(board: Board, options: Options, search_budget: SearchBudget, beam: Beam, best: Path) -> Path:
    """Return a better path than the best known one if it finds one, else that one. The board is left as it was.

    Args:
        board: at its start, and `fine`.
        options: of this board.
        search_budget: the budget.
        beam: the size of the search.
        best: the best known path.
    """
    start = board.mark()
    levels: dict[int, list[_Candidate]] = {0: [_Candidate(board.potential(), 0, ())]}
    numbers = count(1)
    while levels:
        seen: set[Hashable] = set()
        for candidate in _broadest(levels.pop(min(levels))):
            if search_budget.exhausted:
                return best
            if len(seen) == beam.width:
                break
            _play(board, candidate.path)
            position = board.likeness()
            steps: tuple[Option, ...] = ()
            if position not in seen and _reach(board, candidate) < best.cost:
                steps = options.every(jointly=beam.jointly)
            board.revert(start)
            seen.add(position)
            for option in steps:
                for outcome, potential in zip(option.outcomes, option.potentials, strict=True):
                    following = _Candidate(potential, next(numbers), (*candidate.path, (option, outcome)))
                    if not best.excess and following.evictions + potential.lower_bound >= best.evictions:
                        continue
                    levels.setdefault(following.evictions, []).append(following)
                    if (cost := following.cost) < best.cost:
                        best = Path(_play(board, following.path), cost.violated, cost.excess, proven=False)
                        board.revert(start)
    return best


def _reach(board: Board, candidate: _Candidate) -> Cost:
    """Return what no path costs less than that goes on from here, after the candidate's evictions."""
    reach = board.reach()
    return reach._replace(evictions=candidate.evictions + reach.evictions)


def _play(board: Board, path: _Played) -> tuple[Choice, ...]:
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
