"""The search for the best path through the safe steps of a board: first greedy, then beams, then exhaustive.

The greedy way picks, at every position, the safe step after which the board is nearest to cured (on average over where
the scheduler may put the replacements). It nearly always needs exactly as many evictions as the lower bound says, and
is then known to be the shortest. Where it does not, beams nearly always find the best path. That no path is better
shows a search through all positions that may be (branch and bound).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, count, permutations
from typing import Any, Final, NamedTuple, TypeAlias

from respread.cluster.pod import Pod
from respread.planning.search.board import Board, Cost, Potential, SearchBudget, Spot
from respread.planning.search.safety import MOST_TOGETHER, Assessment, BoardStep, StepOutcome, assess
from respread.scheduling.view.node_table import NodeSet


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


def beam_path(board: Board, options: Options, beam: Beam, best: Path) -> Path:
    """Return a better path than the best known one if it finds one, else that one. The board is left as it was."""
    start, search_budget = board.mark(), options.rules.search_budget
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
            if position not in seen and _reach(board, candidate.evictions) < best.cost:
                steps = options.every(jointly=beam.jointly)
            board.revert(start)
            seen.add(position)
            for option in steps:
                for outcome, potential in zip(option.outcomes, option.potentials, strict=True):
                    following = _Candidate(potential, next(numbers), (*candidate.path, (option, outcome)))
                    if not best.cost.excess and following.evictions + potential.lower_bound >= best.cost.evictions:
                        continue
                    levels.setdefault(following.evictions, []).append(following)
                    if (cost := following.cost) < best.cost:
                        best = Path(_play(board, following.path), cost)
                        board.revert(start)
    return best


def _reach(board: Board, evictions: int) -> Cost:
    """Return what no path costs less than that goes on from here, after so many evictions."""
    reach = board.reach()
    return reach._replace(evictions=evictions + reach.evictions)


def _play(board: Board, path: _Played) -> tuple[Choice, ...]:
    return tuple(_take(board, option, outcome) for option, outcome in path)


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
    cost: Cost
    """What it leaves, and its evictions."""
    proven: bool = False
    """Whether no way that costs less exists."""
    cut: bool = False
    """Whether the path ends only because it is long enough. The rest is planned after it."""


class SearchRules(NamedTuple):
    """The parameters of a search besides the board."""

    disruption_cost: _DisruptionCost
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
    as_it_is = Path((), board.cost(), proven=True)
    if reach >= as_it_is.cost:
        return as_it_is
    if rules.known is not None and reach >= rules.known:
        return as_it_is._replace(proven=False)
    options = Options(board, rules)
    board.fine = False
    best = _greedy(board, options)
    if best.cut:
        return best
    board.fine = True
    for beam in _BEAMS:
        if best.cost > reach and (best.cost.excess or not beam.jointly):
            best = beam_path(board, options, beam, best)
    return best._replace(proven=True) if best.cost <= reach else _exhaustive(board, options, best)


def _greedy(board: Board, options: Options) -> Path:
    start = board.mark()
    choices: list[Choice] = []
    while board.excess() and len(choices) < _FARTHEST and (nearest := options.nearest()):
        choices.append(_take(board, nearest[0], nearest[0].outcomes[0]))
    cost = board.cost(len(choices))
    board.revert(start)
    return Path(tuple(choices), cost, cut=cost.excess > 0 and len(choices) == _FARTHEST)


def _exhaustive(board: Board, options: Options, best: Path) -> Path:
    """Look at every position from which a better path may lead, and return the best path."""
    budget, known = options.rules.search_budget, options.rules.known
    if not best.cost.excess:
        budget.draw_reserve()
    seen: set[Hashable] = set()
    path: list[Choice] = []
    least = best.cost if known is None else min(best.cost, known)

    def visit(evictions: int) -> None:
        nonlocal best, least
        if _reach(board, evictions) >= least:
            return
        position = board.likeness()
        if position in seen or budget.exhausted:
            return
        budget.spend()
        seen.add(position)
        if (cost := board.cost(evictions)) < least:
            best, least = Path(tuple(path), cost), cost
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


_MOST_AT_ONCE: Final = 12
"""If only the best step is needed, this many steps are compared by their outcomes."""

_DisruptionCost = Callable[[Pod, tuple[int, int]], Any]
"""A sort key for the disruption cost of a pod with that turn: the lowest is evicted first."""


class Option(NamedTuple):
    """A safe step."""

    step: BoardStep
    assessment: Assessment
    outcomes: tuple[StepOutcome, ...]
    """The likely outcomes, the best first."""
    potentials: tuple[Potential, ...]
    """The distance of the board to the goal after each of them."""


_Played: TypeAlias = tuple[tuple[Option, StepOutcome], ...]


class Options:
    """Finds safe steps, and sorts them by the distance of the board to the goal after them.

    The distance is the average over the likely landings. Among equal steps, the one whose pods have the lowest
    disruption cost is first.
    """

    __slots__ = ("_alone", "_board", "_jointly", "rules")

    def __init__(self, board: Board, rules: SearchRules) -> None:
        """Create it for a board, whose current position is used."""
        self._board = board
        self.rules = rules
        self._alone: dict[Hashable, tuple[Option, ...]] = {}
        self._jointly: dict[Hashable, tuple[Option, ...]] = {}

    def nearest(self) -> tuple[Option, ...]:
        """Return safe steps of one pod: from domains that are too full, and from others only if there are none.

        If there are many, it returns those that look best by the eviction alone, if any of them is safe.
        """
        for overfull in (True, False):
            spots = list(self._board.spots(overfull=overfull))
            if len(spots) > _MOST_AT_ONCE:
                spots.sort(key=self._promise)
            for first in range(0, len(spots), _MOST_AT_ONCE):
                steps = ((spot,) for spot in spots[first : first + _MOST_AT_ONCE])
                if found := self._ranked(steps, to_the_end=True):
                    return found
        return ()

    def _promise(self, spot: Spot) -> tuple[Potential, Any]:
        """Return the distance to the goal without the pod, wherever it lands, and its disruption cost."""
        board = self._board
        board.count(spot, -1)
        potential = board.potential()
        board.count(spot, 1)
        return potential, self.rules.disruption_cost(board.victim(spot), board.turn(spot))

    def every(self, *, jointly: bool) -> tuple[Option, ...]:
        """Return every safe step of one pod, and optionally those of several pods."""
        position = self._board.position()
        if (alone := self._alone.get(position)) is None:
            alone = self._alone[position] = self._ranked((spot,) for spot in self._board.spots(overfull=False))
        if not jointly:
            return alone
        if (together := self._jointly.get(position)) is None:
            together = self._jointly[position] = self._options_together(alone)
        return alone + together

    def _options_together(self, alone: Sequence[Option]) -> tuple[Option, ...]:
        """Return the safe steps of several pods of which no part is safe."""
        pattern = _Patterns(self._board)
        safe = {pattern(option.step) for option in alone}
        spots = [spot for spot in self._spots_together(pattern) if pattern((spot,)) not in safe]
        found: tuple[Option, ...] = ()
        for size in range(2, MOST_TOGETHER + 1):
            options = self._ranked(self._steps_together(spots, size, safe, pattern))
            safe.update(pattern(option.step) for option in options)
            found += options
        return found

    def _steps_together(
        self, spots: Sequence[Spot], size: int, safe: Collection[Hashable], pattern: _Patterns
    ) -> Iterator[BoardStep]:
        """Yield the steps of this many pods of which no part is safe, one of each set of equivalent steps."""
        seen: set[Hashable] = set()
        left = {spot: self._board.left(spot) for spot in spots}
        for step in combinations_with_replacement(spots, size):
            if self.rules.search_budget.exhausted:
                return
            if any(step.count(spot) > left[spot] for spot in step):
                continue
            self.rules.search_budget.spend()
            if (alike := pattern(step)) not in seen and not any(pattern(part) in safe for part in _parts(step)):
                seen.add(alike)
                yield step

    def _spots_together(self, pattern: _Patterns) -> list[Spot]:
        """Return the spots from which pods may be evicted; of equivalent spots, as many as pods in a step."""
        alike: Counter[Hashable] = Counter()
        found = []
        for spot in sorted(self._board.movable_spots()):
            of_spot = pattern((spot,))
            alike[of_spot] += 1
            if alike[of_spot] <= MOST_TOGETHER:
                found.append(spot)
        return found

    def _ranked(self, steps: Iterable[BoardStep], *, to_the_end: bool = False) -> tuple[Option, ...]:
        """Return the safe ones among some steps, the best first, and for each its best outcome first.

        `to_the_end` assesses all of them, whatever it costs.
        """
        board = self._board
        ranked: list[tuple[tuple[Any, ...], Option]] = []
        for step in steps:
            if self.rules.search_budget.exhausted and not to_the_end:
                break
            self.rules.search_budget.spend()
            victims = tuple(board.victim(spot, step[:at].count(spot)) for at, spot in enumerate(step))
            if len(step) > 1 and not self.rules.together(victims):
                continue
            assessment = assess(board, step, self.rules.search_budget)
            if assessment is None:
                continue
            likely = assessment.likely
            potentials = self._potentials(step, likely)
            expected = _expected(potentials, likely)
            by_potential = sorted(
                zip(potentials, likely, strict=True),
                key=lambda pair: (pair[0], _shunned(board, [pair[1]]), pair[1].placed),
            )
            turns = map(board.turn, step)
            disruption_cost = sorted(map(self.rules.disruption_cost, victims, turns), reverse=True)
            rank = (len(step), expected, _shunned(board, likely), disruption_cost, step)
            outcomes = tuple(outcome for _, outcome in by_potential)
            ranked.append((rank, Option(step, assessment, outcomes, tuple(each for each, _ in by_potential))))
        ranked.sort(key=lambda pair: pair[0])
        return tuple(option for _, option in ranked)

    def _potentials(self, step: BoardStep, outcomes: Sequence[StepOutcome]) -> list[Potential]:
        board = self._board
        potentials = []
        for spot in step:
            board.count(spot, -1)
        for outcome in outcomes:
            for spot in outcome.placed:
                board.count(spot, 1)
            potentials.append(board.potential())
            for spot in outcome.placed:
                board.count(spot, -1)
        for spot in step:
            board.count(spot, 1)
        return potentials


class _Patterns:
    """Distinguishes steps at one position of the board."""

    __slots__ = ("_board", "_kinds", "_patterns")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._kinds: dict[int, str] = {}
        self._patterns: dict[BoardStep, Hashable] = {}

    def __call__(self, step: BoardStep) -> Hashable:
        """Return a value that is equal for equivalent steps: of equivalent pods, and on one node if the others are."""
        if (found := self._patterns.get(step)) is None:
            slots = list(dict.fromkeys(spot.slot for spot in step))
            parts = [(spot.piece, self._kind(spot.slot), slots.index(spot.slot)) for spot in step]
            found = self._patterns[step] = min(
                tuple(sorted((piece, kind, order[at]) for piece, kind, at in parts))
                for order in permutations(range(len(slots)))
            )
        return found

    def _kind(self, slot: int) -> str:
        if (found := self._kinds.get(slot)) is None:
            found = self._kinds[slot] = repr(self._board.kind(slot))
        return found


def _shunned(board: Board, outcomes: Sequence[StepOutcome]) -> tuple[int, int]:
    """Return how many replacements have to go to nodes that are about to be deleted, and how many taints they meet.

    As long as a better node is feasible the scheduler gives them that, where no other score decides.
    """
    nodes_of: dict[int, NodeSet] = {}
    for outcome in outcomes:
        for spot, nodes in zip(outcome.placed, outcome.nodes, strict=True):
            nodes_of[spot.piece] = nodes_of.get(spot.piece, 0) | nodes
    doomed = taints = 0
    for piece, nodes in nodes_of.items():
        shunned = board.pieces[piece].shunned
        doomed += not shunned.preferred(nodes) & ~shunned.doomed
        taints += shunned.taints_on(nodes)
    return doomed, taints


def _expected(potentials: Sequence[Potential], outcomes: Sequence[StepOutcome]) -> tuple[float, float, float]:
    """Return how far from cured the board is on average over what may come of a step."""
    lower_bound = forms = excess = 0.0
    weight = 0
    for potential, outcome in zip(potentials, outcomes, strict=True):
        weight += outcome.weight
        lower_bound += potential.lower_bound * outcome.weight
        forms += potential.forms * outcome.weight
        excess += potential.excess * outcome.weight
    return lower_bound / weight, forms / weight, excess / weight


def _parts(step: BoardStep) -> Iterator[BoardStep]:
    """Yield the proper parts of a step."""
    for mask in range(1, (1 << len(step)) - 1):
        yield tuple(spot for at, spot in enumerate(step) if mask >> at & 1)
