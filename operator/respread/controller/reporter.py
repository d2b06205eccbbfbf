"""Publishes what each reconcile found and did: in metrics, statuses and records. What it says is computed purely."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from heapq import nsmallest
from math import inf
from typing import Final

import msgspec

from respread.api.conditions import MissingPermission, PolicyOutcome, RoomMissing, next_status
from respread.api.policy import Policy, WhenUnsatisfiable
from respread.api.reasons import Held, Reason
from respread.api.record import MAX_CONTESTED, ContestedCosts, MoveInFlight, Recorded
from respread.api.status import (
    MAX_MESSAGE_LENGTH,
    MAX_UNWORKABLE,
    MAX_WORKLOADS,
    AffectedWorkload,
    BlockedCount,
    DomainCount,
    PaceEstimate,
    PolicyStatus,
    Summary,
    UnworkableConstraint,
    ViolatedConstraint,
    Violation,
)
from respread.cluster.pod import WorkloadName
from respread.controller.acting import Acting
from respread.controller.choosing import left_to_do
from respread.controller.observation import Observation
from respread.controller.permissions import PermissionNeeds
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.history import History
from respread.controller.records.status_writer import Wanted
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.waking import PlanningThread
from respread.eviction.pacing import HeldMove, Paced
from respread.eviction.remaining import NOTHING_LEFT, Remaining, in_short
from respread.holds.other_evictions import OtherEvictor
from respread.planning.audit.auditor import Findings, WorkloadFinding
from respread.planning.audit.finding import AuditState, state_of
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.planning.victims.budgets import BudgetIndex
from respread.planning.victims.policies import PolicyReach, reach
from respread.provisioning.room_loop import RoomLoop
from respread.scheduling.filters.topology_spread_score import HOSTNAME
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread
from respread.telemetry.gauges import MOST_DOMAINS, PlanFigures, PolicyFigures, SkewFigure
from respread.telemetry.metrics import REBALANCE, Metrics


class Reporter:
    """Tells users, Prometheus and the next leader. It belongs to one event loop."""

    def __init__(
        self,
        acting: Acting,
        prevention: PreventionLoop,
        room: RoomLoop,
        needs: PermissionNeeds,
        metrics: Metrics,
        scheduler: SchedulerModel,
        thread: PlanningThread,
    ) -> None:
        self._acting = acting
        self._prevention = prevention
        self._room = room
        self._needs = needs
        self._metrics = metrics
        self._scheduler = scheduler
        self._thread = thread
        self._budgets = BudgetIndex()
        self._remaining: Mapping[str, Remaining] = {}
        self._violation_times = ViolationTimes()

    def forget(self, observation: Observation, planned: Plan) -> None:
        """Forget what is gone, in memory and metrics."""
        groups, policies = observation.spread.groups, observation.policies
        if observation.leads:
            for policy, seconds in self._violation_times.see(groups, planned.policies, observation.moment.now):
                self._metrics.observe(REBALANCE, seconds, policy=policy)
        busy = {key for move in observation.ledger.moves for key in move.groups}
        history = self._acting.journal.history
        history.forget_expired(groups, busy)
        history.forget_others(policies)
        history.forget_other_namespaces(observation.snapshot.namespaces)
        self._metrics.keep(policies, observation.snapshot.namespaces)

    async def tell(self, observation: Observation, planned: Plan, chosen: Paced) -> float:
        """Publish the results, and return when a status is due next, on the clock; infinity if none is."""
        statuses, now = self._acting.statuses, self._acting.journal.moment().now
        due = statuses.any_due(observation.policies.values(), now)
        wanted = await self._told(observation, planned, chosen, due=due)
        if not observation.leads or not self._acting.permission.leads:
            return inf
        return await statuses.write(wanted, now)

    async def tell_last(self, observation: Observation, planned: Plan, chosen: Paced) -> None:
        """Publish the results in all statuses and records, whether they are due or not."""
        await self._acting.statuses.write_all(await self._told(observation, planned, chosen, due=True))

    async def _told(self, observation: Observation, planned: Plan, chosen: Paced, *, due: bool) -> list[Wanted]:
        """Show the results in metrics, and return them as statuses.

        What is left to be done is estimated only if a status is due: in a storm, plans are made more often.
        """
        ledger = self._acting.journal.ledger
        if due:
            self._remaining = await self._thread.compute(
                left_to_do, planned, chosen, ledger, observation, self._budgets
            )
        reconciled = Reconciled(
            spread=observation.spread,
            plan=planned,
            reach=await self._thread.compute(reach, observation.setting.index, observation.snapshot),
            held=chosen.held,
            in_flight=ledger.of_policies,
            remaining=self._remaining,
            recorded_moves=self._acting.journal.for_records(observation.snapshot),
            other_evictors=self._acting.holds.others.repeated,
            contested_costs=self._prevention.contested,
            room_missing=self._room.missing,
            missing_permissions=self._needs.look(
                observation.policies, planned.policies, observation.snapshot.namespaces, acts=observation.leads
            ),
            findings=await self._thread.compute(
                self._scheduler.auditor.update, observation.snapshot, observation.spread, self._scheduler.predictor
            ),
            time=observation.moment.time_of_day,
        )
        figures, wanted = await self._thread.compute(_to_tell, observation, reconciled)
        self._metrics.show_plan(figures)
        in_flight = ledger.of_policies
        self._metrics.show_evictions_in_flight({name: in_flight.get(name, 0) for name in observation.policies})
        return wanted


class Reconciled(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What a reconcile found and did."""

    spread: Spread
    plan: Plan
    reach: PolicyReach
    held: Sequence[HeldMove]
    """Moves of the plan that are not made now."""
    in_flight: Mapping[str, int]
    """How many moves of each policy that has some."""
    remaining: Mapping[str, Remaining]
    """What is left, and how long that takes, by policy; nothing for others."""
    recorded_moves: Mapping[str, tuple[MoveInFlight, ...]]
    """The moves by policy, for the next leader."""
    other_evictors: Mapping[WorkloadName, OtherEvictor]
    """Those who evict pods again and again, by workload."""
    contested_costs: Mapping[str, tuple[ContestedCosts, ...]]
    """ReplicaSets whose pod deletion costs are contested, by policy."""
    room_missing: Mapping[str, RoomMissing]
    """What is done about room in domains without a node, by policy."""
    missing_permissions: Mapping[str, tuple[MissingPermission, ...]]
    """By policy."""
    findings: Findings
    """What the audit finds about groups."""
    time: datetime

    @cached_property
    def shares(self) -> Mapping[str, _Share]:
        """Each policy's part, by its name."""
        shares: defaultdict[str, _Share] = defaultdict(_Share)
        for key, name in self.plan.policies.items():
            shares[name].groups.append(self.spread.groups[key])
        for blocked in self.plan.blocked:
            shares[blocked.policy].blocked[blocked.group] = blocked
        for move in self.plan.moves:
            shares[move.policy].moves.append(move)
        for held in self.held:
            shares[held.move.policy].held.append(held)
        return shares


def outcomes_of(policies: Iterable[Policy], reconciled: Reconciled, history: History) -> dict[str, PolicyOutcome]:
    """Return what a reconcile found and did for each policy, by name."""
    waiting = {key: each.held for each in reconciled.held for key in each.move.groups}
    return {policy.name: _outcome(policy, reconciled, waiting, history) for policy in policies}


class _Share(msgspec.Struct):
    """The part of a reconcile for one policy."""

    groups: list[SpreadGroup] = []
    blocked: dict[GroupKey, BlockedGroup] = {}
    moves: list[Move] = []
    held: list[HeldMove] = []


_NO_SHARE: Final = _Share()


def _outcome(
    policy: Policy, reconciled: Reconciled, waiting: Mapping[GroupKey, Held], history: History
) -> PolicyOutcome:
    share = reconciled.shares.get(policy.name, _NO_SHARE)
    groups, blocked, moves = share.groups, share.blocked, share.moves
    unworkable = list(_unworkable(groups, reconciled.findings))
    states = Counter(state for _, state, _ in unworkable)
    violated = [group for group in groups if group.violated]
    planned = Counter(key for move in moves for key in move.groups)
    return PolicyOutcome(
        summary=Summary(
            groups=len(groups),
            violated=len(violated),
            unsatisfiable=states["Unsatisfiable"],
            ineffective=states["Ineffective"],
            worst_skew=max((group.skew for group in groups), default=0),
            pods=reconciled.reach.pods.get(policy.name, 0),
            planned_evictions=len(moves),
            in_flight=reconciled.in_flight.get(policy.name, 0),
            evicted=history.evicted.get(policy.name, 0),
        ),
        pace=_pace(reconciled.remaining.get(policy.name, NOTHING_LEFT)),
        violations=tuple(
            _violation(group, planned[group.key], _why(group.key, blocked, waiting)) for group in violated
        ),
        unworkable=_worst_unworkable(unworkable),
        blocked=_blocked_counts(blocked.values(), share.held, reconciled.plan.held_pods.get(policy.name, {})),
        overridden_by=reconciled.reach.overridden_by.get(policy.name, ()),
        paused="" if (held := history.paused(policy) or history.single(policy)) is None else held.message,
        oscillating=tuple(
            f"{', '.join(map(str, group.workloads))} in {group.key.namespace} ({pace.in_last_hour} evictions)"
            for group in violated
            if (pace := history.pace_of(group)).in_last_hour
            and pace.beyond(policy.name, policy.spec.limits) is not None
        ),
        other_evictions=_other_evictions(groups, reconciled.other_evictors),
        contested_costs=reconciled.contested_costs.get(policy.name, ()),
        room_missing=reconciled.room_missing.get(policy.name),
        missing_permissions=reconciled.missing_permissions.get(policy.name, ()),
        plan_time=reconciled.time,
        last_eviction_time=history.last_eviction_time.get(policy.name),
    )


def _pace(remaining: Remaining) -> PaceEstimate:
    seconds = remaining.about_seconds
    return PaceEstimate(
        evictions_left=remaining.evictions,
        remaining="Unknown" if seconds is None else in_short(seconds),
        seconds=seconds,
        bound_by="" if remaining.bound is None else str(remaining.bound),
    )


def _other_evictions(groups: Iterable[SpreadGroup], evictors: Mapping[WorkloadName, OtherEvictor]) -> tuple[str, ...]:
    """Return the workloads whose pods another client evicts repeatedly, with its name."""
    found = dict.fromkeys(workload for group in groups for workload in group.workloads if workload in evictors)
    return tuple(
        f"{workload} in {workload.namespace}" + (f" (by {name})" if (name := evictors[workload].name) else "")
        for workload in found
    )


def figures_of(
    policies: Iterable[Policy], reconciled: Reconciled, outcomes: Mapping[str, PolicyOutcome]
) -> PlanFigures:
    """Return what the metrics show of a reconcile and of its results for policies.

    The outcomes have the policies' names.
    """
    blocked = {each.group: each.reason for each in reconciled.plan.blocked}
    return PlanFigures(
        # Each is computed only on request, because there may be tens of thousands.
        skews=(
            figure
            for group in reconciled.spread.groups.values()
            for figure in _skews_of(group, blocked.get(group.key, ""))
        ),
        policies=tuple(_policy_figures(policy.name, reconciled, outcomes.get(policy.name)) for policy in policies),
    )


def _why(key: GroupKey, blocked: Mapping[GroupKey, BlockedGroup], waiting: Mapping[GroupKey, Held]) -> tuple[str, str]:
    """Return the reason and message why a violated group is not restored now; both empty if it is."""
    if (found := blocked.get(key)) is not None:
        return found.reason, found.message
    if (held := waiting.get(key)) is not None:
        return held.reason, held.message
    return "", ""


def _violation(group: SpreadGroup, planned_moves: int, why: tuple[str, str]) -> Violation:
    reason, message = why
    return Violation(
        namespace=group.key.namespace,
        workloads=_affected(group.workloads),
        constraint=_constraint(group.key),
        skew=group.skew,
        domains=tuple(DomainCount(domain, count) for domain, count in group.all_counts().items()),
        planned_moves=planned_moves,
        reason=reason,
        message=message,
    )


def _affected(workloads: Iterable[WorkloadName]) -> tuple[AffectedWorkload, ...]:
    return tuple(AffectedWorkload(each.kind, each.name) for each in workloads)


def _constraint(key: GroupKey) -> ViolatedConstraint:
    return ViolatedConstraint(
        topology_key=key.topology_key, when_unsatisfiable=key.when_unsatisfiable, max_skew=key.max_skew
    )


def _unworkable(
    groups: Iterable[SpreadGroup], findings: Findings
) -> Iterator[tuple[SpreadGroup, AuditState, WorkloadFinding]]:
    """Yield the groups that can't work, with their state and the finding that it comes from."""
    for group in groups if findings else ():
        found = findings.get(group.key, ())
        state = state_of(violated=group.violated, blocked=None, findings=[each.finding for each in found])
        if state in {"Unsatisfiable", "Ineffective"}:
            yield group, state, min(found, key=lambda each: (each.finding.state != state, each.finding.when != "Now"))


def _worst_unworkable(
    unworkable: Iterable[tuple[SpreadGroup, AuditState, WorkloadFinding]],
) -> tuple[UnworkableConstraint, ...]:
    """Return the constraints that keep pods Pending, those that do so now first, and then those without effect."""
    worst = nsmallest(
        MAX_UNWORKABLE,
        unworkable,
        key=lambda each: (each[1] != "Unsatisfiable", each[2].finding.when != "Now", str(each[0].key)),
    )
    return tuple(
        UnworkableConstraint(
            namespace=group.key.namespace,
            workloads=_affected(found.workloads[:MAX_WORKLOADS]),
            constraint=_constraint(group.key),
            state=state,
            when=found.finding.when,
            rule=found.finding.rule,
            message=found.finding.message[:MAX_MESSAGE_LENGTH],
            cure=found.finding.cure[:MAX_MESSAGE_LENGTH],
        )
        for group, state, found in worst
    )


def _blocked_counts(
    blocked: Iterable[BlockedGroup], held: Iterable[HeldMove], held_pods: Mapping[Reason, int]
) -> tuple[BlockedCount, ...]:
    groups = Counter(each.reason for each in blocked)
    pods = Counter(each.held.reason for each in held)
    pods.update(held_pods)
    return tuple(
        BlockedCount(reason=reason, groups=groups[reason], pods=pods[reason]) for reason in sorted({*groups, *pods})
    )


def _skews_of(group: SpreadGroup, blocked: str) -> Iterable[SkewFigure]:
    domains = group.domains.nodes
    is_shown = group.key.topology_key != HOSTNAME and len(domains) <= MOST_DOMAINS
    pods = {domain: group.count(domain) for domain in sorted(domains)} if is_shown else {}
    for workload in group.workloads:
        yield SkewFigure(
            namespace=group.key.namespace,
            workload=str(workload),
            topology_key=group.key.topology_key,
            when_unsatisfiable=group.key.when_unsatisfiable,
            skew=group.skew,
            max_skew=group.key.max_skew,
            pods=pods,
            blocked=blocked,
        )


def _policy_figures(policy: str, reconciled: Reconciled, outcome: PolicyOutcome | None) -> PolicyFigures:
    share, remaining = reconciled.shares.get(policy, _NO_SHARE), reconciled.remaining.get(policy, NOTHING_LEFT)
    unworkable = _unworkable(share.groups, reconciled.findings)
    figures = PolicyFigures(
        policy=policy,
        namespaces=frozenset(group.key.namespace for group in share.groups),
        groups=_by_kind(share.groups),
        violated=_by_kind(group for group in share.groups if group.violated),
        unworkable=Counter((state, found.finding.when, found.finding.rule) for _, state, found in unworkable),
        blocked=Counter(each.reason for each in share.blocked.values()),
        planned_evictions=len(share.moves),
        remaining_seconds=remaining.seconds,
        bound_by="" if remaining.bound is None else remaining.bound.name,
        limits_used=remaining.used,
        missing_permissions={
            each.permission: len(each.namespaces) for each in reconciled.missing_permissions.get(policy, ())
        },
    )
    if outcome is None:
        return figures
    oscillating, contested = len(outcome.oscillating), len(outcome.contested_costs)
    return msgspec.structs.replace(figures, paused=bool(outcome.paused), oscillating=oscillating, contested=contested)


def _by_kind(groups: Iterable[SpreadGroup]) -> Mapping[WhenUnsatisfiable, int]:
    return Counter(group.key.when_unsatisfiable for group in groups)


def _records_of(policies: Iterable[Policy], reconciled: Reconciled, history: History) -> dict[str, Recorded]:
    """Return what the next leader must know about each policy, by name."""
    groups: defaultdict[str, list[GroupKey]] = defaultdict(list)
    for key, name in reconciled.plan.policies.items():
        groups[name].append(key)
    return {
        policy.name: history.in_record(
            policy,
            Recorded(
                back_offs=history.recorded_back_offs(groups[policy.name]),
                contested_costs=reconciled.contested_costs.get(policy.name, ())[:MAX_CONTESTED],
            ),
            reconciled.recorded_moves.get(policy.name, ()),
        )
        for policy in policies
    }


def _to_tell(observation: Observation, reconciled: Reconciled) -> tuple[PlanFigures, list[Wanted]]:
    """Compute the contents of metrics, statuses and records. Only the leader knows the results of what was done."""
    policies = observation.policies.values()
    outcomes = outcomes_of(policies, reconciled, observation.history)
    records = _records_of(policies, reconciled, observation.history)
    return figures_of(policies, reconciled, outcomes if observation.leads else {}), [
        _wanted(policy, observation, outcomes[policy.name], records[policy.name]) for policy in policies
    ]


def _wanted(policy: Policy, observation: Observation, outcome: PolicyOutcome, record: Recorded) -> Wanted:
    known = observation.statuses[policy.name]
    status = next_status(policy, known, outcome, now=observation.moment.time_of_day)
    return Wanted(policy, status, record, observation.seen.get(policy.name, PolicyStatus()))


class ViolationTimes:
    """Remembers since when each group that a policy restores is violated."""

    def __init__(self) -> None:
        self._since: dict[GroupKey, float] = {}

    def see(
        self, groups: Mapping[GroupKey, SpreadGroup], policies: Mapping[GroupKey, str], now: float
    ) -> list[tuple[str, float]]:
        """Take over the current groups; return by policy for how many seconds those that are balanced were violated.

        `policies` has the policy of each group that one restores, and `now` is on a monotonic clock. A group that is
        gone, or that no policy restores any more, is forgotten.
        """
        over = [
            (policies[key], now - since)
            for key, since in self._since.items()
            if key in policies and not groups[key].violated
        ]
        self._since = {key: self._since.get(key, now) for key in policies if groups[key].violated}
        return over
