"""The loop that plans and acts: woken by changes, it looks at everything anew and does what is to be done now.

Level-triggered: nothing depends on which change woke it, only on how the cluster stands. A turn takes a snapshot,
follows the moves under way, plans, evicts the first wave within the limits, and tells. Whatever becomes due by time
alone (a quiet period, a back-off, a window, a move that is given up on) wakes it too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, time
from typing import Final

from respread.api.conditions import next_status
from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer
from respread.eviction.backoff import BackOffRules, BackOffs
from respread.eviction.carry_out import Carried, Carrier
from respread.eviction.in_flight import Ended
from respread.eviction.outcomes import Outcome
from respread.eviction.pacing import EvictionHistory, Limiter, Pace
from respread.eviction.windows import Windows
from respread.handlers.announcements import Announcements
from respread.handlers.comparison import Comparison
from respread.handlers.intake import Intake
from respread.handlers.report import Turn, figures_of, outcome_of
from respread.handlers.settling import Settling
from respread.handlers.status_writer import StatusWriter, Wanted
from respread.planning.assembly import plan_cluster
from respread.planning.held import Held
from respread.planning.plan import Move, Plan
from respread.planning.planner import OnHold
from respread.planning.policies import PolicyIndex, reach
from respread.planning.protection import OwnPods
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread, SpreadIndex
from respread.telemetry.health import Heartbeat
from respread.telemetry.metrics import Metrics

GATHER_SECONDS: Final = 0.05
"""How long changes are gathered before they are looked at: a change seldom comes alone."""
WAITING_SLEEP_SECONDS: Final = 1.0
"""While something that ought to be done is held, by a limit, a budget or the API server, the loop turns this often."""
LONGEST_SLEEP_SECONDS: Final = 10.0
"""However quiet the cluster is, the loop turns this often, so that its heartbeat means something."""


class ControlLoop:
    """Plans for the whole cluster and acts for all policies."""

    def __init__(
        self,
        intake: Intake,
        carrier: Carrier,
        *,
        leads: Callable[[], bool],
        statuses: StatusWriter,
        announcements: Announcements,
        metrics: Metrics,
        heartbeat: Heartbeat,
        own_pods: OwnPods | None = None,
        namespaced_policies: bool = True,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        """Prepare the loop.

        Args:
            intake: what is known of the cluster.
            carrier: carries out moves, and knows which are under way.
            leads: whether this replica evicts and writes statuses.
            statuses: writes them.
            announcements: tell people.
            metrics: told of every plan.
            heartbeat: beats at every turn.
            own_pods: how to tell the operator's own pods.
            namespaced_policies: whether RebalancePolicies count.
            clock: seconds that never go back.
            wall_clock: seconds since the epoch.
        """
        self._intake = intake
        self._carrier = carrier
        self._leads = leads
        self._statuses = statuses
        self._announcements = announcements
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._own_pods = own_pods
        self._namespaced_policies = namespaced_policies
        self._clock = clock
        self._wall_clock = wall_clock
        self._index = SpreadIndex()
        self._settling = Settling()
        self._back_offs = BackOffs(BackOffRules())
        self._history = EvictionHistory()
        self._evicted: Counter[str] = Counter()
        """By the policies' UIDs, since this replica leads."""
        self._evicted_before: dict[str, int] = {}
        """By the policies' UIDs, as their statuses said when this replica came to lead."""
        self._last_eviction: dict[str, datetime] = {}
        self._violated_since: dict[GroupKey, float] = {}

    async def run(self) -> None:
        """Turn until cancelled, beginning when every watched kind is known."""
        while not self._intake.health.synced:
            await self._sleep_until(self._clock() + LONGEST_SLEEP_SECONDS)
        while True:
            self._heartbeat.beat()
            wake_at = await self.turn()
            await self._sleep_until(wake_at)

    async def turn(self) -> float:
        """Look at everything, do what is to be done, and return when to look again if nothing changes, on the clock."""
        snapshot = self._intake.state.snapshot
        policies = tuple(self._intake.policies.policies.values())
        spread = self._index.update(snapshot)
        now = self._clock()
        self._follow(snapshot, spread, now)
        planned = self._plan(snapshot, spread, policies, now)
        paced = self._pace(snapshot, policies).of(planned.moves)
        waiting = bool(paced.held or planned.blocked)
        if paced.now and self._leads():
            waiting = await self._evict(paced.now, snapshot) or waiting
        turn = Turn(
            spread=spread,
            plan=planned,
            reach=reach(PolicyIndex(policies, namespaced_policies=self._namespaced_policies), snapshot),
            held=paced.held,
            in_flight=self._carrier.flights.now.moves,
            evicted=self._evicted_in_all(policies),
            last_eviction_time=self._last_eviction,
            time=self._now(),
        )
        self._show(policies, turn)
        status_due = await self._write_statuses(policies, turn)
        return self._next_look(planned, status_due, waiting=waiting)

    # The steps of a turn

    def _follow(self, snapshot: ClusterSnapshot, spread: Spread, now: float) -> None:
        """Take over what became of the moves under way."""
        moving = {move.workload for move in self._carrier.flights.now.moves}
        for each in self._carrier.flights.update(snapshot, Comparison(spread)):
            self._metrics.count_outcome(policy=each.move.policy, outcome=each.outcome)
            self._announcements.end(each)
            self._learn(each, spread)
        self._settling.observe(spread.groups, moving, now)
        self._measure_violations(spread, now)

    def _learn(self, ended: Ended, spread: Spread) -> None:
        for key in ended.move.groups:
            if (group := spread.groups.get(key)) is None:
                continue
            if ended.outcome is Outcome.IMPROVED:
                self._back_offs = self._back_offs.improved(str(key))
            else:
                self._back_offs = self._back_offs.failed(str(key), _situation(group), self._wall_clock())

    def _plan(self, snapshot: ClusterSnapshot, spread: Spread, policies: tuple[Policy, ...], now: float) -> Plan:
        started = monotonic()
        in_flight = self._carrier.flights.now
        planned = plan_cluster(
            in_flight.overlay(snapshot),
            policies,
            now=self._now(),
            spread=spread,
            priority_classes=self._intake.priority_classes.values,
            own_pods=self._own_pods,
            namespaced_policies=self._namespaced_policies,
            on_hold=self._on_hold(spread, policies, now),
            in_flight=in_flight.pods(snapshot),
        )
        self._metrics.observe_plan(monotonic() - started)
        return planned

    def _on_hold(self, spread: Spread, policies: tuple[Policy, ...], now: float) -> OnHold:
        """Return what tells whether a group is to be left alone: not quiet for long enough, or backing off."""
        quiet_periods = {policy.name: policy.spec.quiet_period for policy in policies}
        wall_clock = self._wall_clock()

        def on_hold(key: GroupKey, policy: str) -> Held | None:
            return self._settling.held(key, quiet_periods[policy], now) or self._back_offs.held(
                str(key), _situation(spread.groups[key]), wall_clock
            )

        return on_hold

    def _pace(self, snapshot: ClusterSnapshot, policies: tuple[Policy, ...]) -> Pace:
        return Pace(
            snapshot=snapshot,
            limiters=tuple(Limiter.of(policy) for policy in policies if not policy.problems),
            in_flight=self._carrier.flights.now.moves,
            history=self._history,
            closed={policy.name: held for policy in policies if (held := self._why_closed(policy)) is not None},
            now=self._wall_clock(),
        )

    def _why_closed(self, policy: Policy) -> Held | None:
        if policy.spec.mode == "DryRun":
            return Held(Reason.DRY_RUN, "the policy's mode is DryRun: it plans and does not evict")
        if policy.problems:
            return Held(Reason.INVALID_POLICY, "the policy is wrong somewhere, and evicts nothing until right")
        return Windows.of(policy.spec.windows).why_closed(self._now())

    async def _evict(self, moves: tuple[Move, ...], snapshot: ClusterSnapshot) -> bool:
        """Evict a wave, and return whether any of it has to be tried again."""
        carried = await self._carrier.carry_out(moves, snapshot, self._grace_period_seconds)
        for each in carried:
            self._account_for(each, snapshot)
        return not all(isinstance(each.result, Answer) and each.result.may_have_evicted for each in carried)

    def _account_for(self, carried: Carried, snapshot: ClusterSnapshot) -> None:
        """Tell what came of a move, and count it."""
        move, answer = carried.move, carried.result
        if isinstance(answer, Held):
            self._announcements.held_back(move, answer)
            return
        self._metrics.count_eviction(policy=move.policy, namespace=move.pod.namespace, result=answer.result)
        self._announcements.eviction(move, answer)
        if not answer.evicted:
            return
        limiters = [name for name, limiter in self._limiters() if limiter.bounds(move, snapshot)]
        self._history = self._history.with_eviction(limiters, self._wall_clock())
        self._last_eviction[move.policy] = self._now()
        if (policy := self._intake.policies.current(move.policy)) is not None:
            self._evicted[policy.uid] += 1

    def _grace_period_seconds(self, move: Move) -> int | None:
        policy = self._intake.policies.current(move.policy)
        return None if policy is None else policy.spec.eviction.grace_period_seconds

    def _limiters(self) -> list[tuple[str, Limiter]]:
        return [(name, Limiter.of(policy)) for name, policy in self._intake.policies.policies.items()]

    # Telling

    def _show(self, policies: tuple[Policy, ...], turn: Turn) -> None:
        self._metrics.show_plan(figures_of(policies, turn))
        in_flight = Counter(move.policy for move in turn.in_flight)
        self._metrics.show_evictions_in_flight({policy.name: in_flight[policy.name] for policy in policies})

    async def _write_statuses(self, policies: tuple[Policy, ...], turn: Turn) -> float | None:
        if not self._leads():
            return None
        seen = self._intake.policies.statuses
        now = self._now()
        wanted = []
        for policy in policies:
            status = self._statuses.known(policy, seen.get(policy.name, PolicyStatus()))
            wanted.append(
                Wanted(policy, next_status(policy, status, outcome_of(policy, turn), now=now), seen[policy.name])
            )
        return await self._statuses.write(wanted)

    def _evicted_in_all(self, policies: tuple[Policy, ...]) -> dict[str, int]:
        """Return the evictions by policy: those that its status knew of when this replica came to lead, and its own."""
        seen = self._intake.policies.statuses
        if not self._leads():
            self._evicted.clear()
            self._evicted_before.clear()
            return {}
        for policy in policies:
            status = seen.get(policy.name)
            self._evicted_before.setdefault(policy.uid, 0 if status is None else status.summary.evicted)
        return {policy.name: self._evicted_before[policy.uid] + self._evicted[policy.uid] for policy in policies}

    def _measure_violations(self, spread: Spread, now: float) -> None:
        violated = {key for key, group in spread.groups.items() if group.violated}
        self._violated_since = {key: since for key, since in self._violated_since.items() if key in violated} | {
            key: self._violated_since.get(key, now) for key in violated
        }

    # Time

    def _next_look(self, planned: Plan, status_due: float | None, *, waiting: bool) -> float:
        """Return when something becomes due by time alone, on the clock."""
        now = self._clock()
        due = [now + (WAITING_SLEEP_SECONDS if waiting else LONGEST_SLEEP_SECONDS)]
        if status_due is not None:
            due.append(status_due)
        if (deadline := self._carrier.flights.now.next_deadline()) is not None:
            due.append(deadline)
        policies = self._intake.policies.policies
        due.extend(
            self._settling.release(each.group, policies[each.policy].spec.quiet_period)
            for each in planned.blocked
            if each.reason is Reason.QUIET_PERIOD and each.policy in policies
        )
        return max(min(due), now)

    async def _sleep_until(self, wake_at: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake_at - self._clock())):
                await self._intake.changes.wait()
        await asyncio.sleep(GATHER_SECONDS)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall_clock(), UTC)


def _situation(group: SpreadGroup) -> str:
    """Return how things stand for a group, in a form that is equal while they do."""
    nodes = {domain: len(names) for domain, names in group.domains.nodes.items()}
    return f"{sorted(group.counts.items())} {sorted(nodes.items())}"
