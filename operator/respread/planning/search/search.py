"""The search for the shortest path: first greedy, then beams, then iterative deepening from the lower bound.

The greedy way picks, at every position, the safe step after which the board is nearest to cured (on average over where
the scheduler may put the replacements). It nearly always needs exactly as many evictions as the lower bound says, and
is then known to be the shortest. Where it does not, beams (`beam`) nearly always find the shortest way. That no cure is
shorter shows iterative deepening from the lower bound (IDA*), with pods one by one and then with pods together too;
where no cure is found an exhaustive search looks for the way that leaves the fewest groups violated, then the least
excess, by the fewest evictions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.search.beam import Beam, beam_path
from respread.planning.search.board import Board
from respread.planning.search.cost import Cost
from respread.planning.search.options import DisruptionCost, Option, Options
from respread.planning.search.path import Choice, Path
from respread.planning.search.safety import StepOutcome
from respread.planning.search.search_budget import SearchBudget


class SearchRules(NamedTuple):
    """The parameters of a search besides the board."""

    disruption_cost: DisruptionCost
    together: Callable[[Sequence[Pod]], bool]
    """Whether pods may be evicted at the same time."""
    search_budget: SearchBudget
    """What the search may cost; once that is spent the best way so far is taken."""
    known: Cost | None = None
    """What is known to be possible: what does not cost less is of no use."""


_BEAMS: Final = (Beam(12), Beam(48), Beam(192), Beam(2, jointly=True), Beam(6, jointly=True))
"""Beams with several pods per step come last, and only run if the others leave excess, because they cost by far the
most."""

_FARTHEST: Final = 300
"""The search looks at most this many steps ahead. Each wave is planned again, and no more are evicted at a time."""


def best_path(board: Board, rules: SearchRules) -> Path:
    """Return the best path found. The board is left as it was."""
    reach = board.reach()
    as_it_is = Path((), board.violated(), board.excess(), proven=True)
    if reach[:2] >= as_it_is.cost[:2]:
        return as_it_is
    if rules.known is not None and reach >= rules.known:
        return as_it_is._replace(proven=False)
    search = _Search(board, rules)
    board.fine = False
    best = search.greedy()
    if best.cut:
        return best
    board.fine = True
    for beam in _BEAMS:
        if best.cost > reach and (best.excess or not beam.jointly):
            best = beam_path(board, search.options, rules.search_budget, beam, best)
    if best.cost <= reach:
        return best._replace(proven=True)
    return search.nearest_cure(best) if best.excess else search.shortest_cure(best)


class _Search:
    __slots__ = ("_board", "_known", "_next_depth", "_search_budget", "options")

    def __init__(self, board: Board, rules: SearchRules) -> None:
        self._board = board
        self._search_budget = rules.search_budget
        self._known = rules.known
        self.options = Options(board, self._search_budget, rules.disruption_cost, rules.together)
        self._next_depth: float = inf

    @property
    def exhausted(self) -> bool:
        return self._search_budget.exhausted

    # Greedily

    def greedy(self) -> Path:
        board = self._board
        start = board.mark()
        choices: list[Choice] = []
        while board.excess() and len(choices) < _FARTHEST and (options := self.options.nearest()):
            choices.append(self._take(options[0], options[0].outcomes[0]))
        violated, excess = board.violated(), board.excess()
        board.revert(start)
        return Path(tuple(choices), violated, excess, cut=excess > 0 and len(choices) == _FARTHEST)

    # As short as can be

    def shortest_cure(self, known: Path) -> Path:
        """Return the shortest path that restores everything, given one such path."""
        self._search_budget.draw_reserve()
        depth = self._board.lower_bound()
        fewest = known.evictions if self._known is None else min(known.cost, self._known).evictions
        while depth < fewest and not self.exhausted:
            following = inf
            for jointly in (False, True):
                self._next_depth = inf
                found = self._cure(0, int(depth), {}, jointly=jointly)
                if found is not None:
                    return Path(tuple(found), known.violated, 0, proven=not self.exhausted)
                following = self._next_depth
            depth = following
        return known._replace(proven=known.evictions == fewest and not self.exhausted)

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
        self._search_budget.spend()
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

    # As near as can be

    def nearest_cure(self, best: Path) -> Path:
        """Look at every position that may be better; return the way to the one that costs least."""
        board = self._board
        reached: dict[Hashable, int] = {}
        path: list[Choice] = []
        least = best.cost if self._known is None else min(best.cost, self._known)

        def visit(evictions: int) -> None:
            nonlocal best, least
            reach = board.reach()
            if reach._replace(evictions=evictions + reach.evictions) >= least:
                return
            position = board.likeness()
            if reached.get(position, evictions + 1) <= evictions or self.exhausted:
                return
            self._search_budget.spend()
            reached[position] = evictions
            if (cost := Cost(board.violated(), board.excess(), evictions)) < least:
                best, least = Path(tuple(path), cost.violated, cost.excess), cost
            for option in self.options.every(jointly=True):
                for outcome in option.outcomes:
                    mark = board.mark()
                    path.append(self._take(option, outcome))
                    visit(evictions + len(option.step))
                    board.revert(mark)
                    path.pop()

        visit(0)
        return best._replace(proven=best.cost == least and not self.exhausted)

    def _take(self, option: Option, outcome: StepOutcome) -> Choice:
        victims = self._board.play(option.step, outcome.placed)
        return Choice(option.step, victims, option.assessment, outcome)
