"""One component after the other is solved on one view of the cluster; those that compete for room are solved together.

What the moves of one component take of the nodes is there for the next to see, so the order decides who gets the room.
Mostly nobody wants the same. Where a component could not be brought to what it could reach alone, and others took or
would leave the room that it needs, they are solved as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.blocked import why_blocked
from respread.planning.board import Board
from respread.planning.held import Held
from respread.planning.placement import Placement
from respread.planning.protection import victim_order
from respread.planning.search import Rules, Way, best_way
from respread.planning.setting_up import set_up
from respread.planning.task import Task
from respread.scheduling.node_sets import NodeSet, node_set, slots_of
from respread.spread.group import GroupKey

MOST_PODS: Final = 60
"""Components that compete for room are solved as one if they have no more pods than this that may be evicted."""


class Solution(NamedTuple):
    """The best way found for some tasks, mostly one."""

    tasks: tuple[Task, ...]
    board: Board
    way: Way
    ideal: bool
    """Whether nothing better could be, however much room there were."""
    lower_bound: int
    """No way that leaves as little excess has fewer evictions."""
    excess: int
    """What there was to begin with."""
    stuck: tuple[tuple[GroupKey, Held], ...]
    """The groups that stay violated, and why."""
    counts_before: Mapping[GroupKey, Mapping[str, int]]
    """Matching pods per domain, for every group that the way changes."""
    counts_after: Mapping[GroupKey, Mapping[str, int]]


class Solver:
    """Solves tasks on one view of the cluster."""

    __slots__ = ("_limit", "_placement", "_together")

    def __init__(self, placement: Placement, together: Callable[[Sequence[Pod]], bool], limit: int) -> None:
        """Prepare.

        Args:
            placement: the cluster; left with the replacements of what was solved placed on it.
            together: tells whether pods may be evicted at the same time.
            limit: how many steps to assess for one board at the most.
        """
        self._placement = placement
        self._together = together
        self._limit = limit

    def solve(self, tasks: Iterable[Task]) -> list[Solution]:
        """Return the best ways for all tasks, in their order but for those solved together."""
        view = self._placement.view
        start = view.mark()
        solutions: list[Solution] = []
        for task in tasks:
            solutions.append(self._solve((task,)))
            self._reserve(solutions[-1])
        view.revert(start)
        for rivals in self._rivals(solutions):
            others = [each for each in solutions if not any(each is rival for rival in rivals)]
            for solution in others:
                self._reserve(solution)
            joint = self._solve(tuple(task for solution in rivals for task in solution.tasks))
            view.revert(start)
            if _quality([joint]) < _quality(rivals):
                solutions = [*others, joint]
        return solutions

    def _solve(self, tasks: tuple[Task, ...]) -> Solution:
        board = set_up(tasks, self._placement)
        excess, lower_bound = board.excess(), board.lower_bound()
        way = best_way(board, Rules(victim_order, self._together, self._limit))
        ideal = way.proven and (way.excess, way.evictions) <= board.reach(however_much_room=True)
        known = way.evictions if way.proven else 0 if way.excess else int(lower_bound)
        protected = [pair for task in tasks for pair in task.protected]
        before = {tally.group.key: tally.counts for tally in board.tallies}
        start = board.mark()
        for choice in way.choices:
            board.play(choice.step, choice.outcome.placed)
        stuck = tuple(
            (tally.group.key, why_blocked(tally, board, protected, proven=way.proven))
            for tally in board.tallies
            if tally.cure and tally.excess()
        )
        after = {tally.group.key: tally.counts for tally in board.tallies}
        board.revert(start)
        changed = [key for key in after if after[key] != before[key]]
        return Solution(
            tasks=tasks,
            board=board,
            way=way,
            ideal=ideal,
            lower_bound=known,
            excess=excess,
            stuck=stuck,
            counts_before={key: before[key] for key in changed},
            counts_after={key: after[key] for key in changed},
        )

    def _reserve(self, solution: Solution) -> None:
        """Place a solution's replacements; the evicted pods stay, since they may still be there."""
        names = self._placement.table.names
        for choice in solution.way.choices:
            for spot in choice.outcome.placed:
                self._placement.view.place(solution.board.pieces[spot.piece].sample, names[spot.slot])

    def _rivals(self, solutions: Sequence[Solution]) -> list[list[Solution]]:
        """Return those that may have kept each other from something better, by room that one has and another needs."""
        wanting = [solution for solution in solutions if not solution.ideal]
        if not wanting or len(solutions) == 1:
            return []
        demand = _most(_demand(solution) for solution in wanting)
        tight = [(solution, self._tight(solution, demand)) for solution in solutions]
        rivals: list[list[Solution]] = []
        for solution in wanting:
            if any(each is solution for others in rivals for each in others):
                continue
            wanted = solution.board.settled
            found = [solution]
            pods = solution.board.movable_pods
            for other, nodes in tight:
                taken = any(each is other for others in rivals for each in others)
                if other is solution or taken or not nodes & wanted:
                    continue
                pods += other.board.movable_pods
                if pods > MOST_PODS:
                    break
                found.append(other)
            if len(found) > 1:
                rivals.append(found)
        return rivals

    def _tight(self, solution: Solution, demand: Mapping[str, int]) -> NodeSet:
        """Return the nodes of a solution that have not enough room for it and others: those it takes, or may leave."""
        placed = Counter(spot.slot for choice in solution.way.choices for spot in choice.outcome.placed)
        own = _demand(solution)
        free = self._placement.view.free
        return node_set(
            [
                slot
                for slot in {*placed, *slots_of(solution.board.vacated)}
                if any(free.of(name).free[slot] < amount + own.get(name, 0) for name, amount in demand.items())
            ]
        )


def _quality(solutions: Iterable[Solution]) -> tuple[int, int]:
    """Return what makes solutions better: less excess, then fewer evictions."""
    return (
        sum(solution.way.excess for solution in solutions),
        sum(solution.way.evictions for solution in solutions),
    )


def _demand(solution: Solution) -> dict[str, int]:
    """Return about what the replacements of a solution's pods take together, of each resource."""
    return {name: amount * solution.excess for name, amount in solution.board.largest_request.items()}


def _most(demands: Iterable[Mapping[str, int]]) -> dict[str, int]:
    most: dict[str, int] = {}
    for demand in demands:
        for name, amount in demand.items():
            most[name] = max(amount, most.get(name, 0))
    return most
