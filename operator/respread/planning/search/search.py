"""The search for the shortest path: first greedy, then beams, then iterative deepening from the lower bound.

The greedy search picks, at every position, the safe step that brings the board closest to the goal, on average over the
likely landings. It nearly always needs exactly as many evictions as the lower bound, and is then proven to be optimal.
If not, beams (`beam`) nearly always find the shortest path. Iterative deepening from the lower bound (IDA*), with
single pods and then also with several pods at once, proves that no path is shorter. If no path restores everything, an
exhaustive search looks for the least remaining excess, and then for the fewest evictions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.search.beam import Beam, beam_way
from respread.planning.search.board import Board
from respread.planning.search.options import Gentleness, Option, Options
from respread.planning.search.path import Choice, Way
from respread.planning.search.safety import StepOutcome
from respread.planning.search.search_budget import Effort


class SearchRules(NamedTuple):
    """The parameters of a search besides the board."""

    gentleness: Gentleness
    together: Callable[[Sequence[Pod]], bool]
    """Whether pods may be evicted at the same time."""
    effort: Effort
    """The budget of the search. When it is spent, the search returns the best path so far."""


_BEAMS: Final = (Beam(12), Beam(48), Beam(192), Beam(2, jointly=True), Beam(6, jointly=True))
"""Beams with several pods per step come last, and only run if the others leave excess, because they cost by far the
most."""

_FARTHEST: Final = 300
"""The search looks at most this many steps ahead. Each wave is planned anew, and no more are evicted at a time."""


def best_way(board: Board, rules: SearchRules) -> Way:
    """Return the best path found. The board is left as it was."""
    reach = board.reach()
    if reach.excess >= board.excess():
        return Way((), board.excess(), proven=True)
    search = _Search(board, rules)
    board.fine = False
    best = search.greedy()
    if best.cut:
        return best
    board.fine = True
    for beam in _BEAMS:
        if best.cost > reach and (best.excess or not beam.jointly):
            best = beam_way(board, search.options, rules.effort, beam, best)
    if best.cost <= reach:
        return best._replace(proven=True)
    return search.least_excess(best) if best.excess else search.shortest_cure(best)


class _Search:
    __slots__ = ("_board", "_effort", "_next_depth", "options")

    def __init__(self, board: Board, rules: SearchRules) -> None:
        self._board = board
        self._effort = rules.effort
        self.options = Options(board, self._effort, rules.gentleness, rules.together)
        self._next_depth: float = inf

    @property
    def exhausted(self) -> bool:
        return self._effort.exhausted

    # Greedily

    def greedy(self) -> Way:
        board = self._board
        start = board.mark()
        choices: list[Choice] = []
        while board.excess() and len(choices) < _FARTHEST and (options := self.options.nearest()):
            choices.append(self._take(options[0], options[0].outcomes[0]))
        excess = board.excess()
        board.revert(start)
        return Way(tuple(choices), excess, proven=False, cut=excess > 0 and len(choices) == _FARTHEST)

    # As short as can be

    def shortest_cure(self, known: Way) -> Way:
        """Return the shortest path that restores everything, given one such path."""
        self._effort.draw_reserve()
        depth = self._board.lower_bound()
        while depth < known.evictions and not self.exhausted:
            following = inf
            for jointly in (False, True):
                self._next_depth = inf
                found = self._cure(0, int(depth), {}, jointly=jointly)
                if found is not None:
                    return Way(tuple(found), 0, proven=not self.exhausted)
                following = self._next_depth
            depth = following
        return known._replace(proven=not self.exhausted)

    def _cure(self, evictions: int, depth: int, failed: dict[Hashable, int], *, jointly: bool) -> list[Choice] | None:
        """Return how to continue to the goal with at most `depth` evictions in total, after this many."""
        board = self._board
        if not board.excess():
            return []
        needed = evictions + board.lower_bound()
        if needed > depth:
            self._next_depth = min(self._next_depth, needed)
            return None
        position = board.likeness()
        if failed.get(position, depth) <= evictions or self.exhausted:
            return None
        self._effort.spend()
        for option in self.options.every(jointly=jointly):
            after = evictions + len(option.step)
            if after > depth:
                self._next_depth = min(self._next_depth, after)
                continue
            for outcome in option.outcomes:
                mark = board.mark()
                choice = self._take(option, outcome)
                rest = self._cure(after, depth, failed, jointly=jointly)
                board.revert(mark)
                if rest is not None:
                    return [choice, *rest]
        failed[position] = evictions
        return None

    # As little excess as can be

    def least_excess(self, best: Way) -> Way:
        """Examine every position that may be better, and return the path to the least excess by the fewest moves."""
        board = self._board
        reached: dict[Hashable, int] = {}
        path: list[Choice] = []

        def visit(evictions: int) -> None:
            nonlocal best
            reach = board.reach()
            if (reach.excess, evictions + reach.moves) >= (best.excess, best.evictions):
                return
            position = board.likeness()
            if reached.get(position, evictions + 1) <= evictions or self.exhausted:
                return
            self._effort.spend()
            reached[position] = evictions
            if (board.excess(), evictions) < (best.excess, best.evictions):
                best = Way(tuple(path), board.excess(), proven=False)
            for option in self.options.every(jointly=True):
                for outcome in option.outcomes:
                    mark = board.mark()
                    path.append(self._take(option, outcome))
                    visit(evictions + len(option.step))
                    board.revert(mark)
                    path.pop()

        visit(0)
        return best._replace(proven=not self.exhausted)

    def _take(self, option: Option, outcome: StepOutcome) -> Choice:
        victims = self._board.play(option.step, outcome.placed)
        return Choice(option.step, victims, option.assessment, outcome)
