"""The search for the best path: first greedy, then beams, then exhaustive.

The greedy way picks, at every position, the safe step after which the board is nearest to cured (on average over where
the scheduler may put the replacements). It nearly always needs exactly as many evictions as the lower bound says, and
is then known to be the shortest. Where it does not, beams nearly always find the best path. That no path is better
shows a search through all positions that may be (branch and bound).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from respread.cluster.pod import Pod
from respread.planning.search.board import Board, Potential
from respread.planning.search.cost import Cost, SearchBudget
from respread.planning.search.options import DisruptionCost, Option, Options
from respread.planning.search.safety import Assessment, BoardStep, StepOutcome

_Played: TypeAlias = tuple[tuple[Option, StepOutcome], ...]


class Beam(NamedTuple):
    """The size of a beam search, which follows many greedy paths side by side.

    A single greedy path may evict the pods that could go anywhere before those that have few places, and end where no
    step is safe. So after each number of evictions, several positions are kept, the best ones for every mixture of
    templates evicted so far. The mixture matters because the distance to the goal does not show which pods to keep for
    later.
    """

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
            search_budget.spend(len(candidate.path))  # As long as a look takes each step that is played again.
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


class Choice(NamedTuple):
    """A step of a path, with the outcome from which the path continues."""

    step: BoardStep
    victims: tuple[Pod, ...]
    assessment: Assessment
    outcome: StepOutcome


class Path(NamedTuple):
    """Steps in their order."""

    choices: tuple[Choice, ...]
    violated: tuple[int, ...]
    """How many of the groups to be cured are violated then, by the rank of their policies."""
    excess: int
    """The remaining total excess."""
    proven: bool = False
    """Whether no way that costs less exists."""
    cut: bool = False
    """Whether the path ends only because it is long enough. The rest is planned after it."""

    @property
    def evictions(self) -> int:
        """The number of evicted pods."""
        return sum(len(choice.step) for choice in self.choices)

    @property
    def cost(self) -> Cost:
        """What is less for a better way."""
        return Cost(self.violated, self.excess, self.evictions)


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
