"""Solves components one by one, and those that compete for room with each other in mind.

Each component is solved alone on the current cluster. Together, their solutions may need more of a node than it has.
Then the later one is solved again without the room that the earlier ones use. If a component could be restored better
with more room, and others have or use the room that it needs, they are solved together.

Solutions are kept. A solution stays valid while its task is the same, the same nodes accept its pods, and no node has
changed that affected the search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Final, NamedTuple

from respread.planning.search.placement import Placement
from respread.planning.search.room import Room, RoomForAll
from respread.planning.search.search_budget import Effort
from respread.planning.search.solution import Finder, Solution
from respread.planning.tasks import Task
from respread.planning.turns import in_turns
from respread.scheduling.view.node_sets import NodeSet, node_set, slots_of

MOST_PODS: Final = 60
"""Components that compete for room are solved together if they have at most this many movable pods."""


SMALL_PODS: Final = 32
"""Components with at most this many movable pods are searched more thoroughly."""


class SearchLimits(NamedTuple):
    """Budgets of searches, in looks of some tens of microseconds each."""

    of_one: int = 12_000
    """For one component, before the best path so far is used."""
    of_small: int = 24_000
    """For a small component."""
    of_all: int = 48_000
    """For all components together. Those that get less than the budget for one are solved again by the next plan."""
    reserve: int = 64_000
    """In addition, for all small components together: to find shorter paths than the known ones."""


ORDINARY_LIMITS: Final = SearchLimits()


class Changes(NamedTuple):
    """What has changed since the last plan."""

    nodes: NodeSet
    """The nodes whose pods have changed for the scheduler."""
    rules: bool
    """Whether anything else that the scheduler uses has changed."""


class Memory:
    """Solutions, by their tasks."""

    __slots__ = ("_apart", "_joint", "room", "searched")

    def __init__(self) -> None:
        """Start without solutions."""
        self._apart: dict[int, Solution] = {}
        """By the identity of the task, which the solution keeps alive."""
        self._joint: dict[tuple[int, ...], tuple[tuple[Solution, ...], Solution]] = {}
        """By the identities of the tasks: the solutions whose room was gone, and the solution that was found then."""
        self.room = RoomForAll()
        self.searched: dict[str, int] = {}
        """By namespace, the number of the last search for it. A namespace without searches is absent."""

    def forget_other_namespaces(self, namespaces: Collection[str]) -> None:
        """Forget when other namespaces than these were searched."""
        self.searched = {name: number for name, number in self.searched.items() if name in namespaces}

    def note_search(self, namespace: str) -> None:
        """Record that a search was made for a namespace."""
        number = next(reversed(self.searched.values()), 0) + 1
        self.searched.pop(namespace, None)  # so that the last one stays the last
        self.searched[namespace] = number

    def alone(self, task: Task, changes: Changes, placement: Placement) -> Solution | None:
        """Return the solution of a task alone, if it is still valid."""
        known = self._apart.get(id(task))
        return known if known is not None and _holds(known, changes, placement) else None

    def beside(
        self, tasks: tuple[Task, ...], others: Sequence[Solution], changes: Changes, placement: Placement
    ) -> Solution | None:
        """Return the solution of tasks beside those of others that used their room, if it is still valid."""
        known = self._joint.get(tuple(map(id, tasks)))
        if known is None or len(known[0]) != len(others) or not all(map(is_, known[0], others)):
            return None
        return known[1] if _holds(known[1], changes, placement) else None

    def keep(self, alone: Iterable[Solution], beside: Iterable[tuple[tuple[Solution, ...], Solution]]) -> None:
        """Keep these solutions and forget all others."""
        self._apart = {id(solution.tasks[0]): solution for solution in alone}
        self._joint = {tuple(map(id, solution.tasks)): (others, solution) for others, solution in beside}


def _holds(solution: Solution, changes: Changes, placement: Placement) -> bool:
    if solution.touched & changes.nodes or (changes.rules and not solution.follows_same_rules(placement)):
        return False
    return not changes.nodes or all(each.unchanged for each in solution.open_nodes)


class Solver:
    """Solves all tasks of a plan."""

    __slots__ = ("_changes", "_finder", "_left", "_limits", "_memory", "_placement", "_reserve")

    def __init__(self, placement: Placement, finder: Finder, memory: Memory, limits: SearchLimits) -> None:
        """Create it.

        Args:
            placement: the current cluster.
            finder: finds solutions on it.
            memory: the solutions of the last plan.
            limits: the budgets of searches.
        """
        self._placement = placement
        self._finder = finder
        self._memory = memory
        self._changes = Changes(0, rules=False)
        self._limits = limits
        self._left = limits.of_all
        self._reserve = limits.reserve

    def solve(self, tasks: Iterable[Task], changes: Changes) -> list[Solution]:
        """Return the best paths for all tasks, in their order except for those solved together.

        Args:
            tasks: of different components.
            changes: what has changed since the last time.
        """
        self._changes = changes
        alone = self._each_alone(list(tasks))
        tried: list[tuple[tuple[Solution, ...], Solution]] = []
        if self._memory.room.holds(alone, changes.nodes, self._placement):
            solutions = alone
        else:
            solutions = self._one_after_another(alone, tried)
        for rivals in self._rivals(solutions):
            others = [each for each in solutions if not any(each is rival for rival in rivals)]
            joint = self._beside(tuple(task for solution in rivals for task in solution.tasks), others, tried)
            if _quality([joint]) < _quality(rivals):
                solutions = [*others, joint]
        self._memory.keep((each for each in alone if each.finished), (pair for pair in tried if pair[1].finished))
        return solutions

    def _one_after_another(
        self, alone: Iterable[Solution], tried: list[tuple[tuple[Solution, ...], Solution]]
    ) -> list[Solution]:
        """Return solutions that each have room beside those before it, solving them again if they have not."""
        room = Room(self._placement)
        solutions: list[Solution] = []
        for solution in alone:
            fitting = solution if room.holds(solution.taken) else self._beside(solution.tasks, solutions, tried)
            room.take(fitting.taken)
            solutions.append(fitting)
        return solutions

    def _each_alone(self, tasks: Sequence[Task]) -> list[Solution]:
        """Return the solution of each task. Namespaces take turns, so that none gets the whole budget."""
        self._memory.forget_other_namespaces({task.namespace for task in tasks})
        found = {id(task): known for task in tasks if (known := self._known(task)) is not None}
        unknown = [task for task in tasks if id(task) not in found]
        for task in in_turns(unknown, lambda each: each.namespace, self._memory.searched):
            if self._left > 0:
                self._memory.note_search(task.namespace)
            found[id(task)] = self._find((task,))
        return [found[id(task)] for task in tasks]

    def _known(self, task: Task) -> Solution | None:
        return self._memory.alone(task, self._changes, self._placement)

    def _find(self, tasks: tuple[Task, ...], others: Sequence[Solution] = ()) -> Solution:
        is_small = sum(len(task.victims) for task in tasks) <= SMALL_PODS
        wanted, wanted_reserve = (self._limits.of_small, self._limits.reserve) if is_small else (self._limits.of_one, 0)
        given, reserve = min(wanted, max(self._left, 0)), min(wanted_reserve, max(self._reserve, 0))
        effort = Effort(given, reserve)
        reserved = [taken for other in others for taken in other.taken]
        found = self._finder.find(tasks, effort, reserved)
        of_reserve = max(effort.spent - given, 0) if effort.drawn else 0
        self._left -= effort.spent - of_reserve
        self._reserve -= of_reserve
        had_enough = given == wanted and (reserve == wanted_reserve or not effort.drawn)
        return found._replace(finished=found.proven or had_enough)

    def _beside(
        self,
        tasks: tuple[Task, ...],
        others: Iterable[Solution],
        tried: list[tuple[tuple[Solution, ...], Solution]],
    ) -> Solution:
        """Return the solution of tasks without the room that others use, if the tasks might use it too."""
        placing = tuple(other for other in others if other.taken)
        found = self._memory.beside(tasks, placing, self._changes, self._placement) or self._find(tasks, placing)
        tried.append((placing, found))
        return found

    def _rivals(self, solutions: Sequence[Solution]) -> list[list[Solution]]:
        """Return the solutions that may have kept one another from a better result by the room that they use."""
        wanting = [solution for solution in solutions if not solution.ideal]
        if not wanting or len(solutions) == 1:
            return []
        demand: dict[str, int] = {}
        for solution in wanting:
            for name, amount in solution.demand.items():
                demand[name] = max(amount, demand.get(name, 0))
        tight = [(solution, self._tight(solution, demand)) for solution in solutions]
        rivals: list[list[Solution]] = []
        taken: set[int] = set()
        for solution in wanting:
            if id(solution) in taken:
                continue
            found = [solution]
            pods = solution.pods
            for other, nodes in tight:
                if other is solution or id(other) in taken or not nodes & solution.wanted:
                    continue
                pods += other.pods
                if pods > MOST_PODS:
                    break
                found.append(other)
            if len(found) > 1:
                rivals.append(found)
                taken.update(map(id, found))
        return rivals

    def _tight(self, solution: Solution, demand: Mapping[str, int]) -> NodeSet:
        """Return the nodes of a solution without enough room for it and others: those that it uses or may leave."""
        free = self._placement.view.free
        slots = chain((taken.slot for taken in solution.taken), slots_of(solution.vacated))
        return node_set(
            [
                slot
                for slot in slots
                if any(
                    free.of(name).free[slot] < amount + solution.demand.get(name, 0) for name, amount in demand.items()
                )
            ]
        )


def _quality(solutions: Iterable[Solution]) -> tuple[int, int]:
    """Return a sort key for solutions: less excess, then fewer evictions."""
    return sum(solution.excess for solution in solutions), sum(solution.evictions for solution in solutions)
