"""The search for the best path: first greedy, then beams, then exhaustive.

The greedy way picks, at every position, the safe step after which the board is nearest to cured (on average over where
the scheduler may put the replacements). It nearly always needs exactly as many evictions as the lower bound says, and
is then known to be the shortest. Where it does not, beams (`beam`) nearly always find the best path. That no path is
better shows a search through all positions that may be (branch and bound).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
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


_BEAMS: Final = (Beam(12), Beam(192), Beam(2, jointly=True))
"""Beams with several pods per step come last, and only run if the others leave excess, because they cost by far the
most (docs/decisions/measured-search.md)."""

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
    options = Options(board, rules.search_budget, rules.disruption_cost, rules.together)
    board.fine = False
    best = _greedy(board, options)
    if best.cut:
        return best
    board.fine = True
    for beam in _BEAMS:
        if best.cost > reach and (best.excess or not beam.jointly):
            best = beam_path(board, options, rules.search_budget, beam, best)
    return best._replace(proven=True) if best.cost <= reach else _exhaustive(board, options, rules, best)


def _greedy(board: Board, options: Options) -> Path:
    start = board.mark()
    choices: list[Choice] = []
    while board.excess() and len(choices) < _FARTHEST and (nearest := options.nearest()):
        choices.append(_take(board, nearest[0], nearest[0].outcomes[0]))
    violated, excess = board.violated(), board.excess()
    board.revert(start)
    return Path(tuple(choices), violated, excess, proven=False, cut=excess > 0 and len(choices) == _FARTHEST)


def _exhaustive(board: Board, options: Options, rules: SearchRules, best: Path) -> Path:
    """Look at every position from which a better path may lead, and return the best path."""
    budget = rules.search_budget
    if not best.excess:
        budget.draw_reserve()
    seen: set[Hashable] = set()
    path: list[Choice] = []
    least = best.cost if rules.known is None else min(best.cost, rules.known)

    def visit(evictions: int) -> None:
        nonlocal best, least
        reach = board.reach()
        if reach._replace(evictions=evictions + reach.evictions) >= least:
            return
        position = board.likeness()
        if position in seen or budget.exhausted:
            return
        budget.spend()
        seen.add(position)
        if (cost := Cost(board.violated(), board.excess(), evictions)) < least:
            best, least = Path(tuple(path), cost.violated, cost.excess, proven=False), cost
        for option in options.every(jointly=True):
            for outcome in option.outcomes:
                mark = board.mark()
                path.append(_take(board, option, outcome))
                visit(evictions + len(option.step))
                board.revert(mark)
                path.pop()

    visit(0)
    return best._replace(proven=best.cost == least and not budget.exhausted)


def _take(board: Board, option: Option, outcome: StepOutcome) -> Choice:
    return Choice(option.step, board.play(option.step, outcome.placed), option.assessment, outcome)
