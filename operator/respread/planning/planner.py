"""Makes a plan from a snapshot and policies.

Groups that share pods form a component. A component with a violated group that a policy restores is a task (`tasks`).
Tasks are solved (`solving`), and their solutions contain the moves. Moves of the first wave can be made at the same
time (`combining`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import count

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.cluster.state import ClusterSnapshot
from respread.planning.claims import Claims, Kept
from respread.planning.combining import Combination, Surroundings, queue_of
from respread.planning.leaving_nodes import Drained, LeavingNodes, demands_of_drained, waits_for_drain
from respread.planning.moving_pods import NOTHING_UNDER_WAY, Motion, OnHold, UnderWay, never_on_hold
from respread.planning.placement import Changes, Placement
from respread.planning.plan import Plan
from respread.planning.solution import Finder, Solution
from respread.planning.solving import ORDINARY_LIMITS, Memory, SearchLimits, Solver
from respread.planning.tasks import HeldPods, Task, Tasks, earliest
from respread.planning.victims.budgets import BudgetBook, BudgetIndex
from respread.planning.victims.policies import PolicySetting, kinds_restored
from respread.planning.victims.selection import NOTHING_REFUSED, Refused, Rules, Selection
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import DefaultConstraints
from respread.spread.group import GroupKey
from respread.spread.index import Spread, SpreadIndex


class Planner:
    """Plans for one snapshot after the other, at the cost of what has changed."""

    def __init__(self, predictor: Predictor | None = None, limits: SearchLimits = ORDINARY_LIMITS) -> None:
        """Create it. The planner owns the predictor's view."""
        self._placement = Placement(predictor)
        self._limits = limits
        self._snapshot = ClusterSnapshot()
        self._leaving = LeavingNodes()
        self._motion = Motion()
        self._numbers = count()
        self._budgets = BudgetIndex()
        self._claims = Claims()
        self._combination = Combination()
        self._held_pods = HeldPods()
        self._set(PolicySetting(()))

    def _set(self, setting: PolicySetting) -> None:
        """Take over policies, and forget what was found under others."""
        self._setting = setting
        self._placement = Placement(self._placement.predictor, kinds_restored(setting.policies))
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

        The groups of `spread` don't count pods in flight. During a quiet period, room is kept for groups that our moves
        have `begun` to restore, and for those in motion. Otherwise others would take it, and the evictions would have
        been made in vain. `under_way` are the moves that were chosen or made, and whose replacements are not Ready.
        `leaving_since` is when nodes that lose their pods anyway lost one last, or began to.
        """
        changes = self._advance(snapshot, spread, setting, under_way, leaving_since)
        budgets = BudgetBook(snapshot, under_way.in_flight, self._budgets)
        rules = Rules(
            snapshot=snapshot,
            selection=self._selection,
            protections=setting.protections,
            budgets=budgets,
            now=now,
            refused=refused,
        )
        every = self._tasks.advance(rules)
        self._motion.advance(snapshot, changes.names, under_way)
        parted = self._motion.part(every, on_hold, begun)
        tasks = sorted(parted.ready, key=lambda task: min(map(setting.ranks.__getitem__, task.cure.values())))
        tasks, drained = self._left_to_drains(tasks, leaving_since, now)
        leaving, waiting = queue_of(self._placement, self._motion, tasks, now)
        kept = self._claims.of(self._placement, waiting, parted.moving, now) if tasks else Kept()
        solutions = self._solved(tasks, budgets, changes, kept)
        left = [*parted.blocked, *((key, each.held) for task, each in drained for key in task.cure)]
        stuck = [*left, *(each for solution in solutions for each in solution.stuck)]
        going = [pod for _, each in drained for pod in each.going]
        later = (*kept.coming, *demands_of_drained(going, self._leaving, self._placement))
        beside = Surroundings(
            self._placement, budgets, leaving, waiting, later, kept.missed, setting.policies, under_way.of_policies, now
        )
        planned = self._combination.of(solutions, stuck, beside, self._selection.selected, spread.groups)
        return msgspec.structs.replace(
            planned,
            held_pods=self._held_pods.count(every, planned, spread.groups),
            owners=frozenset(owner for task in every for owner in task.owners),
            changes_at=earliest((*(task.changes_at for task in every), *(held.until for _, held in left))),
        )

    def _advance(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        setting: PolicySetting,
        under_way: UnderWay,
        leaving_since: Mapping[str, datetime],
    ) -> Changes:
        """Take over policies and a snapshot, and forget the solutions that are not valid any more."""
        if setting != self._setting:
            self._set(setting)
        before, self._snapshot = self._snapshot, snapshot
        changes = self._placement.advance(snapshot, before)
        self._selection.advance(snapshot, spread)
        are_others_leaving = self._leaving.advance(snapshot, under_way.in_flight, leaving_since)
        if changes.is_new_start or are_others_leaving:
            self._memory.forget_solutions()
        return changes

    def _solved(self, tasks: Sequence[Task], budgets: BudgetBook, changes: Changes, kept: Kept) -> list[Solution]:
        ranks = self._setting.ranks
        finder = Finder(self._placement, self._selection, budgets.may_all_go, ranks, self._leaving, self._numbers)
        return Solver(self._placement, finder, self._memory, self._limits, changes, kept.claims).solve(tasks)

    def _left_to_drains(
        self, tasks: list[Task], since: Mapping[str, datetime], now: datetime
    ) -> tuple[list[Task], list[tuple[Task, Drained]]]:
        """Return the tasks that are to be solved, and those that are restored as nodes lose their pods anyway."""
        if not self._leaving.names:
            return tasks, []
        patience = {policy.name: policy.spec.leaving_node_patience for policy in self._setting.policies}
        left: list[Task] = []
        drained: list[tuple[Task, Drained]] = []
        for task in tasks:
            shortest = min(patience[name] for name in task.cure.values())
            waits = waits_for_drain(task, self._leaving, self._placement, since, shortest, now)
            if waits is None:
                left.append(task)
            else:
                drained.append((task, waits))
        return left, drained


class PlanningModel:
    """Finds spread groups and plans for them. What depends on an assumption is made again when that changes."""

    def __init__(self, predictor: Predictor | None = None) -> None:
        """Create it. `predictor` is that of the schedulers, by default in their default configuration."""
        self.predictor = Predictor(ClusterView()) if predictor is None else predictor
        self.planner = Planner(self.predictor)
        self._defaults = DefaultConstraints(self.predictor.configuration)
        self.index = SpreadIndex(self._defaults)

    def assume(self, configuration: SchedulerConfiguration, policies: Iterable[Policy]) -> None:
        """Use a configuration of the schedulers, and those of its default constraints that matter to some policies."""
        if configuration != self.predictor.configuration:
            self.predictor = Predictor(ClusterView(), configuration)
            self.planner = Planner(self.predictor)
        defaults = DefaultConstraints(configuration, kinds_restored(policies))
        if defaults != self._defaults:
            self._defaults, self.index = defaults, SpreadIndex(defaults)
