"""Solves components one by one, and those that compete for room with each other in mind.

Each component is solved alone on the current cluster. Together, their solutions may need more of a node than it has.
Then the later one is solved again without the room that the earlier ones use. If a component could be restored better
with more room, and others have or use the room that it needs, they are solved together.

Solutions are kept. A solution stays valid while its task is the same, the same nodes accept its pods, and no node has
changed that affected the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from respread.cluster.incremental import are_same
from respread.planning.placement import Changes, Placement
from respread.planning.plan import in_turns
from respread.planning.room.book import Claim, RoomBook, RoomForAll
from respread.planning.search.board import Cost, SearchBudget, total
from respread.planning.solution import Finder, Solution
from respread.planning.tasks import Task
from respread.scheduling.view.node_table import NodeSet, node_set, slots_of
from respread.spread.group import GroupKey

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


_Question: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], Cost | None]
"""The identities of tasks, and of claims that others have, and what the solution has to be better than."""


class Memory:
    """What was found by one plan for the next."""

    def __init__(self) -> None:
        self.alone: dict[GroupKey, Solution] = {}
        """The solution of each task alone, by its first group."""
        self.beside: dict[_Question, tuple[Sequence[Claim], Solution]] = {}
        """What was found for tasks with room gone that others take, which are kept with it."""
        self.room = RoomForAll()
        self.searched: dict[str, int] = {}
        """By namespace, the number of the last search for it. A namespace without searches is absent."""

    def forget_solutions(self) -> None:
        """Forget all solutions, but not whose turn it is."""
        self.alone, self.beside, self.room = {}, {}, RoomForAll()

    def note_search(self, namespace: str) -> None:
        """Record that a search was made for a namespace."""
        number = next(reversed(self.searched.values()), 0) + 1
        self.searched.pop(namespace, None)  # so that the last one stays the last
        self.searched[namespace] = number


class Solver:
    """Solves all tasks of a plan."""

    def __init__(
        self,
        placement: Placement,
        finder: Finder,
        memory: Memory,
        limits: SearchLimits,
        changes: Changes,
        claims: Sequence[Claim],
    ) -> None:
        """Create it. The room of the claims is not to be taken."""
        self._placement = placement
        self._finder = finder
        self._memory = memory
        self._changes = changes
        self._claims = claims
        self._limits = limits
        self._left = limits.of_all
        self._reserve = limits.reserve
        self._tried: dict[_Question, tuple[Sequence[Claim], Solution]] = {}

    def solve(self, tasks: Sequence[Task]) -> list[Solution]:
        """Return the best ways for tasks of different components, in an order in which each has room beside others."""
        alone = self._each_alone(tasks)
        claims = (*(each.claim for each in alone), *self._claims)
        if self._memory.room.holds(claims, self._changes.nodes, self._placement):
            solutions = alone
        else:
            solutions = self._in_turn(alone)
        found = {id(each.tasks[0]): each for each in alone}
        for rivals in self._rivals(solutions):
            if _is_decided_by_order([found[id(task)] for rival in rivals for task in rival.tasks], self._placement):
                continue
            others = [each for each in solutions if not any(each is rival for rival in rivals)]
            known = total([each.cost for each in rivals])
            joint = self._beside(tuple(task for solution in rivals for task in solution.tasks), others, known)
            if joint.cost < known:
                solutions = [*others, joint]
        if self._claims:
            solutions = self._with_those_that_wait(solutions, found)
        self._memory.alone = {each.tasks[0].groups[0].key: each for each in alone if each.finished}
        self._memory.beside = {at: (others, each) for at, (others, each) in self._tried.items() if each.finished}
        return solutions

    def _with_those_that_wait(self, solutions: Sequence[Solution], alone: Mapping[int, Solution]) -> list[Solution]:
        """Return solutions, with what is to be done once pods that wait for a node have left it room.

        They have room beside all other moves then; what would not fit even then stays as it is.

        `alone` has those of each task alone, by its identity.
        """
        free = self._placement.view.free
        beside_the_waiting = RoomBook(claim for claim in self._claims if claim.is_waiting)
        others = (claim for claim in self._claims if not claim.is_waiting)
        without_the_waiting = RoomBook((*others, *(solution.claim for solution in solutions)))
        found: list[Solution] = []
        for solution in solutions:
            own, waits = alone[id(solution.tasks[0])], False
            if own.steps and not solution.steps:
                without_the_waiting.take(solution.taken, -1)
                first = own.taken[: len(own.taken) - sum(map(len, own.steps[1:]))]
                waits = not beside_the_waiting.holds(first, free) and without_the_waiting.holds(own.taken, free)
                without_the_waiting.take((own if waits else solution).taken)
            found.append(own if waits else solution)
        return found

    def _in_turn(self, alone: Sequence[Solution]) -> list[Solution]:
        """Return solutions each of which has room beside those before it, found again if it does not.

        Those come first that cure most groups, of the most important policies, with the least room. If they take what
        others as important can't do without, these come before them where more is cured so.
        """
        order = sorted((each for each in alone if any(each.cured)), key=_claim)
        others = [each for each in alone if not any(each.cured)]
        under_way = [each for each in others if each.is_begun]  # their replacements take their room, whoever is first
        rest = [each for each in others if not each.is_begun]
        solutions, behind = self._one_after_another((*under_way, *order), rest)
        first = {id(each) for each in behind if any(_has_other_nodes(other, each) for other in order)}
        if not first:
            return solutions
        order.sort(key=lambda each: (*_claim(each)[:2], id(each) not in first))
        again, _ = self._one_after_another((*under_way, *order), rest)
        return min(solutions, again, key=lambda each: total([solution.cost for solution in each]).violated)

    def _one_after_another(
        self, order: Iterable[Solution], rest: Iterable[Solution]
    ) -> tuple[list[Solution], list[Solution]]:
        """Return solutions in an order with room beside those before them, and those that can't cure as many as alone.

        The latter take no more than is left in the end, as do those of the rest.
        """
        room, free = RoomBook(self._claims), self._placement.view.free
        solutions: list[Solution] = []
        behind: list[Solution] = []
        for solution in order:
            fitting = solution if room.holds(solution.taken, free) else self._beside(solution.tasks, solutions)
            if fitting.cost.violated > solution.cost.violated:
                behind.append(solution)
                continue
            room.take(fitting.taken)
            solutions.append(fitting)
        for solution in (*rest, *behind):
            fitting = solution if room.holds(solution.taken, free) else self._beside(solution.tasks, solutions)
            room.take(fitting.taken)
            solutions.append(fitting)
        return solutions, behind

    def _each_alone(self, tasks: Sequence[Task]) -> list[Solution]:
        """Return the solution of each task. Namespaces take turns, so that none gets the whole budget."""
        memory, namespaces = self._memory, {task.namespace for task in tasks}
        memory.searched = {name: number for name, number in memory.searched.items() if name in namespaces}
        remembered = ((task, _for_task(task, memory.alone.get(task.groups[0].key))) for task in tasks)
        found = {id(task): known for task, known in remembered if known is not None and self._holds(known)}
        unknown = [task for task in tasks if id(task) not in found]
        for task in in_turns(unknown, lambda each: each.namespace, memory.searched):
            if self._left > 0:
                memory.note_search(task.namespace)
            found[id(task)] = self._find((task,))
        return [found[id(task)] for task in tasks]

    def _holds(self, solution: Solution) -> bool:
        """Whether a solution of the last plan is still valid."""
        changes, placement = self._changes, self._placement
        changed = solution.touched & changes.nodes
        if changed and not solution.ample.remains(changed, placement.view):
            return False
        if changes.rules and not solution.follows_same_rules(placement):
            return False
        return not changes.nodes or all(each.unchanged for each in solution.open_nodes)

    def _find(self, tasks: tuple[Task, ...], others: Sequence[Claim] = (), known: Cost | None = None) -> Solution:
        is_small = sum(len(task.victims) for task in tasks) <= SMALL_PODS
        wanted, wanted_reserve = (self._limits.of_small, self._limits.reserve) if is_small else (self._limits.of_one, 0)
        given, reserve = min(wanted, max(self._left, 0)), min(wanted_reserve, max(self._reserve, 0))
        search_budget = SearchBudget(given, reserve)
        found = self._finder.find(tasks, search_budget, others, known)
        of_reserve = max(search_budget.spent - given, 0) if search_budget.drawn else 0
        self._left -= search_budget.spent - of_reserve
        self._reserve -= of_reserve
        had_enough = given == wanted and (reserve == wanted_reserve or not search_budget.drawn)
        return found._replace(finished=found.proven or had_enough or not search_budget.exhausted)

    def _beside(self, tasks: tuple[Task, ...], others: Iterable[Solution], known: Cost | None = None) -> Solution:
        """Return the solution of tasks with the room gone that others take, as far as they may want it too."""
        placing = (*self._claims, *(other.claim for other in others if other.taken))
        question = tuple(map(id, tasks)), tuple(map(id, placing)), known
        _, found = self._memory.beside.get(question, ((), None))
        if found is None or not self._holds(found):
            found = self._find(tasks, placing, known)
        self._tried[question] = placing, found
        return found

    def _rivals(self, solutions: Sequence[Solution]) -> list[list[Solution]]:
        """Return the solutions that may have kept one another from a better result by the room that they use."""
        wanting = [solution for solution in solutions if not solution.ideal]
        if not wanting:
            return []
        names = {name for solution in wanting for name in solution.may_use}
        demand = {name: max(solution.may_use.get(name, 0) for solution in wanting) for name in names}
        room = RoomBook(solution.claim for solution in solutions)
        tight = [(solution, self._tight(solution, demand, room)) for solution in solutions]
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

    def _tight(self, solution: Solution, demand: Mapping[str, int], room: RoomBook) -> NodeSet:
        """Return the nodes of a solution that it uses or may leave, without enough room for all.

        `demand` is what another may need in addition.
        """
        free = self._placement.view.free
        slots = chain((taken.slot for taken in solution.taken), slots_of(solution.vacated))
        return node_set(
            [
                slot
                for slot in slots
                if any(
                    free.of(name).free[slot] < amount + max(solution.may_use.get(name, 0), room.taken(slot, name))
                    for name, amount in demand.items()
                )
            ]
        )


def _for_task(task: Task, known: Solution | None) -> Solution | None:
    """Return what was found for a task, or for one that it goes on from; None if nothing was."""
    if known is None or (before := known.tasks[0]) is task:
        return known
    if not task.goes_on_from(before, {move.pod.uid for step in known.steps for move in step}):
        return None
    return known if are_same(task.pods, before.pods) else known._replace(tasks=(task,))


def _is_decided_by_order(alone: Sequence[Solution], placement: Placement) -> bool:
    """Whether solutions want so much the same that as many are cured as can be if those go first that take least.

    So it is if each cures one group, with replacements that take the same room on any of the same nodes, whichever of
    these they go to, and none of which could go where their pods come from if there were room.
    """
    nodes, sizes = alone[0].landing, {tuple(sorted(each.pod.spec.requests.items())) for each in alone[0].taken}
    if len(sizes) != 1 or not all(
        each.proven
        and sum(each.before.violated) == 1
        and not any(each.cost.violated)
        and each.landing == nodes
        and {tuple(sorted(taken.pod.spec.requests.items())) for taken in each.taken} == sizes
        and _are_one_domain(nodes, each, placement)
        for each in alone
    ):
        return False
    vacated = would_take = nodes
    for each in alone:
        vacated |= each.vacated
        would_take |= _would_take(each, placement)
    return vacated & would_take == nodes and not any(each.vacated & nodes for each in alone)


def _are_one_domain(nodes: NodeSet, solution: Solution, placement: Placement) -> bool:
    """Whether some nodes are in the same domain of each group of a solution, so that it does not matter which it is."""
    names = [placement.table.names[slot] for slot in slots_of(nodes)]
    groups = (group for task in solution.tasks for group in task.groups)
    return all(len({group.domains.of_node.get(name) for name in names}) == 1 for group in groups)


def _would_take(solution: Solution, placement: Placement) -> NodeSet:
    """Return the nodes that would take any of a solution's replacements if there were room."""
    view, found = placement.view, 0
    taken = iter(solution.taken_by_moves)
    with view.fork():
        for step in solution.steps:
            for move in step:
                view.remove(move.pod)
                found |= placement.prepare(move.pod).admitted_by_spread()
            for place in islice(taken, len(step)):
                view.place(place.pod, placement.table.names[place.slot])
    return found


def _has_other_nodes(one: Solution, other: Solution) -> bool:
    """Whether replacements of one solution may land where those of another may, and elsewhere too."""
    return bool(one.landing & other.landing and one.landing & ~other.landing)


def _claim(solution: Solution) -> tuple[int, bool, float]:
    """Return what is less for solutions that cure groups of more important policies, or more of them with less room.

    Of those of policies that are as important, what is begun comes first.
    """
    return solution.rank, not solution.is_begun, solution.share / solution.cured[solution.rank]
