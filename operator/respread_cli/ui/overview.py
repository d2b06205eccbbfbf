"""The cluster view: a row for each spread group, and the cluster in one sentence.

The numbers are those of `skew` and `plan`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

import msgspec

from respread.api.reasons import number_of
from respread.cluster.pod import WorkloadName
from respread.planning.audit.auditor import Auditor, WorkloadFinding
from respread.planning.plan import BlockedGroup
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.replica_set import ReplicaSetIndex, ReplicaSetPods
from respread.spread.group import GroupKey, SpreadGroup
from respread_cli.report.explaining import remedy_of
from respread_cli.report.plan_report import group_after
from respread_cli.report.planned import PaceReport, Planned, PolicyReport, pace_in_words
from respread_cli.report.scale_downs import ProtectionReport, WorkloadPods, is_known, protection_of
from respread_cli.report.skew_report import GroupReport, group_report, worst_first

LONG_SECONDS: Final = 0.1
REST: Final = 9.0
"""An answer that took longer than `LONG_SECONDS` is kept for so many times as long: while thousands of pods change each
second, other things are more urgent."""
_WITH_REPLICA_SETS: Final = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "Rollout"})
"""Kinds of workloads with ReplicaSets. If one has none, all its pods are being deleted."""
MOST_COLUMNS: Final = 6
"""The most domains of a topology key that have a column each."""


class State(StrEnum):
    """The state of a spread group. Users and programs see the value."""

    VIOLATED = "Violated"
    """It is violated, and the plan restores it."""
    BLOCKED = "Blocked"
    """It is violated, and the plan can't, or not fully, restore it."""
    NOT_SELECTED = "NotSelected"
    """It is violated, and no policy restores it."""
    UNDER_WAY = "UnderWay"
    """The operator has evicted a pod of it, and the replacement is not Ready yet."""
    UNSATISFIABLE = "Unsatisfiable"
    """It keeps pods Pending, now or at the next rollout or scale-up."""
    INEFFECTIVE = "Ineffective"
    """It can't change where pods go."""
    HOLDS = "Holds"


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spread group, its state and its plan."""

    id: str
    """The identity of the group, which stays the same while it exists."""
    group: GroupReport
    state: State
    reason: str | None
    """Why it is blocked."""
    message: str | None
    remedy: str | None
    """What would change that, in a few words."""
    policy: str | None
    """The policy that restores it."""
    evictions: int
    """How many moves of the plan help it."""
    in_flight: int
    """How many evictions of its workloads the operator reports whose replacement is not Ready yet."""
    pending: int
    """How many pods have its constraint and no node."""
    skew_after: int
    """After the plan's moves, a prediction."""
    protections: tuple[ProtectionReport, ...]
    """Whether scale-downs of its workloads are protected; empty if unknown."""


class KeySummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topology key that constraints have."""

    topology_key: str
    groups: int
    violated: int
    domains: tuple[str, ...] | None
    """The eligible domains of any of its groups, sorted; null if there are more than `MOST_COLUMNS`."""


class Overview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster view."""

    source: str
    time: datetime
    notes: tuple[str, ...]
    summary: str
    """The state of the cluster, in a sentence."""
    violated: int
    hard_violated: int
    """How many of them are DoNotSchedule."""
    blocked: int
    under_way: int
    unsatisfiable: int
    ineffective: int
    evictions: int
    """Of the plan."""
    worst_skew: int
    excess: int
    """Pods above what constraints allow, summed over all groups."""
    pods: int
    nodes: int
    waiting_pods: int
    """Pods without a node."""
    policies: tuple[PolicyReport, ...]
    default_policy: bool
    keys: tuple[KeySummary, ...]
    """Zone first, then by their number of domains."""
    rows: tuple[Row, ...]
    """Worst first, as `respread skew` shows them."""


class _Known(msgspec.Struct, frozen=True):
    """The basis of a group's rows besides the group itself."""

    group: SpreadGroup
    findings: tuple[WorkloadFinding, ...]
    report: GroupReport
    id: str
    place: tuple[object, ...]
    """The groups in the order of rows."""


class Overviews:
    """Makes one overview after another. The reports of unchanged groups are kept."""

    def __init__(self) -> None:
        self._auditor = Auditor()
        self._protections = _Protections()
        self._known: dict[GroupKey, _Known] = {}

    def overview(self, planned: Planned) -> Overview:
        """Return the cluster view of a plan."""
        protections = self._protections.of(planned)
        findings = self._auditor.update(planned.view.snapshot, planned.spread, planned.predictor)
        self._known = {
            key: _known(key, group, findings.get(key, ()), self._known.get(key))
            for key, group in planned.spread.groups.items()
        }
        plan = planned.plan
        blocked = {each.group: each for each in plan.blocked}
        helped = Counter(key for move in plan.moves for key in move.groups)
        in_flight = Counter(move.workload for move in planned.in_flight)
        waiting = Counter(
            (pod.namespace, pod.labels, id(pod.spec)) for pod in planned.view.snapshot.waiting_pods.values()
        )
        rows = []
        for key, known in sorted(self._known.items(), key=lambda each: each[1].place):
            group, why, workloads = known.group, blocked.get(key), known.group.workloads
            policy, flying = plan.policies.get(key), sum(in_flight[name] for name in workloads)
            templates = {(key.namespace, each.labels, id(each.spec)) for each in group.carriers} if waiting else ()
            rows.append(
                Row(
                    id=known.id,
                    group=known.report,
                    state=_state(known.report, why, policy, flying),
                    reason=None if why is None else why.reason,
                    message=None if why is None else why.message,
                    remedy=None if why is None else remedy_of(why),
                    policy=policy,
                    evictions=helped[key],
                    in_flight=flying,
                    pending=sum(waiting[each] for each in templates),
                    skew_after=group_after(group, plan).skew if key in plan.counts_after else known.report.skew,
                    protections=tuple(protections[name] for name in workloads if name in protections),
                )
            )
        states = Counter(row.state for row in rows)
        violated = [row for row in rows if row.group.violated]
        return Overview(
            source=planned.view.source,
            time=planned.view.time,
            notes=planned.view.notes,
            summary=_sentence(rows, len(plan.moves), planned.pace(plan.moves)),
            violated=len(violated),
            hard_violated=sum(row.group.when_unsatisfiable == "DoNotSchedule" for row in violated),
            blocked=states[State.BLOCKED],
            under_way=states[State.UNDER_WAY],
            unsatisfiable=states[State.UNSATISFIABLE],
            ineffective=states[State.INEFFECTIVE],
            evictions=len(plan.moves),
            worst_skew=max((row.group.skew for row in rows), default=0),
            excess=sum(row.group.excess for row in violated),
            pods=len(planned.view.snapshot.pods),
            nodes=len(planned.view.snapshot.nodes),
            waiting_pods=len(planned.view.snapshot.waiting_pods),
            policies=planned.reports,
            default_policy=planned.default_policy,
            keys=_keys(planned.spread.groups.values()),
            rows=tuple(rows),
        )


def _known(key: GroupKey, group: SpreadGroup, findings: tuple[WorkloadFinding, ...], before: _Known | None) -> _Known:
    if before is not None and before.group is group and before.findings is findings:
        return before
    report = group_report(group, findings)
    return _Known(group, findings, report, _digest(key) if before is None else before.id, worst_first(report))


def _state(group: GroupReport, blocked: BlockedGroup | None, policy: str | None, in_flight: int) -> State:
    if in_flight:
        return State.UNDER_WAY
    if group.state in {State.UNSATISFIABLE, State.INEFFECTIVE}:
        return State(group.state)
    if not group.violated:
        return State.HOLDS
    if policy is None:
        return State.NOT_SELECTED
    return State.VIOLATED if blocked is None else State.BLOCKED


def _sentence(rows: Collection[Row], evictions: int, pace: PaceReport) -> str:
    """Return the state of the cluster: its violations, the plan, and what the plan can't restore."""
    if not rows:
        return "No pod of this cluster has a topology spread constraint."
    violated = [row for row in rows if row.group.violated]
    flying = sum(row.state is State.UNDER_WAY for row in rows)
    moving = f" The operator is restoring {number_of(flying, 'constraint')} now." if flying else ""
    unworkable = _unworkable(rows)
    if not violated and unworkable:
        return f"No constraint of {len(rows):,} is violated.{unworkable}{moving}"
    if not violated:
        all_hold = "The only constraint holds" if len(rows) == 1 else f"All {len(rows):,} constraints hold"
        return f"{all_hold}: every pod is spread as it should be.{moving}"
    be = "is" if len(violated) == 1 else "are"
    said = f"{len(violated):,} of {number_of(len(rows), 'constraint')} {be} violated"
    restored = sum(row.evictions > 0 and row.skew_after <= row.group.max_skew for row in violated)
    blocked = sum(row.state is State.BLOCKED for row in violated)
    ignored = sum(row.state is State.NOT_SELECTED for row in violated)
    parts = []
    if restored:
        which = (
            "it" if restored == len(violated) == 1 else "all of them" if restored == len(violated) else f"{restored:,}"
        )
        took = "" if pace.seconds is None else f" ({pace_in_words(pace)})"
        parts.append(f"{number_of(evictions, 'eviction')} would restore {which}{took}")
    if blocked:
        parts.append(f"{blocked:,} {'is' if blocked == 1 else 'are'} blocked")
    if ignored:
        parts.append(f"no policy restores {ignored:,}")
    return f"{said}{': ' if parts else ''}{', '.join(parts)}.{unworkable}{moving}"


def _unworkable(rows: Iterable[Row]) -> str:
    """Return a sentence about the constraints that can't work, after a blank; empty if there are none."""
    states = Counter(row.state for row in rows)
    pending, idle = states[State.UNSATISFIABLE], states[State.INEFFECTIVE]
    parts = []
    if pending:
        parts.append(f"{pending:,} {'keeps' if pending == 1 else 'keep'} pods Pending, or would")
    if idle:
        parts.append(f"{idle:,} {'has' if idle == 1 else 'have'} no effect")
    return f" {', and '.join(parts)}." if parts else ""


def _keys(groups: Iterable[SpreadGroup]) -> tuple[KeySummary, ...]:
    domains: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    violated: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for group in groups:
        key = group.key.topology_key
        counts[key] += 1
        violated[key] += group.violated
        if (key, id(group.domains)) not in seen:
            seen.add((key, id(group.domains)))
            domains.setdefault(key, set()).update(group.domains.nodes)
    order = sorted(counts, key=lambda key: (not key.endswith("/zone"), len(domains[key]), key))
    return tuple(
        KeySummary(
            topology_key=key,
            groups=counts[key],
            violated=violated[key],
            domains=tuple(sorted(domains[key])) if len(domains[key]) <= MOST_COLUMNS else None,
        )
        for key in order
    )


def _digest(key: GroupKey) -> str:
    return blake2b(repr(key).encode(), digest_size=8).hexdigest()


class _Protections:
    """Whether scale-downs follow Respread's costs, in one state of a cluster after another.

    Workloads with unchanged pods are not examined again.
    """

    def __init__(self) -> None:
        self._index = ReplicaSetIndex()
        self._policies = PolicyIndex(())
        self._depends_on: tuple[Any, ...] = ()
        """The basis of the answers for all workloads."""
        self._known: dict[WorkloadName, tuple[tuple[ReplicaSetPods, ...], ProtectionReport]] = {}
        """With the ReplicaSets that decide; none where the kind of a workload alone does."""
        self._rests_until = -math.inf

    def of(self, planned: Planned) -> Mapping[WorkloadName, ProtectionReport]:
        """Return whether the workloads with constraints are protected; empty if policies could not be read."""
        view = planned.view
        if not is_known(view):
            return {}
        begun = time.monotonic()
        if begun >= self._rests_until:
            self._update(planned)
            ended = time.monotonic()
            self._rests_until = ended + REST * (ended - begun) if ended - begun > LONG_SECONDS else ended
        return {name: report for name, (_, report) in self._known.items()}

    def _update(self, planned: Planned) -> None:
        view = planned.view
        contested = {name: record.contested_costs for name, record in view.records.items() if record.contested_costs}
        depends_on = (view.policies, view.snapshot.namespaces, contested)
        if depends_on != self._depends_on:
            self._depends_on, self._policies, self._known = depends_on, PolicyIndex(view.policies), {}
        self._index.update(view.snapshot, planned.spread)
        replica_sets: dict[WorkloadName, tuple[ReplicaSetPods, ...]] = {}
        for each in self._index.by_uid.values():
            if each.pods:
                replica_sets[each.workload] = (*replica_sets.get(each.workload, ()), each)
        names = (name for group in planned.spread.groups.values() for name in group.workloads)
        replica_sets.update((name, ()) for name in names if name.kind not in _WITH_REPLICA_SETS)
        self._known = {
            name: known
            if (known := self._known.get(name)) is not None and known[0] == these
            else (these, self._report(name, these, planned))
            for name, these in replica_sets.items()
        }

    def _report(
        self, name: WorkloadName, replica_sets: tuple[ReplicaSetPods, ...], planned: Planned
    ) -> ProtectionReport:
        workload = WorkloadPods(
            name=name,
            pods=tuple(pod for each in replica_sets for pod in each.pods),
            groups=tuple(group for each in replica_sets for group in each.groups),
            replica_sets=replica_sets,
        )
        view = planned.view
        return protection_of(workload, self._policies, view.snapshot, view.records)
