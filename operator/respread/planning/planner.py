"""Makes a plan from a snapshot and policies.

Groups that share pods form a component. A component with a violated group that a policy restores is a task (`tasks`).
Tasks are solved (`solving`), and their solutions contain the moves. Moves of the first wave can be made at the same
time (`wave`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import cached_property
from itertools import chain, count
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.cluster.differences import changed_keys
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.claims import Claims, Kept
from respread.planning.explain.expected_domains import MissingDomains, Stuck
from respread.planning.explain.held_pods import HeldPods
from respread.planning.held import Held
from respread.planning.leaving_nodes import Drained, LeavingNodes, demands_of_drained, waits_for_drain
from respread.planning.moving_pods import (
    NOTHING_UNDER_WAY,
    BegunTasks,
    LostPods,
    MovingPods,
    UnderWay,
    uncounted,
    why_uncounted,
)
from respread.planning.placement import Placement, is_replaced_when_gone
from respread.planning.plan import BlockedGroup, Move, Plan, in_turns
from respread.planning.room.contention import Contention
from respread.planning.room.demand import Current, Demand, Leaving, demands_in, largest_of
from respread.planning.room.preemption import Priorities, preemptors_among
from respread.planning.solution import Finder, Precedence, Solution
from respread.planning.solving import ORDINARY_LIMITS, Changes, Memory, SearchLimits, Solver
from respread.planning.tasks import FiledPods, Task, Tasks, earliest
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.budgets import BudgetLedger
from respread.planning.victims.candidates import NOTHING_REFUSED, Refused, Rules
from respread.planning.victims.controllers import ActivePods
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.protection import SYSTEM_PRIORITY_CLASSES, Protection
from respread.planning.victims.selection import Selection
from respread.planning.waiting_moves import WaitingMoves
from respread.planning.wave import Wave
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView, looks_the_same
from respread.scheduling.view.node_sets import NodeSet, node_set
from respread.spread.group import GroupKey
from respread.spread.index import Spread

OnHold: TypeAlias = Callable[[GroupKey, str], Held | None]
"""Takes a violated group and the name of the policy that selects it. Returns why the group is left alone for now, for
example because it changed less than a quiet period ago; None if it is not."""

_ROOM_PER_LIMIT: Final = 4
"""How many moves of a policy are planned for the first wave for each that `limits.inFlight` lets go now, because other
limits may hold some."""
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


def never_on_hold(_key: GroupKey, _policy: str) -> None:
    """Hold no group."""


class PolicySetting(msgspec.Struct, frozen=True, dict=True):
    """The policies, and the objects that they refer to, compiled once for all who ask about them."""

    policies: tuple[Policy, ...]
    """The policies in use, of both kinds."""
    priority_classes: Mapping[str, int] = msgspec.field(default_factory=lambda: SYSTEM_PRIORITY_CLASSES)
    """The values of the cluster's PriorityClasses by name."""

    @cached_property
    def index(self) -> PolicyIndex:
        """Which policies govern which pods."""
        return PolicyIndex(self.policies)

    @cached_property
    def protections(self) -> Mapping[str, Protection]:
        """The rules for victims of every valid policy, by the policies' names."""
        protections: dict[str, Protection] = {}
        for policy in self.policies:
            if policy.problems:
                continue
            try:
                protections[policy.name] = Protection.of(policy.spec.victims, self.priority_classes)
            except ValueError:
                continue  # Its PriorityClass does not exist. Until it does, the policy evicts nothing.
        return protections

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """By name how important policies are where room is not enough for all, the most important first.

        Their `priority` decides, and those that only plan come last: what they would take is there for others.
        """
        importance = {policy.name: (policy.spec.mode == "DryRun", -policy.spec.priority) for policy in self.policies}
        order = sorted(set(importance.values()))
        return {name: order.index(each) for name, each in importance.items()}


class Planner:
    """Plans for one snapshot after the other, at the cost of what has changed."""

    def __init__(self, predictor: Predictor | None = None, limits: SearchLimits = ORDINARY_LIMITS) -> None:
        """Create it.

        Args:
            predictor: of the schedulers; by default in their default configuration. The planner owns its view.
            limits: the budgets of searches.
        """
        self._predictor = Predictor(ClusterView()) if predictor is None else predictor
        self._leaving = LeavingNodes()
        self._limits = limits
        self._lost = LostPods()
        self._snapshot = ClusterSnapshot()
        self._table = self._predictor.view.table
        self._priorities = Priorities()
        self._numbers = count()
        self._budgets = BudgetIndex()
        self._begun = BegunTasks()
        self._claims = Claims()
        self._waiting = WaitingMoves()
        self._held_pods = HeldPods()
        self._set(PolicySetting(()))

    def _set(self, setting: PolicySetting) -> None:
        """Take over policies, and forget what was found under others."""
        self._setting = setting
        self._protections = setting.protections
        self._ranks = setting.ranks
        self._placement = Placement.under(setting.policies, self._predictor)
        self._selection = Selection(setting.index)
        self._tasks = Tasks()
        self._memory = Memory()

    def plan(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        setting: PolicySetting,
        *,
        now: datetime,
        on_hold: OnHold = never_on_hold,
        begun: AbstractSet[GroupKey] = frozenset(),
        under_way: UnderWay = NOTHING_UNDER_WAY,
        refused: Refused = NOTHING_REFUSED,
        leaving_since: Mapping[str, datetime] = Map(),
    ) -> Plan:
        """Return the moves that restore the selected groups, and why some are not restored.

        Args:
            snapshot: the cluster.
            spread: its spread groups. They don't count pods in flight.
            setting: the policies.
            now: the time, with a time zone.
            on_hold: which groups to leave alone for now, and why.
            begun: groups that our moves have begun to restore. During a quiet period, room is kept for them and for
                those in motion. Otherwise others would take it, and the evictions would have been made in vain.
            under_way: the moves that were chosen or made, and whose replacements are not Ready.
            refused: what the API server has refused lately.
            leaving_since: when nodes that lose their pods anyway lost one last, or began to; of others it is not known.
        """
        if setting != self._setting:
            self._set(setting)
        changes = self._advance(snapshot)
        self._selection.advance(snapshot, spread)
        if self._leaving.advance(snapshot, under_way.in_flight, leaving_since):
            self._memory = Memory()
        budgets = BudgetLedger(snapshot, under_way.in_flight, self._budgets)
        rules = Rules(
            selection=self._selection,
            protections=self._protections,
            budgets=budgets,
            active_pods=ActivePods(snapshot),
            now=now,
            refused=refused,
            snapshot=snapshot,
        )
        moving_pods = MovingPods.of(snapshot, under_way)
        all_tasks = self._tasks.advance(snapshot, rules)
        ready, moving, blocked = _ready(
            all_tasks, on_hold, begun, moving_pods, FiledPods.of(self._lost.pods, snapshot), uncounted(snapshot)
        )
        tasks = self._begun.of(ready, moving_pods)
        tasks.sort(key=lambda task: min(map(self._ranks.__getitem__, task.cure.values())))
        placement = self._placement
        tasks, drained = self._left_to_drains(tasks, placement, leaving_since, now)
        blocked.extend((key, each.held) for task, each in drained for key in task.cure)
        finder = Finder(placement, self._selection, budgets.may_all_go, self._ranks, self._leaving, self._numbers)
        queue = _queue(placement, moving_pods, tasks, self._lost.pods, now)
        kept = self._claims.of(placement, queue.waiting, moving, now) if tasks else Kept()
        solutions = Solver(placement, finder, self._memory, self._limits).solve(tasks, changes, kept.claims)
        stuck = [*blocked, *(each for solution in solutions for each in solution.stuck)]
        expected = MissingDomains(setting.policies, placement.table)
        complete = expected.complete(stuck, self._selection.selected, spread.groups)
        going = [pod for _, each in drained for pod in each.going]
        later = (*kept.coming, *demands_of_drained(going, self._leaving, placement))
        wave = self._wave(placement, budgets, solutions, queue, later, self._most(under_way.of_policies), now)
        planned = _plan(solutions, complete, wave, kept.missed, self._waiting, self._selection.selected)
        return msgspec.structs.replace(
            planned,
            held_pods=self._held_pods.count(all_tasks, planned, spread.groups),
            owners=frozenset(owner for task in all_tasks for owner in task.owners),
            changes_at=earliest((*(task.changes_at for task in all_tasks), *(held.until for _, held in blocked))),
        )

    def _left_to_drains(
        self, tasks: list[Task], placement: Placement, since: Mapping[str, datetime], now: datetime
    ) -> tuple[list[Task], list[tuple[Task, Drained]]]:
        """Return the tasks that are to be solved, and those that are restored as nodes lose their pods anyway."""
        if not self._leaving:
            return tasks, []
        patience = {policy.name: policy.spec.leaving_node_patience for policy in self._setting.policies}
        left: list[Task] = []
        drained: list[tuple[Task, Drained]] = []
        for task in tasks:
            shortest = min(patience[name] for name in task.cure.values())
            waits = waits_for_drain(task, self._leaving, placement, since, shortest, now)
            if waits is None:
                left.append(task)
            else:
                drained.append((task, waits))
        return left, drained

    def _wave(
        self,
        placement: Placement,
        budgets: BudgetLedger,
        solutions: Iterable[Solution],
        queue: _Queue,
        coming: Sequence[Demand],
        most: Mapping[str, int],
        now: datetime,
    ) -> Wave | None:
        """Return the wave that first steps may join; None if there is no such step.

        The moves that are still to be made for groups in motion, and the pods of nodes that are waited for, keep a
        place too, as if they were made already.
        """
        steps = [step for each in solutions for step in (each.first, *each.together) if step is not None]
        members = [member for step in steps for member in step.members]
        if not members:
            return None
        leaving = queue.leaving
        current = Current(placement)
        of_solutions = (_of_solution(each, leaving, placement, current, now) for each in solutions if each.is_begun)
        waiting = (*queue.waiting, *chain.from_iterable(of_solutions))
        largest = largest_of(member.pod for member in members)
        contention = Contention(placement, (*waiting, *coming), leaving, largest)
        self._priorities.forget_others(placement.table.slot_of)
        made = set(map(id, waiting))
        fragile = [each for each in contention.fragile if id(each) in made]
        without = [each for each in waiting if each.counts_on_leaving]
        return Wave(
            current,
            budgets,
            most,
            contention,
            leaving,
            preemptors_among((*without, *fragile), placement, self._priorities, now),
            [each for each in waiting if not each.nodes],
            self._priorities,
        )

    def _most(self, under_way: Mapping[str, int]) -> dict[str, int]:
        """Return by policy how many moves are planned for the first wave, beside so many that are under way."""
        return {
            policy.name: _ROOM_PER_LIMIT * max(1, policy.spec.limits.in_flight - under_way.get(policy.name, 0))
            for policy in self._setting.policies
        }

    def _advance(self, snapshot: ClusterSnapshot) -> Changes:
        """Advance the view to another snapshot, and return what has changed for the placement of pods."""
        view = self._predictor.view
        before = self._snapshot
        self._snapshot = snapshot
        view.advance(snapshot)
        if snapshot.nodes is not before.nodes or snapshot.unread is not before.unread or view.table is not self._table:
            self._memory = Memory()
        self._table = view.table  # If the view started again, it is another value: its slots belong to other nodes.
        none: Map[ObjectKey, Pod] = Map()
        pods, pods_before = snapshot.pods_by_node, before.pods_by_node
        with_other_pods = changed_keys(pods_before, pods)
        self._lost.advance(snapshot, (*changed_keys(before.nodes, snapshot.nodes), *with_other_pods))
        changed = [
            slot
            for name in with_other_pods
            if (slot := view.table.slot_of.get(name)) is not None
            and not looks_the_same(pods.get(name, none), pods_before.get(name, none))
        ]
        return Changes(
            nodes=node_set(changed),
            rules=any(getattr(snapshot, field) is not getattr(before, field) for field in self._placement.deciding),
        )


class _Queue(NamedTuple):
    """Who looks for a node already, except for the components that are planned."""

    leaving: Leaving
    """What pods that are being deleted will leave to them."""
    waiting: tuple[Demand, ...]


def _queue(
    placement: Placement, moving: MovingPods, tasks: Sequence[Task], lost: Iterable[Pod], now: datetime
) -> _Queue:
    snapshot = placement.view.snapshot
    planned = [pod for task in tasks for pod in task.coming]
    theirs = {pod.uid for pod in planned}
    deleted = snapshot.leaving_pods.values()
    leaving = Leaving(placement, deleted)
    # Whoever deletes them.
    replaced = {pod.uid: pod for pod in deleted if is_replaced_when_gone(pod) and pod.uid not in theirs}
    replaced.update({pod.uid: pod for pod in (*moving.besides(tasks), *lost) if pod.node_name})
    pending = [pod for pod in snapshot.waiting_pods.values() if pod.uid not in theirs]
    return _Queue(leaving, demands_in(placement, pending, replaced.values(), leaving, now, planned))


def _of_solution(
    solution: Solution, leaving: Leaving, placement: Placement, current: Current, now: datetime
) -> Iterable[Demand]:
    """Return the replacements that wait for a component that is planned."""
    if solution.waiting:
        return map(current.of, solution.waiting)
    coming = [pod for task in solution.tasks for pod in task.coming]
    # Beside one another, each of them may land wherever others let it in.
    return demands_in(placement, (), coming, leaving, now, coming)


def _ready(
    tasks: Iterable[Task],
    on_hold: OnHold,
    begun: AbstractSet[GroupKey],
    moves: MovingPods,
    lost: FiledPods,
    unread: Mapping[str, Held],
) -> tuple[list[Task], list[Task], list[tuple[GroupKey, Held]]]:
    """Return the tasks to be solved, those for which room is kept, and the groups left alone for now with why."""
    ready: list[Task] = []
    moving: list[Task] = []
    blocked: list[tuple[GroupKey, Held]] = []
    for task in tasks:
        reasons = (on_hold(key, policy) for key, policy in task.cure.items())
        in_motion = task.in_motion(moves.uids) or moves.why_late(task) or _losing(task, lost)
        held = why_uncounted(unread, task.namespace) or next(
            (reason for reason in reasons if reason is not None), in_motion
        )
        if held is None:
            ready.append(task)
            continue
        is_unfinished = in_motion is not None or not begun.isdisjoint(task.cure) or task.of(moves.coming)
        if held is in_motion or (is_unfinished and held.reason is Reason.QUIET_PERIOD):
            moving.append(task)
        blocked.extend((key, held) for key in task.cure)
    return ready, moving, blocked


def _losing(task: Task, lost: FiledPods) -> Held | None:
    """Return a reason if pods of a task are on nodes that no longer exist."""
    if not (pods := task.of(lost)):
        return None
    return Held(
        Reason.IN_MOTION,
        f"node {pods[0].node_name} of {pods[0].name} no longer exists: it is left alone until Kubernetes has deleted "
        "the pod and its replacement is placed",
    )


class _Joining:
    """Joins the first steps of a solution to the wave, one after another, as far as they are safe at the same time."""

    __slots__ = ("_is_wide", "_solution", "_wave", "steps", "waits")

    def __init__(self, solution: Solution, wave: Wave | None, missed: NodeSet) -> None:
        self._solution = solution
        self._wave = wave
        self._is_wide = solution.first is None
        """Whether the first step has joined with all nodes on which its replacement may land beside the next one's."""
        self.steps = 0
        """How many have joined."""
        self.waits: Held | None = None
        """What the next one waits for."""
        if not solution.steps:
            return
        if wave is None or (solution.first is None and not solution.together):
            self.waits = _NOT_YET_SAFE if solution.is_begun else _NOT_ALONE
        elif missed & (solution.landing | solution.vacated) and not any(solution.cured):
            self.waits = _NOT_FINISHED

    def go_on(self) -> bool:
        """Join one more step, and return whether it has joined."""
        solution, wave = self._solution, self._wave
        if self.waits is not None or wave is None or self.steps == len(solution.steps):
            return False
        if self.steps == 0:
            step = solution.first or solution.together[0]
            self.waits = wave.why_full(step) or wave.join(step)
        elif self.steps < len(solution.together):
            following = solution.together[self.steps]
            self.waits = wave.why_full(following)
            if not (self._is_wide or self.waits):
                self.waits = wave.widen(solution.together[0])
                self._is_wide = True
            self.waits = self.waits or wave.join(following)
        else:
            self.waits = _NOT_TOGETHER if solution.together else _ONE_AT_A_TIME
        self.steps += self.waits is None
        return self.waits is None

    def reserve(self) -> None:
        """Reserve room for the steps that follow those that have joined."""
        if self._wave is not None and self.steps:
            self._wave.reserve(self._solution.later[self.steps - 1 :])


def _precedence(solution: Solution) -> tuple[int, bool, Precedence]:
    """Return what is less for a solution that joins before another: of groups as important, those that are begun do."""
    return solution.precedence.rank, not solution.is_begun, solution.precedence


def _joined(solutions: Sequence[Solution], wave: Wave | None, missed: NodeSet) -> Mapping[int, tuple[int, Held | None]]:
    """Return, by the identity of each solution, how many of its steps may be made now, and what the next one waits for.

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
    return {key: (each.steps, each.waits) for key, each in joining.items()}


def _plan(
    solutions: Sequence[Solution],
    stuck: Iterable[Stuck],
    wave: Wave | None,
    missed: NodeSet,
    waiting: WaitingMoves,
    selected: Mapping[GroupKey, str],
) -> Plan:
    """Combine solutions, and determine the wave of each move.

    Args:
        solutions: all of them.
        stuck: the groups that stay violated.
        wave: what may be made now; None for nothing.
        missed: the nodes on which there is no room yet for the moves that are still to be made for groups in motion.
        waiting: the moves of the last plan's solutions.
        selected: the policy that selects each group.
    """
    moves: list[Move] = []
    before: dict[GroupKey, Mapping[str, int]] = {}
    after: dict[GroupKey, Mapping[str, int]] = {}
    joined = _joined(solutions, wave, missed)
    waiting.begin()
    for solution in solutions:
        moves.extend(waiting.of(solution, *joined[id(solution)]))
        before.update(solution.counts_before)
        after.update(solution.counts_after)
    return Plan(
        moves=tuple(sorted(moves, key=attrgetter("wave", "component", "step"))),
        blocked=tuple(
            BlockedGroup(
                group=key,
                policy=selected[key],
                reason=held.reason,
                message=held.message,
                full_domains=held.full_domains,
            )
            for key, held in stuck
        ),
        policies=selected,
        counts_before=before,
        counts_after=after,
        lower_bound=sum(solution.lower_bound for solution in solutions),
    )
