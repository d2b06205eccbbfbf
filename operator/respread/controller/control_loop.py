"""The control loop: woken by changes, it observes the whole cluster and acts.

It is level-triggered: it depends only on the state of the cluster, not on the change that woke it. A reconcile
observes, plans, chooses the moves for which limits have room now, and reports. It waits for no eviction: the chosen
moves are carried out beside it (`evictions`), and count as in flight for the next reconcile. That starts when the
cluster has changed, a place is free, or something is due: a quiet period, a back-off, a move to give up on. Long
computations run in a thread, on an observation that never changes, so that the Lease is renewed and probes are
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic, time
from typing import Final

from immutables import Map

from respread.cluster.state import ClusterSnapshot
from respread.controller.acting import Acting
from respread.controller.conclusions import Conclusions
from respread.controller.observation import Observation
from respread.controller.permits.choosing import choose
from respread.controller.permits.left_alone import left_alone, left_alone_until
from respread.controller.permits.left_to_do import left_to_do
from respread.controller.permits.limiters import Limiters, bounding
from respread.controller.permits.permission import Leading
from respread.controller.permits.permission_needs import PermissionNeeds
from respread.controller.permits.replanning import Replanning, is_full
from respread.controller.permits.staleness import why_stale
from respread.controller.planning_thread import PlanningThread
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.quiet_period import QuietPeriods
from respread.controller.records.departures import Departures
from respread.controller.records.other_evictions import OtherEvictions
from respread.controller.records.status_writer import Wanted
from respread.controller.report import Reconciled, to_tell
from respread.controller.requeue import next_reconcile
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.takeover import Takeover
from respread.controller.violation_times import ViolationTimes
from respread.controller.waiting import BEAT_SECONDS, Waiting
from respread.eviction.limits.remaining import Remaining
from respread.eviction.pacing import Paced
from respread.handlers.informers import Informers
from respread.planning.held import Held
from respread.planning.plan import Move, Plan
from respread.planning.planner import PolicySetting
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.policies import PolicyIndex, reach
from respread.provisioning.room_loop import RoomLoop
from respread.provisioning.term import RoomView
from respread.spread.index import Spread
from respread.stores.policy_store import Policies
from respread.telemetry.health import Heartbeat
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Forgetting, Metrics

_log: Final = get_logger(__name__)

LAST_SECONDS: Final = 5.0
"""How long the last statuses may take when the operator is stopped."""


class ControlLoop:
    """Plans for the whole cluster and acts for all policies."""

    def __init__(
        self,
        informers: Informers,
        acting: Acting,
        *,
        leading: Leading,
        prevention: PreventionLoop,
        room: RoomLoop,
        needs: PermissionNeeds,
        metrics: Metrics,
        heartbeat: Heartbeat,
        scheduler: SchedulerModel,
        others: OtherEvictions,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time,
        thread: PlanningThread | None = None,
    ) -> None:
        """Create the loop.

        Args:
            informers: the informers with their stores.
            acting: acts for policies, and knows what was done.
            leading: whether this replica acts.
            prevention: writes pod deletion costs, beside this loop.
            room: asks for room in domains without a node, beside this loop.
            needs: tells which permissions are missing.
            metrics: receive every plan.
            heartbeat: beats at every successful reconcile.
            others: recognizes evictions by others.
            scheduler: the model of the cluster's schedulers.
            clock: a monotonic clock in seconds.
            wall_clock: seconds since the epoch.
            thread: runs long computations; by default a thread of its own.
        """
        self._informers = informers
        self._acting = acting
        self._journal = acting.journal
        self._history = acting.journal.history
        self._leading = leading
        self._prevention = prevention
        self._room = room
        self._needs = needs
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._clock = clock
        self._wall_clock = wall_clock
        self._scheduler = scheduler
        self._quiet_periods = QuietPeriods()
        self._departures = Departures()
        self._others = others
        self._limiters = Limiters()
        self._budgets = BudgetIndex()
        self._remaining: Mapping[str, Remaining] = {}
        self._violation_times = ViolationTimes(
            lambda policy, seconds: metrics.observe_rebalance(policy=policy, seconds=seconds)
        )
        self._policies: Policies = Map()
        self._policy_index = PolicyIndex(())
        self._forgetting = Forgetting(metrics)
        self._takeover = Takeover(acting, leading, notify=informers.changes.notify, clock=clock, wall_clock=wall_clock)
        self._conclusions = Conclusions(acting, metrics, clock)
        self._waiting = Waiting(informers.changes, heartbeat, clock)
        self._replanning = Replanning()
        self._warned_of_staleness = False
        self._thread = PlanningThread() if thread is None else thread

    def stop(self) -> None:
        """End `run` when all sent requests are answered, and the last statuses written. Nothing more is evicted."""
        self._acting.permission.stop()
        self._waiting.stop()

    async def run(self) -> None:
        """Reconcile until stopped, starting when every watched kind is known.

        If a reconcile fails, this is a bug. It is logged, and the loop tries again, because the cause may be gone then.
        The heartbeat does not beat for it, so that liveness fails if this continues.
        """
        try:
            while not self._waiting.stopped:
                self._heartbeat.beat()
                await self._waiting.until(await self._next())
        finally:
            await self._acting.aclose()
        await self._tell_last()

    async def _next(self) -> float:
        """Reconcile until it succeeds, and return when to reconcile again if nothing changes, on the clock."""
        wake_at = self._clock() + BEAT_SECONDS
        while self._informers.health.synced and not self._waiting.stopped:
            self._thread.take_seconds()
            try:
                wake_at = await self.reconcile()
            except Exception:  # noqa: BLE001 - whatever it is, the others are not to suffer for long
                pause = self._waiting.failed()
                _log.exception("A reconcile failed; it is tried again", wait_seconds=pause)
                await self._waiting.pause(pause)
            else:
                self._waiting.succeeded(self._thread.take_seconds())
                break
        return wake_at

    async def _tell_last(self) -> None:
        """Write the statuses and records that are not due yet, with the answers to the last evictions.

        The next leader counts on from them, and users see no other number than that of the pods that were evicted.
        """
        acts = self._leading.leads() and self._leading.term() == self._takeover.term
        if not acts or not self._informers.health.synced:
            return
        try:
            async with asyncio.timeout(LAST_SECONDS):
                observation = await self._observe()
                planned = await self._thread.compute(self._plan, observation)
                chosen = self._choose(observation, planned)
                await self._acting.statuses.write_all(await self._told(observation, planned, chosen, due=True))
        except TimeoutError:
            _log.warning("The last statuses were not written in time", limit_seconds=LAST_SECONDS)
        except Exception:  # noqa: BLE001 - whatever it is, the Lease is to be released
            _log.exception("The last statuses were not written")

    async def reconcile(self) -> float:
        """Reconcile once, and return when to reconcile again if nothing changes, on the clock."""
        with self._metrics.reconciling("all"):
            observation = await self._observe()
            if (plan_at := self._replanning.due_at(_pods(observation.ledger.moves))) > observation.now:
                return plan_at
            with self._metrics.reconciling("plan"):
                planned = await self._thread.compute(self._plan, observation)
            self._scheduler.plan_depends_on(planned.owners)
            self._forget(observation, planned)
            self._ask_for_room(observation, planned)
            with self._metrics.reconciling("evict"):
                chosen = self._choose(observation, planned)
                self._informers.changes.decided()
                self._begin(chosen.now, observation)
                moves = self._journal.ledger.moves
            with self._metrics.reconciling("tell"):
                status_due = await self._tell(observation, planned, chosen)
            wake_at = next_reconcile(
                planned,
                chosen.held,
                now=self._clock(),
                others=(
                    status_due,
                    self._on_the_clock(None if planned.changes_at is None else planned.changes_at.timestamp()),
                    self._journal.ledger.next_deadline(),
                    self._acting.next_end(),
                    self._on_the_clock(self._history.breakers.next_end(self._wall_clock())),
                    self._on_the_clock(None if (due := self._others.next_due()) is None else due.timestamp()),
                ),
                release=left_alone_until(observation, self._quiet_periods, self._others, self._on_the_clock),
            )
            full = is_full(observation.policies.values(), self._journal.ledger.of_policies)
            self._replanning.planned(_pods(moves), observation.now, wake_at, full=full)
            return wake_at

    # Observe

    async def _observe(self) -> Observation:
        """Take over changes and the outcomes of moves in flight."""
        with self._metrics.reconciling("observe"):
            snapshot, policies = self._informers.state.snapshot, self._informers.policies.policies
            self._scheduler.follow(policies.values())
            spread = await self._thread.compute(self._scheduler.index.update, snapshot)
            index = self._index_of(policies)
            known = self._scheduler.learn(spread, snapshot, index)
            setting = PolicySetting(tuple(policies.values()), self._informers.priority_classes.values)
            limiters = self._limiters.of(policies)
            leads = await self._takeover.acts(snapshot, spread, setting, limiters, known=known)
        with self._metrics.reconciling("follow"):
            self._follow(snapshot, spread, policies, leads=leads)
        ledger = self._journal.ledger
        leaving = _pods(ledger.moves)
        statuses = self._acting.statuses.all_known(policies, self._informers.policies.statuses)
        term, records = self._takeover.term if leads else None, self._acting.statuses.records
        self._prevention.observe(snapshot, spread, policies, leaving, term, records)
        seconds = self._wall_clock()
        time = datetime.fromtimestamp(seconds, UTC)
        if leads:
            self._others.observe(snapshot, {each.uid for each in ledger.ours}, time)
        else:
            self._others.forget()
        return Observation(
            snapshot=snapshot,
            spread=spread,
            policies=policies,
            index=index,
            statuses=statuses,
            seen=self._informers.policies.statuses,
            setting=setting,
            limiters=limiters,
            ledger=ledger,
            history=self._history.at(seconds, ledger.expected_with_chosen),
            refused=self._acting.evictions.refusals.for_planning(),
            now=self._clock(),
            time=time,
            leads=leads,
        )

    def _index_of(self, policies: Policies) -> PolicyIndex:
        """Return which policies govern which pods. It is kept, with its answers, while the policies are the same."""
        if policies is not self._policies:
            self._policies = policies
            self._policy_index = PolicyIndex(policies.values())
        return self._policy_index

    def _follow(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, leads: bool) -> None:
        """Check the moves in flight, and process their outcomes."""
        if not self._waiting.stopped:
            self._acting.follow_up.look_after(snapshot)
            if leads:
                self._acting.follow_up.find_out()
        ours = {each.move.workload for each in self._journal.ledger.ours}
        unmade = leads and self._journal.ledger.unmade
        if unmade and not self._waiting.stopped and self._why_stale() is None:
            self._conclusions.ask_again(snapshot, spread, policies)
        self._conclusions.draw(snapshot, spread, policies, leads=leads)
        self._quiet_periods.observe(spread.groups, ours, self._clock())

    # Plan

    def _plan(self, observation: Observation) -> Plan:
        started = monotonic()
        ledger, shown = observation.ledger, observation.snapshot
        snapshot, under_way = ledger.overlay(shown), ledger.for_planning(shown, observation.now)
        planned = self._scheduler.planner.plan(
            snapshot,
            self._scheduler.index.update(snapshot),
            observation.setting,
            now=observation.time,
            on_hold=left_alone(observation, self._quiet_periods, self._others),
            begun=self._quiet_periods.begun,
            under_way=under_way,
            refused=observation.refused,
            leaving_since=self._departures.observe(snapshot, under_way.in_flight, observation.time),
        )
        self._metrics.observe_plan(monotonic() - started)
        return planned

    def _forget(self, observation: Observation, planned: Plan) -> None:
        """Forget what is gone, in memory and metrics."""
        groups, policies = observation.spread.groups, observation.policies
        if observation.leads:
            self._violation_times.see(groups, planned.policies, observation.now)
        busy = {key for move in observation.ledger.moves for key in move.groups}
        self._history.forget_expired(groups, busy)
        self._history.forget_others(policies)
        self._history.forget_other_namespaces(observation.snapshot.namespaces)
        self._forgetting.keep(policies, observation.snapshot.namespaces)

    def _ask_for_room(self, observation: Observation, planned: Plan) -> None:
        """Pass the plan to whatever asks for room in domains without a node."""
        classes = observation.setting.priority_classes
        view = RoomView(observation.snapshot, observation.spread, observation.policies, classes, planned)
        self._room.observe(view, self._takeover.term if observation.leads else None)

    # Choose

    def _choose(self, observation: Observation, planned: Plan) -> Paced:
        """Return which planned moves are made now: none while a watch is stale."""
        stale = self._why_stale()
        if stale is None:
            self._warned_of_staleness = False
        elif planned.moves and observation.leads and not self._warned_of_staleness:
            self._warned_of_staleness = True
            _log.warning("Nothing is evicted for now", reason=stale.reason, message=stale.message)
        return choose(
            planned,
            observation,
            closed_by=lambda policy, name: self._acting.permission.of_policy(policy, name) or stale,
            held_lately=self._acting.held_lately.why_not,
            room=self._acting.lanes.room,
        )

    def _begin(self, moves: Sequence[Move], observation: Observation) -> None:
        """Start moves, without waiting for them, if this replica leads."""
        if not moves or not observation.leads:
            return
        bound = bounding(moves, observation.limiters, observation.snapshot)
        planned_for = self._acting.permission.planned_for(observation.policies, observation.now)
        self._acting.evictions.begin(moves, self._acting.evictions.batch(observation.snapshot, planned_for, bound))

    def _why_stale(self) -> Held | None:
        return why_stale(self._informers.health.ages_seconds())

    # Tell

    async def _tell(self, observation: Observation, planned: Plan, chosen: Paced) -> float | None:
        """Publish the results, and return when a status is due next, on the clock."""
        due = self._acting.statuses.any_due(observation.policies.values())
        wanted = await self._told(observation, planned, chosen, due=due)
        if not observation.leads or not self._leading.leads():
            return None
        return await self._acting.statuses.write(wanted)

    async def _told(self, observation: Observation, planned: Plan, chosen: Paced, *, due: bool) -> list[Wanted]:
        """Show the results in metrics, and return them as statuses.

        What is left to be done is estimated only if a status is due: in a storm, plans are made more often.
        """
        ledger = self._journal.ledger
        if due:
            self._remaining = await self._thread.compute(
                left_to_do, planned, chosen, ledger.moves, observation, self._budgets
            )
        reconciled = Reconciled(
            spread=observation.spread,
            plan=planned,
            reach=await self._thread.compute(reach, observation.index, observation.snapshot),
            held=chosen.held,
            in_flight=ledger.of_policies,
            remaining=self._remaining,
            remembered=self._journal.for_records(observation.snapshot),
            other_evictors=self._others.repeated,
            contested_costs=self._prevention.contested,
            room_missing=self._room.missing,
            missing_permissions=self._needs.look(
                observation.policies, planned.policies, observation.snapshot.namespaces, acts=observation.leads
            ),
            findings=await self._thread.compute(
                self._scheduler.auditor.update, observation.snapshot, observation.spread
            ),
            time=observation.time,
        )
        figures, wanted = await self._thread.compute(to_tell, observation, reconciled)
        self._metrics.show_plan(figures)
        in_flight = ledger.of_policies
        self._metrics.show_evictions_in_flight({name: in_flight.get(name, 0) for name in observation.policies})
        return wanted

    # Time

    def _on_the_clock(self, time_of_day: float | None) -> float | None:
        """Convert seconds since the epoch to the clock."""
        return None if time_of_day is None else self._clock() + time_of_day - self._wall_clock()


def _pods(moves: Iterable[Move]) -> frozenset[str]:
    """Return the UIDs of the pods of moves."""
    return frozenset(move.pod.uid for move in moves)
