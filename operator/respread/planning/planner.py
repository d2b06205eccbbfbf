"""Makes a plan from a snapshot and policies.

Groups that share pods form a component. A component with a violated group that a policy restores is a task (`tasks`).
Tasks are solved (`solving`), and their solutions contain the moves. Moves of the first wave can be made at the same
time (`wave`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
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
from respread.planning.contention import Contention
from respread.planning.explain.expected_domains import MissingDomains, Stuck
from respread.planning.held import Held
from respread.planning.leaving_nodes import Drained, LeavingNodes, seekers_among, waits_for_drain
from respread.planning.lost_pods import LostPods
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.planning.preemption import Priorities, preemptors_among
from respread.planning.search.placement import Placement, is_replaced_when_gone
from respread.planning.search.solution import Finder, Solution
from respread.planning.search.solving import ORDINARY_LIMITS, Changes, Memory, SearchLimits, Solver
from respread.planning.seekers import Leaving, Seeker, largest_of, seekers_in
from respread.planning.tasks import Task, Tasks, earliest
from respread.planning.turns import in_turns
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.budgets import BudgetLedger
from respread.planning.victims.candidates import Rules
from respread.planning.victims.controllers import ActivePods
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.protection import SYSTEM_PRIORITY_CLASSES, Protection
from respread.planning.victims.refused import NOTHING_REFUSED, Refused
from respread.planning.victims.selection import Selection
from respread.planning.victims.uncounted import uncounted, why_uncounted
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
"""How many times `limits.inFlight` moves of a policy are planned for the first wave, because other limits may hold
some. Planning bench/busy's cluster takes as long with 2."""
_NOT_ALONE: Final = Held(
    Reason.IN_MOTION, "it waits for the room that moves of other spread groups leave, and is then planned again"
)
_NOT_FINISHED: Final = Held(
    Reason.IN_MOTION,
    "it can't be restored now, and waits for moves of other spread groups, which may need the room that it would take",
)

_DECIDING: Final = (
    "namespaces",
    "services",
    "replica_sets",
    "stateful_sets",
    "replication_controllers",
    "persistent_volume_claims",
    "persistent_volumes",
    "storage_classes",
    "csi_nodes",
)
"""The parts of a snapshot, besides nodes and pods, that affect where the scheduler places pods."""


def never_on_hold(_key: GroupKey, _policy: str) -> None:
    """Hold no group."""


class PolicySetting(NamedTuple):
    """The policies, and the objects that they refer to."""

    policies: tuple[Policy, ...]
    """The policies in use, of both kinds."""
    priority_classes: Mapping[str, int] = SYSTEM_PRIORITY_CLASSES
    """The values of the cluster's PriorityClasses by name."""

    def protections(self) -> dict[str, Protection]:
        """Return the rules for victims of every valid policy, by the policies' names."""
        protections: dict[str, Protection] = {}
        for policy in self.policies:
            if policy.problems:
                continue
            try:
                protections[policy.name] = Protection.of(policy.spec.victims, self.priority_classes)
            except ValueError:
                continue  # Its PriorityClass does not exist. Until it does, the policy evicts nothing.
        return protections

    def ranks(self) -> dict[str, int]:
        """Return by name how important policies are where room is not enough for all, the most important first.

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
        self._claims = Claims()
        self._waiting = WaitingMoves()
        self._set(PolicySetting(()))

    def _set(self, setting: PolicySetting) -> None:
        """Take over policies, and forget what was found under others."""
        self._setting = setting
        self._protections = setting.protections()
        self._ranks = setting.ranks()
        self._selection = Selection(PolicyIndex(setting.policies))
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
        in_flight: Iterable[Pod] = (),
        unreplaced: Iterable[Pod] = (),
        refused: Refused = NOTHING_REFUSED,
        leaving_since: Mapping[str, datetime] = Map(),
    ) -> Plan:
        """Return the moves that restore the selected groups, and why some are not restored.

        Args:
            snapshot: the cluster.
            spread: its spread groups.
            setting: the policies.
            now: the time, with a time zone.
            on_hold: which groups to leave alone for now, and why.
            begun: groups that our moves have begun to restore. During a quiet period, room is kept for them and for
                those in motion. Otherwise others would take it, and the evictions would have been made in vain.
            in_flight: pods whose eviction the API server has accepted, as the snapshot shows them.
            unreplaced: those among them, and others that are being evicted, whose replacements are yet to be created.
            refused: what it has refused lately.
            leaving_since: when nodes that lose their pods anyway lost one last, or began to; of others it is not known.
        """
        if setting != self._setting:
            self._set(setting)
        changes = self._advance(snapshot)
        self._selection.advance(snapshot, spread)
        ours = tuple(in_flight)
        if self._leaving.advance(snapshot, ours, leaving_since):
            self._memory = Memory()
        budgets = BudgetLedger(snapshot, ours, self._budgets)
        rules = Rules(
            selection=self._selection,
            protections=self._protections,
            budgets=budgets,
            active_pods=ActivePods(snapshot),
            now=now,
            refused=refused,
            snapshot=snapshot,
        )
        coming, lost = tuple(unreplaced), self._lost.pods
        all_tasks = self._tasks.advance(snapshot, rules)
        tasks, moving, blocked = _ready(all_tasks, on_hold, begun, coming, lost, uncounted(snapshot))
        tasks.sort(key=lambda task: min(map(self._ranks.__getitem__, task.cure.values())))
        placement = Placement(self._predictor)
        tasks, drained = self._left_to_drains(tasks, placement, leaving_since, now)
        blocked.extend((key, each.held) for task, each in drained for key in task.cure)
        finder = Finder(placement, self._selection, budgets.may_all_go, self._ranks, self._leaving, self._numbers)
        queue = _queue(placement, (*coming, *lost) if tasks else (), now)
        kept = self._claims.of(placement, queue.waiting, moving, now) if tasks else Kept()
        solutions = Solver(placement, finder, self._memory, self._limits).solve(tasks, changes, kept.claims)
        stuck = [*blocked, *(each for solution in solutions for each in solution.stuck)]
        expected = MissingDomains(setting.policies, placement.table)
        complete = expected.complete(stuck, self._selection.selected, spread.groups)
        going = [pod for _, each in drained for pod in each.going]
        later = (*kept.coming, *seekers_among(going, self._leaving, placement))
        wave = self._wave(placement, budgets, solutions, queue, later, now)
        planned = _plan(solutions, complete, wave, kept.missed, self._waiting, self._selection.selected)
        return msgspec.structs.replace(
            planned,
            changes_at=earliest((*(task.changes_at for task in all_tasks), *(each.held.until for _, each in drained))),
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
        coming: Sequence[Seeker],
        now: datetime,
    ) -> Wave | None:
        """Return the wave that first steps may join; None if there is no such step.

        The moves that are still to be made for groups in motion, and the pods of nodes that are waited for, keep a
        place too, as if they were made already.
        """
        members = [member for each in solutions if each.first is not None for member in each.first.members]
        if not members:
            return None
        leaving, waiting = queue
        largest = largest_of(member.pod for member in members)
        contention = Contention(placement, (*waiting, *coming), leaving, largest)
        self._priorities.forget_others(placement.table.slot_of)
        made = set(map(id, waiting))
        fragile = [each for each in contention.fragile if id(each) in made]
        without = [each for each in waiting if each.counts_on_leaving]
        return Wave(
            placement,
            budgets,
            {policy.name: _ROOM_PER_LIMIT * policy.spec.limits.in_flight for policy in self._setting.policies},
            contention,
            leaving,
            preemptors_among((*without, *fragile), placement, self._priorities, now),
            [each for each in waiting if not each.nodes],
            self._priorities,
        )

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
            rules=any(getattr(snapshot, field) is not getattr(before, field) for field in _DECIDING),
        )


class _Queue(NamedTuple):
    """Who looks for a node already."""

    leaving: Leaving
    """What pods that are being deleted will leave to them."""
    waiting: tuple[Seeker, ...]


def _queue(placement: Placement, coming: Iterable[Pod], now: datetime) -> _Queue:
    deleted = placement.view.snapshot.leaving_pods.values()
    leaving = Leaving(placement, deleted)
    replaced = {pod.uid: pod for pod in deleted if is_replaced_when_gone(pod)}  # whoever deletes them
    replaced.update({pod.uid: pod for pod in coming})
    return _Queue(leaving, seekers_in(placement, replaced.values(), leaving, now))


def _ready(
    tasks: Iterable[Task],
    on_hold: OnHold,
    begun: AbstractSet[GroupKey],
    coming: Iterable[Pod],
    lost: Iterable[Pod],
    unread: Mapping[str, Held],
) -> tuple[list[Task], list[Task], list[tuple[GroupKey, Held]]]:
    """Return the tasks to be solved, those for which room is kept, and the groups left alone for now with why."""
    replaced = {(pod.namespace, pod.labels): pod for pod in coming}
    on_no_node = {(pod.namespace, pod.labels): pod for pod in lost}
    ready: list[Task] = []
    moving: list[Task] = []
    blocked: list[tuple[GroupKey, Held]] = []
    for task in tasks:
        reasons = (on_hold(key, policy) for key, policy in task.cure.items())
        in_motion = task.moving or task.missing(replaced) or task.losing(on_no_node)
        held = why_uncounted(unread, task.namespace) or next(
            (reason for reason in reasons if reason is not None), in_motion
        )
        if held is None:
            ready.append(task)
            continue
        is_unfinished = in_motion is not None or not begun.isdisjoint(task.cure)
        if held is in_motion or (is_unfinished and held.reason is Reason.QUIET_PERIOD):
            moving.append(task)
        blocked.extend((key, held) for key in task.cure)
    return ready, moving, blocked


def _joined(solution: Solution, wave: Wave | None, missed: NodeSet) -> Held | None:
    """Join the first step of a solution to the wave, and return None, or return what it waits for."""
    if solution.first is None or wave is None:
        return _NOT_ALONE
    if missed & (solution.landing | solution.vacated) and not any(solution.cured):
        return _NOT_FINISHED
    if (held := wave.join(solution.first)) is None:
        wave.reserve(solution.later)
    return held


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
        waiting: the moves of solutions that waited in the last plan.
        selected: the policy that selects each group.
    """
    moves: list[Move] = []
    before: dict[GroupKey, Mapping[str, int]] = {}
    after: dict[GroupKey, Mapping[str, int]] = {}
    waits = {
        id(solution): _joined(solution, wave, missed)
        for solution in in_turns(sorted(solutions, key=attrgetter("precedence")), lambda each: each.namespace)
    }
    waiting.begin()
    for solution in solutions:
        held = waits[id(solution)]
        moves.extend(chain.from_iterable(solution.steps) if held is None else waiting.of(solution, held))
        before.update(solution.counts_before)
        after.update(solution.counts_after)
    return Plan(
        moves=tuple(sorted(moves, key=attrgetter("wave", "component", "step"))),
        blocked=tuple(
            BlockedGroup(group=key, policy=selected[key], reason=held.reason, message=held.message)
            for key, held in stuck
        ),
        policies=selected,
        counts_before=before,
        counts_after=after,
        lower_bound=sum(solution.lower_bound for solution in solutions),
    )
