"""The loop that plans and acts: woken by changes, it looks at everything anew and does what is to be done now.

Level-triggered: nothing depends on which change woke it, only on how the cluster stands. A turn takes a snapshot,
follows the moves under way, plans, evicts the first wave within the limits, and tells. Whatever becomes due by time
alone (a quiet period, a back-off, a move that is given up on) wakes it too. What takes long and only computes is done
in a thread, on values that nothing changes, so that the Lease is renewed and probes are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from time import monotonic, time
from typing import Final, NamedTuple, ParamSpec, TypeVar

from immutables import Map

from respread.api.conditions import PolicyOutcome, next_status
from respread.api.policy import EvictionOptions, Policy
from respread.api.reasons import Reason
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.controller.announcements import Announcements
from respread.controller.comparison import Comparison
from respread.controller.limiters import Limiters
from respread.controller.permission import Permission, Policies
from respread.controller.policy_versions import PolicyReader
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.quiet_period import Settling
from respread.controller.record import Record
from respread.controller.recovery import AskingRules, moves_to_remember, resume
from respread.controller.report import Turn, figures_of, outcomes_of
from respread.controller.requeue import next_look
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.status_writer import StatusWriter, Wanted
from respread.controller.violation_times import ViolationTimes
from respread.controller.waves import Waves
from respread.eviction.carry_out import Carrier
from respread.eviction.in_flight import Ended
from respread.eviction.pacing import GroupPace, Limiter, Pace
from respread.eviction.probation import Probation
from respread.handlers.informers import Intake
from respread.kube.listing import ListError
from respread.planning.held import Held
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.planning.planner import OnHold, PolicySetting
from respread.planning.victims.policies import PolicyIndex, reach
from respread.spread.group import GroupKey
from respread.spread.index import Spread
from respread.telemetry.figures import PlanFigures
from respread.telemetry.health import Heartbeat
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

GATHER_SECONDS: Final = 0.05
"""How long changes are gathered at least before they are looked at: a change seldom comes alone."""
LONGEST_GATHER_SECONDS: Final = 5.0
"""Where looking takes long, changes are gathered for as long as the last look computed: half of the time at most is
spent on it. What a turn waited for answers does not count, since moves that ended meanwhile have left places free."""
BEAT_SECONDS: Final = 10.0
"""However quiet the cluster is, the heart beats this often."""
LONGEST_PAUSE_SECONDS: Final = 60.0
"""How long the loop waits at most after turns that failed."""


class Leading(NamedTuple):
    """What is to be known of leadership at any moment."""

    leads: Callable[[], bool]
    """Whether this replica evicts and writes statuses."""
    term: Callable[[], int]
    """A number that differs whenever somebody else may have led since."""


class ControlLoop:
    """Plans for the whole cluster and acts for all policies."""

    def __init__(
        self,
        intake: Intake,
        carrier: Carrier,
        *,
        leading: Leading,
        permission: Permission,
        prevention: PreventionLoop,
        statuses: StatusWriter,
        policy_reader: PolicyReader,
        announcements: Announcements,
        metrics: Metrics,
        heartbeat: Heartbeat,
        scheduler: SchedulerModel | None = None,
        namespaced_policies: bool = True,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        """Prepare the loop.

        Args:
            intake: what is known of the cluster.
            carrier: carries out moves, and knows which are under way.
            leading: whether this replica acts.
            permission: what the carrier asks before every step; told here what the moves were planned for.
            prevention: writes pod deletion costs, beside this loop.
            statuses: reads and writes the policies' statuses.
            policy_reader: asks the API server for the policies' versions.
            announcements: tell people.
            metrics: told of every plan.
            heartbeat: beats at every turn that did not fail.
            scheduler: what is taken for the cluster's schedulers; by default the
                schedulers' default configuration.
            namespaced_policies: whether RebalancePolicies count.
            clock: seconds that never go back.
            wall_clock: seconds since the epoch.
        """
        self._intake = intake
        self._carrier = carrier
        self._leading = leading
        self._permission = permission
        self._prevention = prevention
        self._statuses = statuses
        self._announcements = announcements
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._namespaced_policies = namespaced_policies
        self._clock = clock
        self._wall_clock = wall_clock
        self._scheduler = SchedulerModel() if scheduler is None else scheduler
        self._settling = Settling()
        self._limiters = Limiters()
        self._record = Record(wall_clock)
        self._probation = Probation()
        self._waves = Waves(
            carrier,
            permission,
            self._record,
            statuses,
            policy_reader,
            announcements=announcements,
            metrics=metrics,
            intake=intake,
        )
        self._violation_times = ViolationTimes(
            lambda policy, seconds: metrics.observe_rebalance(policy=policy, seconds=seconds)
        )
        self._policies: Policies = Map()
        self._policy_index = PolicyIndex((), namespaced_policies=namespaced_policies)
        self._term: int | None = None
        """The one in which this replica knows all that was done before it; None while it does not."""
        self._shown: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        """The policies and namespaces that metrics may speak of."""
        self._stop = asyncio.Event()
        self._computed_seconds = 0.0
        """How long was computed in this turn."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planning")
        """What computes for long has a thread of its own: asyncio's are for credentials and names, which can't wait."""

    def stop(self) -> None:
        """End `run` as soon as whatever was sent is answered; nothing more is sent."""
        self._stop.set()
        self._permission.stop()
        self._intake.changes.notify("stop")

    async def run(self) -> None:
        """Turn until stopped, beginning when every watched kind is known.

        A turn that fails is a bug; it is logged, and another is tried, for what was in its way may go. The heart does
        not beat for it, so that liveness fails if it goes on.
        """
        try:
            await self._run()
        finally:
            await self._waves.aclose()

    async def _run(self) -> None:
        failures = 0
        gather = GATHER_SECONDS
        while not self._stop.is_set():
            self._heartbeat.beat()
            wake_at = self._clock() + BEAT_SECONDS
            while self._intake.health.synced and not self._stop.is_set():
                self._computed_seconds = 0.0
                try:
                    wake_at = await self.turn()
                except Exception:  # noqa: BLE001 - whatever it is, the others are not to suffer for long
                    failures += 1
                    pause = min(LONGEST_PAUSE_SECONDS, 2.0 ** min(failures, 10))
                    _log.exception("A turn of the control loop failed; it is tried again", wait_seconds=pause)
                    await self._pause(pause)
                    continue
                failures = 0
                self._heartbeat.beat()
                gather = min(max(GATHER_SECONDS, self._computed_seconds), LONGEST_GATHER_SECONDS)
                break
            await self._wait(wake_at, gather)

    async def turn(self) -> float:
        """Look at everything, do what is to be done, and return when to look again if nothing changes, on the clock."""
        with self._metrics.reconciling("all"):
            return await self._turn()

    async def _turn(self) -> float:
        measured = self._metrics.reconciling
        with measured("observe"):
            snapshot = self._intake.state.snapshot
            policies = self._intake.policies.policies
            self._scheduler.follow(policies.values())
            spread = await self._compute(self._scheduler.index.update, snapshot)
            index = self._index_of(policies)
            known = self._scheduler.learn(spread, snapshot, index)
            leads = self._leading.leads() and await self._has_taken_over(snapshot, spread, policies, known=known)
            self._prevent(snapshot, spread, policies, leads=leads)
        with measured("follow"):
            if leads:
                await self._waves.ask_again(snapshot, spread, policies, planned_at=self._clock())
            await self._carrier.look_after(snapshot)
            now = self._clock()
            self._follow(snapshot, spread, policies, now, leads=leads)
        with measured("plan"):
            planned = await self._compute(self._plan, snapshot, spread, policies, now)
        self._forget(snapshot, spread, planned, policies, now, leads=leads)
        limiters = self._limiters.of(policies)
        paced = self._pace(snapshot, spread, policies, planned, limiters).of(planned.moves)
        self._intake.changes.decided()
        held_back = False
        with measured("evict"):
            if paced.now and leads:
                held_back = not await self._waves.make(paced.now, snapshot, policies, limiters=limiters, planned_at=now)
        with measured("tell"):
            turn = Turn(
                spread=spread,
                plan=planned,
                reach=await self._compute(reach, index, snapshot),
                held=paced.held,
                in_flight=self._carrier.flights.now.moves,
                remembered=moves_to_remember(self._carrier.flights.now, snapshot),
                time=self._now(),
            )
            figures, wanted = await self._compute(self._tell, policies, turn, leads)
            self._show(policies, turn, figures)
            status_due = await self._statuses.write(wanted) if leads and self._leading.leads() else None
        return next_look(
            planned,
            paced.held,
            now=self._clock(),
            held_back=held_back,
            others=(
                status_due,
                self._on_the_clock(None if planned.changes_at is None else planned.changes_at.timestamp()),
                self._carrier.flights.now.next_deadline(),
                self._carrier.next_ask(),
                self._carrier.refusals.next_end(),
                self._clock() if self._waves.cut else None,
                self._probation.next_end(),
                self._on_the_clock(self._record.breakers.next_end(self._wall_clock())),
            ),
            release=self._release(spread, policies),
        )

    # The steps of a turn

    def _index_of(self, policies: Policies) -> PolicyIndex:
        """Return which policies govern what, with all it was asked before as long as the policies are the same."""
        if policies is not self._policies:
            self._policies = policies
            self._policy_index = PolicyIndex(policies.values(), namespaced_policies=self._namespaced_policies)
        return self._policy_index

    async def _has_taken_over(
        self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, known: bool
    ) -> bool:
        """Know what was done by whoever led before; until that and the spread are known, nothing is done."""
        term = self._leading.term()
        if self._term == term:
            return True
        if not known:
            return False
        try:
            statuses = await self._statuses.read()
        except ListError as error:
            _log.warning("Not leading yet: what was done before is not known", error=str(error))
            self._intake.changes.notify("takeover")
            return False
        self._statuses.begin(statuses)
        remembered = {name: found.status for name, found in statuses.items()}
        self._record.recall(remembered, spread.by_namespace)
        self._probation = Probation()
        rules = AskingRules(self._setting(policies), self._limiters.of(policies), self._now())
        resume(self._carrier.flights, remembered, snapshot, spread, rules)
        self._term = term
        return True

    def _prevent(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, leads: bool) -> None:
        """Hand over what pod deletion costs follow from; they are written meanwhile."""
        leaving = frozenset(move.pod.uid for move in self._carrier.flights.now.moves)
        self._prevention.observe(snapshot, spread, policies, leaving, self._term if leads else None)

    def _follow(
        self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, now: float, *, leads: bool
    ) -> None:
        """Take over what became of the moves under way; of those of an earlier term the leader of this one tells."""
        self._carrier.flights.be_patient(lambda name: _ready_seconds(policies.get(name)))
        moving = {move.workload for move in self._carrier.flights.now.moves}
        ended = self._carrier.flights.update(snapshot, Comparison(spread))
        probation, judged = self._probation.judged(snapshot, now)
        self._probation = probation.begun(ended, now)
        if leads:
            self._learn((*ended, *judged.relapsed), judged.lasting, spread, policies)
        self._settling.observe(spread.groups, moving, now)

    def _learn(self, ended: Sequence[Ended], lasting: Sequence[Move], spread: Spread, policies: Policies) -> None:
        """Tell what became of moves, and draw the conclusions."""
        if not ended and not lasting:
            return
        single = {name: self._record.single(policy) for name, policy in policies.items()}
        for move in lasting:
            self._record.learn_lasting(move)
        for each in ended:
            self._metrics.count_outcome(policy=each.move.policy, outcome=each.outcome)
            self._announcements.end(each)
            self._record.learn(each, spread.groups, policies.get(each.move.policy))
        for name, policy in policies.items():
            if (paused := self._record.paused(policy)) is not None and single[name] is None:
                self._announcements.paused(policy, paused)
            elif single[name] is not None and self._record.single(policy) is None:
                self._announcements.resumed(policy)

    def _plan(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, now: float) -> Plan:
        started = monotonic()
        under_way = self._carrier.flights.now.for_planning(snapshot)
        planned = self._scheduler.planner.plan(
            under_way.snapshot,
            spread,
            self._setting(policies),
            now=self._now(),
            on_hold=self._on_hold(spread, policies, now),
            in_flight=under_way.in_flight,
            unreplaced=under_way.unreplaced,
            refused=self._carrier.refusals.for_planning(),
        )
        self._metrics.observe_plan(monotonic() - started)
        return planned

    def _setting(self, policies: Policies) -> PolicySetting:
        return PolicySetting(
            policies=tuple(policies.values()),
            priority_classes=self._intake.priority_classes.values,
            namespaced_policies=self._namespaced_policies,
        )

    def _on_hold(self, spread: Spread, policies: Policies, now: float) -> OnHold:
        """Return what tells whether a group is to be left alone: not quiet for long enough, or backing off."""

        def on_hold(key: GroupKey, policy: str) -> Held | None:
            spec, group = policies[policy].spec, spread.groups[key]
            return (
                self._settling.held(key, spec.quiet_period, now)
                or self._record.why_left_alone(group)
                or self._record.pace_of(group).beyond(policy, spec.limits)
            )

        return on_hold

    def _forget(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        planned: Plan,
        policies: Policies,
        now: float,
        *,
        leads: bool,
    ) -> None:
        """Keep nothing of what is gone, in memory and metrics."""
        if leads:
            self._violation_times.see(spread.groups, planned.policies, now)
        busy = {key for move in self._carrier.flights.now.moves for key in move.groups}
        self._record.forget_settled(spread.groups, busy)
        self._record.forget_others(policies)
        namespaces = frozenset(snapshot.namespaces)
        for gone in self._shown[0] - set(policies):
            self._metrics.forget_policy(gone)
        self._record.forget_other_namespaces(snapshot.namespaces)
        for gone in self._shown[1] - namespaces:
            self._metrics.forget_namespace(gone)
        self._shown = (frozenset(policies), namespaces)

    def _pace(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        policies: Policies,
        planned: Plan,
        limiters: tuple[Limiter, ...],
    ) -> Pace:
        flights = self._carrier.flights.now
        undecided: defaultdict[str, set[str]] = defaultdict(set)
        for move in (*flights.moves, *self._probation.moves):
            undecided[move.policy].add(move.pod.namespace)
        closed: dict[str, Held] = {}
        single: dict[str, Held] = {}
        for name in {move.policy for move in planned.moves}:
            policy = policies.get(name)
            if (held := self._permission.of_policy(policy, name)) is not None:
                closed[name] = held
            elif policy is not None and (tried := self._record.single(policy)) is not None:
                single[name] = tried

        def failed_before(move: Move) -> Held | None:
            if move.policy not in single:
                return None
            return self._record.why_not_tried(policies[move.policy], move.pod.namespace, undecided[move.policy])

        def group_pace(key: GroupKey) -> GroupPace | None:
            group = spread.groups.get(key)
            return None if group is None else self._record.pace_of(group)

        return Pace(
            snapshot=snapshot,
            limiters=limiters,
            in_flight=flights.moves,
            replacements=flights.replacements,
            history=self._record.history,
            standings=self._record.standings,
            groups=group_pace,
            single=single,
            failed_before=failed_before,
            closed=closed,
            now=self._wall_clock(),
        )

    # Telling

    def _tell(self, policies: Policies, turn: Turn, leads: bool) -> tuple[PlanFigures, list[Wanted]]:
        """Work out what metrics and statuses are to say; what follows from what was done, only the leader knows."""
        seen, now = self._intake.policies.statuses, self._now()
        outcomes = outcomes_of(policies.values(), turn, self._record)
        return figures_of(policies.values(), turn, outcomes if leads else {}), [
            self._wanted(policy, seen.get(name, PolicyStatus()), outcomes[name], now)
            for name, policy in policies.items()
        ]

    def _wanted(self, policy: Policy, seen: PolicyStatus, outcome: PolicyOutcome, now: datetime) -> Wanted:
        known = self._statuses.known(policy, seen)
        return Wanted(policy, next_status(policy, known, outcome, now=now), seen)

    def _show(self, policies: Policies, turn: Turn, figures: PlanFigures) -> None:
        self._metrics.show_plan(figures)
        in_flight = Counter(move.policy for move in turn.in_flight)
        self._metrics.show_evictions_in_flight({name: in_flight[name] for name in policies})

    # Time

    async def _compute(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do what takes long and only computes, while the event loop goes on."""
        started = self._clock()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **kwargs))
        finally:
            self._computed_seconds += self._clock() - started

    def _release(self, spread: Spread, policies: Policies) -> Callable[[BlockedGroup], float | None]:
        """Return what tells when a group that is left alone is released, on the clock; None where no time says it."""

        def release(blocked: BlockedGroup) -> float | None:
            if blocked.reason is Reason.QUIET_PERIOD:
                return self._settling.release(blocked.group, policies[blocked.policy].spec.quiet_period)
            if blocked.reason is Reason.BACKING_OFF:
                return self._on_the_clock(self._record.release(spread.groups[blocked.group]))
            return None

        return release

    def _on_the_clock(self, time_of_day: float | None) -> float | None:
        """Return when a time in seconds since the epoch comes, on the clock."""
        return None if time_of_day is None else self._clock() + time_of_day - self._wall_clock()

    async def _wait(self, wake_at: float, gather: float) -> None:
        """Wait for a change or a time, while the heart beats; then let more changes come."""
        while not self._stop.is_set() and (left := wake_at - self._clock()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_SECONDS)):
                    await self._intake.changes.wait()
                    break
            self._heartbeat.beat()
        await self._pause(gather)
        self._intake.changes.take()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for long once the loop is to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall_clock(), UTC)


def _ready_seconds(policy: Policy | None) -> float:
    """Return how long replacements may take to become Ready; what a policy says by default if it is gone."""
    options = EvictionOptions() if policy is None else policy.spec.eviction
    return options.ready_timeout.total_seconds()
