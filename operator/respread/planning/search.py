"""The shortest way to cure a board: greedy first, then as deep as the lower bound leaves a gap.

The greedy way picks, at every position, the safe step after which the board is nearest to cured (on average over where
the scheduler may put the replacements). It nearly always needs exactly as many evictions as the lower bound says, and
is then known to be the shortest. Where it does not, iterative deepening from the lower bound (IDA*) looks for a shorter
one, with pods one by one and then with pods together too; and where the board can't be cured at all, an exhaustive
search looks for the least excess that remains, then for the fewest evictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import combinations_with_replacement, permutations
from math import inf
from typing import Any, Final, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.board import Board, Spot
from respread.planning.safety import Assessment, Outcome, Step, assess

MOST_TOGETHER: Final = 3
"""No more pods than this are evicted together because no part of them can go alone."""

Gentleness = Callable[[Pod], Any]
"""How gladly a pod is evicted, as something that sorts: the least first."""


class Choice(NamedTuple):
    """A step of a way, with the outcome that the way goes on from."""

    step: Step
    victims: tuple[Pod, ...]
    assessment: Assessment
    outcome: Outcome


class Way(NamedTuple):
    """Steps that bring a board as near to cured as they can."""

    choices: tuple[Choice, ...]
    excess: int
    """What is left of the total excess."""
    proven: bool
    """Whether no way with less excess left, nor as little excess and fewer evictions, exists. False only where the
    search stopped at its limit."""

    @property
    def evictions(self) -> int:
        """How many pods are evicted."""
        return sum(len(choice.step) for choice in self.choices)


class Rules(NamedTuple):
    """What a search goes by besides the board."""

    gentleness: Gentleness
    together: Callable[[Sequence[Pod]], bool]
    """Whether pods may be evicted at the same time."""
    limit: int
    """How many steps to assess at the most before the best way so far is taken."""


def best_way(board: Board, rules: Rules) -> Way:
    """Return the best way found; the board is left as it was."""
    search = _Search(board, rules)
    reach = board.reach()
    if reach.excess >= board.excess():
        return Way((), board.excess(), proven=True)
    board.fine = False
    greedy = search.greedy()
    if greedy.excess <= reach.excess and greedy.evictions <= reach.moves:
        return greedy._replace(proven=True)
    board.fine = True
    if not reach.excess:
        cure = search.shortest_cure(greedy.evictions if not greedy.excess else None)
        if cure is not None:
            return cure
    if not greedy.excess:
        return greedy._replace(proven=not search.exhausted)
    return search.least_excess(greedy)


class _Option(NamedTuple):
    step: Step
    assessment: Assessment
    outcomes: tuple[Outcome, ...]
    """The likely ones, the best first."""


class _Search:
    __slots__ = ("_alone", "_board", "_jointly", "_left", "_next_depth", "_rules")

    def __init__(self, board: Board, rules: Rules) -> None:
        self._board = board
        self._rules = rules
        self._left = rules.limit
        self._next_depth: float = inf
        self._alone: dict[Hashable, tuple[_Option, ...]] = {}
        self._jointly: dict[Hashable, tuple[_Option, ...]] = {}

    @property
    def exhausted(self) -> bool:
        return self._left <= 0

    # Greedily

    def greedy(self) -> Way:
        board = self._board
        start = board.mark()
        choices: list[Choice] = []
        while board.excess() and (options := self._greedy_options()):
            choices.append(self._take(options[0], options[0].outcomes[0]))
        excess = board.excess()
        board.revert(start)
        return Way(tuple(choices), excess, proven=False)

    def _greedy_options(self) -> Sequence[_Option]:
        found = self._ranked((spot,) for spot in self._board.spots(overfull=True))
        if not found:
            found = self._ranked((spot,) for spot in self._board.spots(overfull=False))
        return found

    # As short as can be

    def shortest_cure(self, known: int | None) -> Way | None:
        """Return the shortest cure if there is one with fewer evictions than a known one; None otherwise."""
        depth = self._board.lower_bound()
        while depth < inf and (known is None or depth < known) and not self.exhausted:
            following = inf
            for jointly in (False, True):
                self._next_depth = inf
                found = self._cure(0, int(depth), {}, jointly=jointly)
                if found is not None:
                    return Way(tuple(found), 0, proven=not self.exhausted)
                following = self._next_depth
            depth = following
        return None

    def _cure(self, evictions: int, depth: int, failed: dict[Hashable, int], *, jointly: bool) -> list[Choice] | None:
        """Return how to go on from here to a cure of at most `depth` evictions, so many having been made."""
        board = self._board
        if not board.excess():
            return []
        needed = evictions + board.lower_bound()
        if needed > depth:
            self._next_depth = min(self._next_depth, needed)
            return None
        position = board.signature()
        if failed.get(position, depth) <= evictions or self.exhausted:
            return None
        for option in self._options(position, jointly=jointly):
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
        """Look at every position within reach, and return the way to the one with least excess by fewest moves."""
        board = self._board
        reached: dict[Hashable, int] = {}
        path: list[Choice] = []

        def visit(evictions: int) -> None:
            nonlocal best
            position = board.signature()
            if reached.get(position, evictions + 1) <= evictions or self.exhausted:
                return
            reached[position] = evictions
            if (board.excess(), evictions) < (best.excess, best.evictions):
                best = Way(tuple(path), board.excess(), proven=False)
            for option in self._options(position, jointly=True):
                for outcome in option.outcomes:
                    mark = board.mark()
                    path.append(self._take(option, outcome))
                    visit(evictions + len(option.step))
                    board.revert(mark)
                    path.pop()

        visit(0)
        return best._replace(proven=not self.exhausted)

    # Options

    def _take(self, option: _Option, outcome: Outcome) -> Choice:
        victims = self._board.play(option.step, outcome.placed)
        return Choice(option.step, victims, option.assessment, outcome)

    def _options(self, position: Hashable, *, jointly: bool) -> tuple[_Option, ...]:
        """Return every safe step, the best first: those of one pod, and if wanted those of pods together."""
        if (alone := self._alone.get(position)) is None:
            alone = self._alone[position] = self._ranked((spot,) for spot in self._board.spots(overfull=False))
        if not jointly:
            return alone
        if (together := self._jointly.get(position)) is None:
            together = self._jointly[position] = self._options_together(alone)
        return alone + together

    def _options_together(self, alone: Sequence[_Option]) -> tuple[_Option, ...]:
        """Return the safe steps of several pods no part of which is safe."""
        safe = {self._pattern(option.step) for option in alone}
        spots = [spot for spot in self._spots_together() if self._pattern((spot,)) not in safe]
        found: tuple[_Option, ...] = ()
        for size in range(2, MOST_TOGETHER + 1):
            options = self._ranked(self._steps_together(spots, size, safe))
            safe.update(self._pattern(option.step) for option in options)
            found += options
        return found

    def _steps_together(self, spots: Sequence[Spot], size: int, safe: Collection[Hashable]) -> Iterator[Step]:
        """Yield the steps of so many pods of which no part is safe, one of those that are alike."""
        seen: set[Hashable] = set()
        for step in combinations_with_replacement(spots, size):
            if any(step.count(spot) > self._board.left(spot) for spot in step):
                continue
            self._left -= 1
            pattern = self._pattern(step)
            if pattern not in seen and not any(self._pattern(part) in safe for part in _parts(step)):
                seen.add(pattern)
                yield step

    def _spots_together(self) -> list[Spot]:
        """Return the spots that pods may be evicted from, of those that are alike as many as go together."""
        alike: Counter[Hashable] = Counter()
        found = []
        for spot in sorted(self._board.movable_spots()):
            pattern = self._pattern((spot,))
            alike[pattern] += 1
            if alike[pattern] <= MOST_TOGETHER:
                found.append(spot)
        return found

    def _pattern(self, step: Step) -> Hashable:
        """Return a value that is equal for steps that are alike: of pods that are, and on one node if they are."""
        slots = list(dict.fromkeys(spot.slot for spot in step))
        parts = [(spot.piece, self._board.kind(spot.slot), slots.index(spot.slot)) for spot in step]
        if len(step) == 1:
            return parts[0]
        return min(
            tuple(sorted(((piece, repr(kind), order[at]) for piece, kind, at in parts)))
            for order in permutations(range(len(slots)))
        )

    def _ranked(self, steps: Iterator[Step] | Sequence[Step]) -> tuple[_Option, ...]:
        """Return the safe ones of some steps: the best first, and of each its best outcome first."""
        board = self._board
        ranked: list[tuple[tuple[Any, ...], _Option]] = []
        for step in steps:
            if self.exhausted:
                break
            self._left -= 1
            victims = _victims(board, step)
            if len(step) > 1 and not self._rules.together(victims):
                continue
            assessment = assess(board, step)
            if assessment is None:
                continue
            likely = assessment.likely
            potentials = self._potentials(step, likely)
            weight = sum(outcome.weight for outcome in likely)
            expected = tuple(
                sum(potential[part] * outcome.weight for potential, outcome in zip(potentials, likely, strict=True))
                / weight
                for part in range(3)
            )
            by_potential = sorted(zip(potentials, likely, strict=True), key=lambda pair: (pair[0], pair[1].placed))
            gentleness = sorted((self._rules.gentleness(pod) for pod in victims), reverse=True)
            rank = (len(step), expected, gentleness, step)
            ranked.append((rank, _Option(step, assessment, tuple(outcome for _, outcome in by_potential))))
        ranked.sort(key=lambda pair: pair[0])
        return tuple(option for _, option in ranked)

    def _potentials(self, step: Step, outcomes: Sequence[Outcome]) -> list[tuple[float, float, int]]:
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


def _victims(board: Board, step: Step) -> tuple[Pod, ...]:
    return tuple(board.victim(spot, step[:at].count(spot)) for at, spot in enumerate(step))


def _parts(step: Step) -> Iterator[Step]:
    """Yield the proper parts of a step."""
    for mask in range(1, (1 << len(step)) - 1):
        yield tuple(spot for at, spot in enumerate(step) if mask >> at & 1)
