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
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Final

from respread.controller.acting import Acting
from respread.controller.choosing import choose
from respread.controller.observation import Observation, Observer
from respread.controller.permission import Leading
from respread.controller.permissions import PermissionNeeds
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.reporter import Reporter
from respread.controller.rest_of_plan import RestOfPlan
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.waking import BEAT_SECONDS, PlanningThread, Replanning, Waiting, is_full, next_plan
from respread.eviction.limiter import bounding
from respread.eviction.pacing import Paced
from respread.handlers.informer import Informers
from respread.holds.holds import why_stale
from respread.planning.moving_pods import OnHold
from respread.planning.plan import Move, Plan
from respread.provisioning.room_loop import RoomLoop, RoomView
from respread.telemetry.health import Heartbeat
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import PLANS, Metrics

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
        thread: PlanningThread | None = None,
    ) -> None:
        """Create it. `thread` is one of its own by default."""
        self._informers = informers
        self._acting = acting
        self._journal = acting.journal
        self._thread = thread = PlanningThread() if thread is None else thread
        self._observer = Observer(informers, acting, leading, prevention, metrics, scheduler, thread)
        self._reporter = Reporter(acting, prevention, room, needs, metrics, scheduler, thread)
        self._scheduler = scheduler
        self._room = room
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._clock = acting.journal.clock
        self._waiting = Waiting(informers.changes, heartbeat, self._clock)
        self._replanning = Replanning()
        self._rest: RestOfPlan | None = None
        self._warned_of_staleness = False

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
        if not self._observer.acts:
            return
        try:
            async with asyncio.timeout(LAST_SECONDS):
                observation = await self._observer.observe(stopping=True)
                planned = await self._thread.compute(self._plan, observation)
                await self._reporter.tell_last(observation, planned, self._choose(observation, planned))
        except TimeoutError:
            _log.warning("The last statuses were not written in time", limit_seconds=LAST_SECONDS)
        except Exception:  # noqa: BLE001 - whatever it is, the Lease is to be released
            _log.exception("The last statuses were not written")

    async def reconcile(self) -> float:
        """Reconcile once, and return when to reconcile again if nothing changes, on the clock."""
        with self._metrics.reconciling("all"):
            observation = await self._observer.observe(stopping=self._waiting.stopped)
            if self._plan_due_at() > observation.moment.now or self._goes_on(observation):
                return min(self._plan_due_at(), self._acting.next_look())
            with self._metrics.reconciling("plan"):
                planned = await self._thread.compute(self._plan, observation)
            self._scheduler.plan_depends_on(planned.owners)
            self._reporter.forget(observation, planned)
            classes = observation.setting.priority_classes
            view = RoomView(observation.snapshot, observation.spread, observation.policies, classes, planned)
            self._room.observe(view, observation.term)
            with self._metrics.reconciling("evict"):
                chosen = self._choose(observation, planned)
                self._informers.changes.decided()
                self._begin(chosen.now, observation)
                ledger = self._journal.ledger
            with self._metrics.reconciling("tell"):
                status_due = await self._reporter.tell(observation, planned, chosen)
            moment = self._journal.moment()
            others = min(status_due, self._acting.next_end(moment))
            full = is_full(observation.policies.values(), self._journal.ledger.of_policies)
            plan_at = next_plan(planned, chosen.held, moment=moment, others=others, full=full)
            awaited = ledger.without_node if planned.awaits_nodes else frozenset[str]()
            self._replanning.planned(ledger.uids, observation.moment.now, plan_at, full=full, awaited=awaited)
            self._rest = RestOfPlan(planned, observation, Counter(ledger.of_policies))
            return min(plan_at, self._acting.next_look())

    def _plan_due_at(self) -> float:
        ledger = self._journal.ledger
        return self._replanning.due_at(ledger.uids, ledger.without_node)

    def _goes_on(self, observation: Observation) -> bool:
        """Make more moves of the last plan; return whether it needs no other plan for the places that are free."""
        now, rest = observation.moment.now, self._rest
        if rest is None or not self._replanning.may_go_on(now):
            return False
        if rest.uses_all_places((), observation) or (left := rest.at(observation, self._on_hold(observation))) is None:
            return False
        with self._metrics.reconciling("evict"):
            chosen = self._choose(observation, left)
            if not rest.uses_all_places(chosen.now, observation):
                return False
            self._informers.changes.decided()
            self._begin(chosen.now, observation)
        self._replanning.went_on(self._journal.ledger.uids, now)
        return True

    def _on_hold(self, observation: Observation) -> OnHold:
        groups, policies = observation.spread.groups, observation.policies
        return self._acting.holds.of_groups(groups, policies, observation.history, observation.moment)

    def _plan(self, observation: Observation) -> Plan:
        started = monotonic()
        ledger, shown, moment = observation.ledger, observation.snapshot, observation.moment
        snapshot, under_way = ledger.overlay(shown), ledger.for_planning(shown, moment.now)
        holds = self._acting.holds
        planned = self._scheduler.planner.plan(
            snapshot,
            self._scheduler.index.update(snapshot),
            observation.setting,
            now=moment.time_of_day,
            on_hold=self._on_hold(observation),
            begun=holds.quiet_periods.begun,
            under_way=under_way,
            refused=observation.refused,
            leaving_since=holds.departures.observe(snapshot, under_way.in_flight, moment.time_of_day),
        )
        self._metrics.observe(PLANS, monotonic() - started)
        return planned

    def _choose(self, observation: Observation, planned: Plan) -> Paced:
        """Return which planned moves are made now: none while a watch is stale."""
        stale = why_stale(self._informers.health.ages_seconds())
        if stale is None:
            self._warned_of_staleness = False
        elif planned.moves and observation.leads and not self._warned_of_staleness:
            self._warned_of_staleness = True
            _log.warning("Nothing is evicted for now", reason=stale.reason, message=stale.message)
        return choose(
            planned,
            observation,
            closed_by=lambda policy, name: self._acting.permission.of_policy(policy, name) or stale,
            held_lately=self._acting.holds.refusals.why_not_chosen,
            room=self._acting.lanes.room,
        )

    def _begin(self, moves: Sequence[Move], observation: Observation) -> None:
        """Start moves, without waiting for them, if this replica leads."""
        if not moves or not observation.leads:
            return
        bound = bounding(moves, observation.limiters, observation.snapshot)
        planned_for = self._acting.permission.planned_for(observation.policies, observation.moment.now)
        self._acting.evictions.begin(moves, self._acting.evictions.batch(observation.snapshot, planned_for, bound))
