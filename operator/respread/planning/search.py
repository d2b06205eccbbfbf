"""The shortest way to cure a board: greedy first, then as deep as the lower bound leaves a gap.

The greedy way picks, at every position, the safe step after which the board is nearest to cured (on average over where
the scheduler may put the replacement). It nearly always needs exactly as many moves as the lower bound says, and is
then known to be the shortest. Where it does not, iterative deepening from the lower bound looks for a shorter one;
and where the board can't be cured at all, an exhaustive search looks for the least excess that remains, then for the
fewest moves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Any, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.board import Assessment, Board, Landing, Step

Gentleness = Callable[[Pod], Any]
"""How gladly a pod is evicted, as something that sorts: the least first."""


class Choice(NamedTuple):
    """A step of a way, with the landing that the way goes on from."""

    step: Step
    victim: Pod
    assessment: Assessment
    landing: Landing


class Way(NamedTuple):
    """Steps that bring a board as near to cured as they can."""

    choices: tuple[Choice, ...]
    excess: int
    """What is left of the total excess."""
    proven: bool
    """Whether no way with less excess left, nor as little excess and fewer moves, exists. False only where the search
    stopped at its limit."""


def best_way(board: Board, gentleness: Gentleness, limit: int) -> Way:
    """Return the best way found with at most `limit` positions looked at; the board is left as it was."""
    search = _Search(board, gentleness, limit)
    lower_bound = board.lower_bound()
    greedy = search.greedy()
    if not greedy.excess and len(greedy.choices) <= lower_bound:
        return greedy._replace(proven=True)
    if lower_bound < inf:
        most = len(greedy.choices) - 1 if not greedy.excess else board.excess()
        for depth in range(int(lower_bound), most + 1):
            if (found := search.cure_within(depth)) is not None:
                return Way(tuple(found), 0, proven=not search.exhausted)
            if search.exhausted:
                break
    if not greedy.excess:
        return greedy._replace(proven=not search.exhausted)
    return search.least_excess(greedy)


class _Search:
    __slots__ = ("_board", "_gentleness", "_left")

    def __init__(self, board: Board, gentleness: Gentleness, limit: int) -> None:
        self._board = board
        self._gentleness = gentleness
        self._left = limit

    @property
    def exhausted(self) -> bool:
        return self._left <= 0

    def greedy(self) -> Way:
        choices: list[Choice] = []
        while self._board.excess() and (options := self._options()):
            choices.append(options[0])
            self._board.move(options[0].step, options[0].landing.node)
        excess = self._board.excess()
        for _ in choices:
            self._board.undo()
        return Way(tuple(choices), excess, proven=False)

    def cure_within(self, depth: int) -> list[Choice] | None:
        """Return a cure of at most this many moves, or None where there is none (or the limit is reached)."""
        return self._cure(depth, {})

    def _cure(self, depth: int, failed: dict[Hashable, int]) -> list[Choice] | None:
        if not self._board.excess():
            return []
        position = self._board.signature()
        if self._board.lower_bound() > depth or failed.get(position, -1) >= depth or self.exhausted:
            return None
        self._left -= 1
        for option in self._options():
            self._board.move(option.step, option.landing.node)
            rest = self._cure(depth - 1, failed)
            self._board.undo()
            if rest is not None:
                return [option, *rest]
        failed[position] = depth
        return None

    def least_excess(self, best: Way) -> Way:
        """Look at every position within reach, and return the way to the one with least excess by fewest moves."""
        reached: dict[Hashable, int] = {}
        path: list[Choice] = []

        def visit() -> None:
            nonlocal best
            position = self._board.signature()
            if reached.get(position, len(path) + 1) <= len(path) or self.exhausted:
                return
            self._left -= 1
            reached[position] = len(path)
            excess = self._board.excess()
            if (excess, len(path)) < (best.excess, len(best.choices)):
                best = Way(tuple(path), excess, proven=False)
            for option in self._options():
                path.append(option)
                self._board.move(option.step, option.landing.node)
                visit()
                self._board.undo()
                path.pop()

        visit()
        return best._replace(proven=not self.exhausted)

    def _options(self) -> list[Choice]:
        """Return every safe step with each likely landing: the best step first, and its best landing first."""
        ranked: list[tuple[tuple[Any, ...], list[Choice]]] = []
        for step in self._board.steps():
            assessment = self._board.assess(step)
            if assessment is None:
                continue
            likely = [landing for landing in assessment.landings if landing.likely]
            potentials = [self._potential_after(step, landing) for landing in likely]
            nodes = sum(len(landing.nodes) for landing in likely)
            expected = tuple(
                sum(potential[part] * len(landing.nodes) for potential, landing in zip(potentials, likely, strict=True))
                / nodes
                for part in range(3)
            )
            victim = self._board.victim(step)
            by_potential = sorted(zip(potentials, likely, strict=True), key=lambda pair: (pair[0], pair[1].node))
            rank = (expected, self._gentleness(victim), victim.key)
            ranked.append((rank, [Choice(step, victim, assessment, landing) for _, landing in by_potential]))
        ranked.sort(key=lambda pair: pair[0])
        return [choice for _, choices in ranked for choice in choices]

    def _potential_after(self, step: Step, landing: Landing) -> tuple[float, float, int]:
        self._board.move(step, landing.node)
        potential = self._board.potential()
        self._board.undo()
        return potential
