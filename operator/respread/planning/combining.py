"""Combines solutions to a plan: which steps may be made at the same time, and beside all that looks for a node.

A plan places each replacement on one node, but the scheduler may pick another. So moves go together only if each
replacement fits a node whatever nodes the other replacements take, with every evicted pod still holding its resources.
The other pods that need a node are the replacements of moves in flight, and pods that others created. If one of these
has a feasible node now, it keeps one, whatever nodes the wave's replacements take. So no move leaves a pod Pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, count
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.cluster.incremental import Incremental
from respread.cluster.pod import Pod
from respread.planning.explaining import MissingDomains, Stuck
from respread.planning.moving_pods import Motion
from respread.planning.placement import Placement, is_replaced_when_gone
from respread.planning.plan import BlockedGroup, Move, Plan, in_turns
from respread.planning.room.contention import Contention
from respread.planning.room.demand import Conflict, Current, Demand, Leaving, demands_in, held_by, largest_of, wanted_by
from respread.planning.room.preemption import Priorities, enabled_by, preemptors_among
from respread.planning.solution import Solution
from respread.planning.tasks import Task
from respread.planning.victims.budgets import BudgetBook
from respread.scheduling.view.node_table import NodeSet, node_set, slots_of, union
from respread.spread.group import GroupKey, SpreadGroup

_ROOM_PER_LIMIT: Final = 4
"""How many moves of a policy are planned for the first wave for each that `limits.inFlight` lets go now, because other
limits may hold some."""
_LATER_PER_LIMIT: Final = 2
"""How many at least for each that it lets go at a time: they go without another plan when places become free."""
_NOT_ALONE: Final = Held(
    Reason.IN_MOTION, "it waits for the room that moves of other spread groups leave, and is then planned again"
)
_NOT_YET_SAFE: Final = Held(
    Reason.IN_MOTION, "it waits until the replacements of earlier moves have a node: where they go decides what is safe"
)
_ONE_AT_A_TIME: Final = Held(
    Reason.IN_MOTION,
    "it waits until the replacement of the move before it has a node: that several at once are safe can't be proven "
    "for these constraints and the free room",
)
_NOT_TOGETHER: Final = Held(
    Reason.IN_MOTION, "it waits until the replacements of the moves before it have a node: it is safe only then"
)
_NOT_FINISHED: Final = Held(
    Reason.IN_MOTION,
    "it can't be restored now, and waits for moves of other spread groups, which may need the room that it would take",
)


def queue_of(
    placement: Placement, motion: Motion, tasks: Sequence[Task], now: datetime
) -> tuple[Leaving, tuple[Demand, ...]]:
    """Return what pods that are being deleted leave, and who looks for a node already, some components aside."""
    snapshot = placement.view.snapshot
    planned = [pod for task in tasks for pod in task.coming]
    theirs = {pod.uid for pod in planned}
    deleted = [pod for _, pod in sorted(snapshot.leaving_pods.items())]
    leaving = Leaving(placement, deleted)
    # Whoever deletes them.
    replaced = {pod.uid: pod for pod in deleted if is_replaced_when_gone(pod) and pod.uid not in theirs}
    replaced.update({pod.uid: pod for pod in (*motion.moving.besides(tasks), *motion.lost) if pod.node_name})
    pending = [pod for _, pod in sorted(snapshot.waiting_pods.items()) if pod.uid not in theirs]
    return leaving, demands_in(placement, pending, replaced.values(), leaving, now, planned)


def _of_solution(
    solution: Solution, leaving: Leaving, placement: Placement, current: Current, now: datetime
) -> Iterable[Demand]:
    """Return the replacements that wait for a component that is planned."""
    if solution.waiting:
        return [current.of(each, component=solution.number) for each in solution.waiting]
    coming = [pod for task in solution.tasks for pod in task.coming]
    # Beside one another, each of them may land wherever others let it in.
    return demands_in(placement, (), coming, leaving, now, coming)


_Waits: TypeAlias = tuple[tuple[int, Held], ...]
"""The numbers of steps, and what each waits for."""
_Moves: TypeAlias = Incremental[tuple[int, int, _Waits], Sequence[Move]]
"""By the number of the solution, how many of its first steps may be made now, except those that wait."""


class Surroundings(NamedTuple):
    """What moves are made beside."""

    placement: Placement
    budgets: BudgetBook
    leaving: Leaving
    """What pods that are being deleted will leave."""
    waiting: Sequence[Demand]
    """Who looks for a node already, except for the components that are planned."""
    coming: Sequence[Demand]
    """Pods that look for a node later: those of moves that are still to be made for groups in motion, and of nodes that
    are waited for. They keep a place too, as if the moves were made already."""
    missed: NodeSet
    """The nodes on which there is no room yet for the moves that are still to be made for groups in motion."""
    policies: Sequence[Policy]
    under_way: Mapping[str, int]
    """How many moves of each policy are under way."""
    now: datetime
    """With a time zone."""


class Combination:
    """Combines the solutions of one plan after the other. What has not changed is the same object."""

    def __init__(self) -> None:
        self._priorities = Priorities()
        self._moves: _Moves = Incremental()

    def of(
        self,
        solutions: Sequence[Solution],
        stuck: Iterable[Stuck],
        surroundings: Surroundings,
        selected: Mapping[GroupKey, str],
        groups: Mapping[GroupKey, SpreadGroup],
    ) -> Plan:
        """Return the plan."""
        expected = MissingDomains(surroundings.policies, surroundings.placement.table)
        members = [member for each in solutions for member in (*(each.first or ()), *each.together)]
        wave = _Wave(members, solutions, surroundings, self._priorities) if members else None
        joined = _joined(solutions, wave, surroundings.missed)
        moves: list[Move] = []
        before: dict[GroupKey, Mapping[str, int]] = {}
        after: dict[GroupKey, Mapping[str, int]] = {}
        self._moves.begin()
        for solution in solutions:
            key = solution.number, *joined[id(solution)]
            moves.extend(self._moves.of(key, solution.steps, partial(_moves, solution, *joined[id(solution)])))
            before.update(solution.counts_before)
            after.update(solution.counts_after)
        return Plan(
            moves=tuple(sorted(moves, key=attrgetter("wave", "component", "step"))),
            blocked=tuple(
                BlockedGroup(**msgspec.structs.asdict(held), group=key, policy=selected[key])
                for key, held in expected.complete(stuck, selected, groups)
            ),
            policies=selected,
            counts_before=before,
            counts_after=after,
            lower_bound=sum(solution.lower_bound for solution in solutions),
            awaits_nodes=any(held not in _UNTIL_READY for _, waits in joined.values() for _, held in waits),
        )


def _moves(solution: Solution, together: int, waits: _Waits) -> list[Move]:
    held = dict(waits)
    beyond = _NO_MORE if _NO_MORE in held.values() else None
    later = count(1)
    turns = [0 if at < together and at not in held else next(later) for at in range(len(solution.steps))]
    return [
        msgspec.structs.replace(
            move,
            wave=turns[number],
            component=solution.number,
            waits=held.get(number) or (beyond if turns[number] else None),
        )
        for number, step in enumerate(solution.steps)
        for move in step
    ]


class _Joining:
    """Joins the first steps of a solution to the wave, one after another, as far as they are safe at the same time."""

    __slots__ = ("_has_ended", "_solution", "_wave", "_why_alone", "steps", "waits")

    def __init__(self, solution: Solution, wave: _Wave | None, missed: NodeSet) -> None:
        self._solution = solution
        self._wave = wave
        self._why_alone: Held | None = None
        """If the first step joined only with the nodes on which it lands on its own, what it waited for with others."""
        self.steps = 0
        """How many have joined, or wait while others join."""
        self.waits: dict[int, Held] = {}
        """What others of these, and the next one, wait for, by the number of the step."""
        if solution.steps and solution.first is None and not solution.together:
            self.waits[0] = _NOT_YET_SAFE if solution.is_begun else _NOT_ALONE
        elif solution.steps and missed & (solution.landing | solution.vacated) and not any(solution.cured):
            self.waits[0] = _NOT_FINISHED
        self._has_ended = bool(self.waits)

    def go_on(self) -> bool:
        """Join one more step, and return whether one has joined."""
        while not self._has_ended and self._wave is not None and self.steps < len(self._solution.steps):
            held = self._join_next(self._wave)
            if held is None:
                self.steps += 1
                return True
            self.waits[self.steps] = held
            self._has_ended = held is not _NO_BUDGET_LEFT or not self._pass_over(self._wave, held)
        return False

    def _join_next(self, wave: _Wave) -> Held | None:
        """Join the next step, and return None, or else return what it waits for."""
        solution, at = self._solution, self.steps
        policy = solution.steps[at][0].policy
        if at and (self._why_alone or at >= len(solution.together)):
            return self._why_alone or (_NOT_TOGETHER if solution.together else _ONE_AT_A_TIME)
        held = None
        for members in filter(None, (solution.together[at : at + 1], None if at else solution.first)):
            before, held = held, wave.why_full(policy, members) or wave.join(members, policy, solution.number)
            if held is None:
                self._why_alone = before
                break
        return held

    def _pass_over(self, wave: _Wave, held: Held) -> bool:
        """Let the next steps wait whose budgets have no room, if those of a later one have, and return whether so."""
        solution = self._solution
        numbers = range(self.steps, len(solution.together))
        later = next((number for number in numbers if wave.may_go(solution.together[number : number + 1])), None)
        if later is None:
            return False
        for number in range(self.steps, later):
            if wave.expect(solution.together[number], solution.number) is not None:
                return False
            self.waits[number] = held
        self.steps = later
        return True

    def reserve(self) -> None:
        """Reserve room for the steps that follow those that have joined."""
        if self._wave is not None and self.steps:
            self._wave.reserve(self._solution.later[self.steps - 1 :], self._solution.number)


def _precedence(solution: Solution) -> tuple[int, bool, int, float]:
    """Return what is less for a solution that joins before another: of groups as important, those that are begun do.

    Then those with the fewest nodes, because the scheduler may give these to the replacements of others.
    """
    return solution.rank, not solution.is_begun, solution.landing.bit_count(), -solution.share


def _joined(solutions: Sequence[Solution], wave: _Wave | None, missed: NodeSet) -> Mapping[int, tuple[int, _Waits]]:
    """Return, by the identity of each solution, how many of its steps may be made now, and what others wait for.

    Each solution has its first step before any has its second.
    """
    joining = {
        id(solution): _Joining(solution, wave, missed)
        for solution in in_turns(sorted(solutions, key=_precedence), lambda each: each.namespace)
    }
    going_on = []
    for each in joining.values():
        if each.go_on():
            each.reserve()
            going_on.append(each)
    while going_on := [each for each in going_on if each.go_on()]:
        pass
    return {key: (each.steps, tuple(each.waits.items())) for key, each in joining.items()}


_NODES_NAMED: Final = 3
_NO_MORE: Final = Held(Reason.LIMIT_REACHED, "limits.inFlight of its policy allows no more evictions at once")
_NO_BUDGET_LEFT: Final = Held(Reason.IN_MOTION, "it waits until its budgets have room for it beside other moves")
_UNTIL_GONE: Final = Held(
    Reason.IN_MOTION,
    "it waits until terminating pods are gone: replacements may land on the nodes that they leave, for which the step "
    "was not assessed",
)
_UNTIL_READY: Final = (_NO_MORE, _NO_BUDGET_LEFT)
"""What ends when replacements are Ready. What else a step waits for may end when they have a node."""


class _Wave:
    """Moves that are safe together, whichever of their nodes the scheduler picks for each."""

    def __init__(
        self, members: Iterable[Demand], solutions: Iterable[Solution], beside: Surroundings, priorities: Priorities
    ) -> None:
        """Start an empty wave that members of steps may join."""
        placement, leaving, now = beside.placement, beside.leaving, beside.now
        self._placement = placement
        self._leaving = leaving
        """The room that terminating pods leave. `_contention` adds that of the wave."""
        self._current = current = Current(placement)
        self._budgets = beside.budgets
        self._most = {
            policy.name: max(
                _ROOM_PER_LIMIT * max(1, policy.spec.limits.in_flight - beside.under_way.get(policy.name, 0)),
                _LATER_PER_LIMIT * policy.spec.limits.in_flight,
            )
            for policy in beside.policies
        }
        """By policy, how many moves are planned for this wave, beside those that are under way."""
        self._priorities = priorities
        begun = [each for each in solutions if each.is_begun]
        of_solutions = {each.number: tuple(_of_solution(each, leaving, placement, current, now)) for each in begun}
        waiting = (*beside.waiting, *chain.from_iterable(of_solutions.values()))
        largest = largest_of(member.pod for member in members)
        siblings: dict[int | None, NodeSet] = {at: union(each.nodes for each in of) for at, of in of_solutions.items()}
        self._contention = Contention(placement, (*waiting, *beside.coming), leaving, largest, siblings)
        """The pods that need a node already. The wave's replacements join them."""
        priorities.begin()
        fragile = set(map(id, self._contention.fragile))
        hopeful = [each for each in waiting if each.counts_on_leaving or id(each) in fragile]
        self._preemptors = tuple(preemptors_among(hopeful, placement, priorities, now))
        """The pods for which the scheduler may preempt others, whose replacements then need nodes too."""
        self._without_node = tuple(each for each in waiting if not each.nodes)
        self._of_policy: Counter[str] = Counter()
        self._reserved: dict[str, Demand] = {}
        """What holds room for moves that may join later, by the UIDs of the pods."""
        self._left: NodeSet = 0
        self._closed: NodeSet = 0
        self._least: Mapping[str, int] = {}

    def join(self, joining: Sequence[Demand], policy: str, component: int) -> Held | None:
        """Join a step if it is safe beside everything in flight, and return None, or else return what it waits for."""
        pods = [member.pod for member in joining]
        if not self._budgets.may_all_go(pods):
            return _NO_BUDGET_LEFT
        left = self._slots_left(pods)
        if (held := self._preempting(joining, left)) is not None:
            return held
        if self._opens_another(joining, left):
            return _UNTIL_GONE
        demands = [self._current.of(member, component=component) for member in joining]
        if (held := self._take_room(demands, left)) is not None:
            return held
        for pod in pods:
            self._budgets.take(pod)
        self._of_policy[policy] += len(joining)
        self._left |= node_set(list(left))
        for member in joining:
            self._closed |= member.may_open
            wanted = wanted_by(member.pod)
            least = self._least or wanted
            self._least = {name: min(amount, wanted[name]) for name, amount in least.items() if name in wanted}
        return None

    def may_go(self, members: Sequence[Demand]) -> bool:
        """Return whether budgets have room for a step beside those that have joined."""
        return self._budgets.may_all_go([member.pod for member in members])

    def expect(self, member: Demand, component: int) -> Held | None:
        """Count the replacement of a step that waits for its budgets, so that later steps of its solution may join.

        These are safe together with it, in any order. Return what that waits for, or None.
        """
        return self._take_room([self._current.of(member, component=component)], {})

    def _take_room(self, demands: Sequence[Demand], left: Mapping[int, Sequence[Pod]]) -> Held | None:
        """Let the replacements of a step take room, which may be reserved for them; return what they wait for."""
        reserved = self._reserved.pop(demands[0].pod.uid, None)
        if reserved is None:
            conflict = self._contention.join(demands, left)
        else:
            (demand,) = demands  # No room is reserved for steps of several pods.
            conflict = self._contention.replace(reserved, demand, left)
        return self._waits_for(conflict)

    def why_full(self, policy: str, members: Sequence[Demand]) -> Held | None:
        """Return that the wave has enough moves of the step's policy; None if it has not."""
        return _NO_MORE if self._of_policy[policy] + len(members) > self._most.get(policy, 0) else None

    def reserve(self, later: Iterable[Demand], component: int) -> None:
        """Reserve room for the moves that follow a step that has joined, as far as there is room for them now.

        So a group is finished before others that could take the room are begun.
        """
        alike: dict[tuple[int, NodeSet, str], list[Demand]] = {}
        for member in later:
            own = member.pod.uid if is_replaced_when_gone(member.pod) else ""
            alike.setdefault((id(member.prepared), member.nodes, own), []).append(member)
        for members in alike.values():
            demand = self._current.of(members[0], component=component, number=len(members))
            if demand.sure:
                # They only take room: none of them is evicted before it has joined.
                reserved = demand._replace(nodes=demand.sure, closing=0)
                if self._contention.reserve(reserved):
                    self._reserved.update((member.pod.uid, reserved) for member in members)

    def _slots_left(self, pods: Iterable[Pod]) -> dict[int, list[Pod]]:
        left: dict[int, list[Pod]] = {}
        for pod in pods:
            left.setdefault(self._placement.table.slot_of[pod.node_name], []).append(pod)
        return left

    def _preempting(self, joining: Iterable[Demand], left: Mapping[int, Iterable[Pod]]) -> Held | None:
        """Return that the scheduler may preempt pods, whose replacements need room, now or on the nodes left."""
        for preemptor in self._preemptors:
            if any(preemptor.nodes & member.nodes for member in joining):
                return Held(
                    Reason.IN_MOTION,
                    f"it waits for pod {preemptor.demand.pod.key}, for which the kube-scheduler may delete pods of "
                    "lower priority that need room elsewhere then",
                )
        demand = enabled_by(left, self._without_node, self._placement, self._priorities, self._leaving)
        if demand is None:
            return None
        return Held(
            Reason.IN_MOTION,
            f"it waits until pod {demand.pod.key} has a node: on the node that it leaves, the kube-scheduler could "
            "delete pods of lower priority for that one",
        )

    def _opens_another(self, joining: Iterable[Demand], left: Mapping[int, Iterable[Pod]]) -> bool:
        """Return whether a left node would open to a replacement whose step was not assessed for it."""
        for slot, pods in left.items():
            if self._closed >> slot & 1 and self._has_room_for(slot, pods, self._least):
                return True
        for member in joining:
            others = self._left | self._leaving.slots
            for slot in slots_of(member.may_open & others):
                if self._has_room_for(slot, left.get(slot, ()), wanted_by(member.pod)):
                    return True
        return False

    def _has_room_for(self, slot: int, more: Iterable[Pod], wanted: Mapping[str, int]) -> bool:
        """Return whether a node has room after pods are gone, by resource amounts only."""
        free, leaving = self._placement.view.free, self._leaving.of(slot)
        gone: Counter[str] = Counter(leaving)
        for pod in more:
            gone.update(held_by(pod))
        return all(free.of(name).free[slot] + gone[name] >= amount for name, amount in wanted.items())

    def _waits_for(self, conflict: Conflict | None) -> Held | None:
        if conflict is None:
            return None
        if (who := conflict.who) is None:
            return _UNTIL_GONE
        shown = self._placement.names(conflict.nodes)
        where = ", ".join(shown[:_NODES_NAMED]) + (" …" if len(shown) > _NODES_NAMED else "")
        more = f" and {who.number - 1} more like it" if who.number > 1 else ""
        return Held(
            Reason.IN_MOTION, f"it waits until {who}{more} has a node: there may not be room for all of them on {where}"
        )
