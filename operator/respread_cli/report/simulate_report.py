"""The result of `respread simulate` as values. They are the JSON and YAML output, and the table is made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Move, Plan
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread_cli.report.domain_loss import Damage, WorkloadLoss, was_pending, workload_losses
from respread_cli.report.planned import PaceReport
from respread_cli.report.quota_refusals import quota_refusals
from respread_cli.report.scale_down_protection import ScaleDownProtection
from respread_cli.report.scale_down_report import protection_report
from respread_cli.report.simulate_changes import HypotheticalChanges
from respread_cli.report.skew_report import (
    API_VERSION,
    GroupReport,
    Origin,
    ProtectionReport,
    WorkloadReference,
    group_report,
)
from respread_cli.report.what_if import HypotheticalOutcome


class ScaledReport(ProtectionReport, frozen=True, kw_only=True, rename="camel"):
    """A workload that is scaled."""

    pods: int
    """Before."""
    replicas: int
    """After."""


class PodReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that comes, goes or moves."""

    namespace: str
    pod: str
    workload: WorkloadReference
    node: str | None
    """Its old node, or the likely new one."""
    certain: bool
    """Whether that is certain; for a new pod, at least its domains."""
    message: str = ""
    """Why no node takes it."""
    was_pending: bool = False
    """Whether it had no node before the changes either."""


class OutcomeReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of the changes with some pod deletion costs."""

    violated: int
    """The number of violated groups in `groups`."""
    evictions: int
    """How many evictions would restore those that the policies restore."""
    pace: PaceReport
    """How long these take, with the quiet period before them."""
    certain: bool
    """Whether it is certain which pods scale-downs delete."""
    deleted: tuple[PodReport, ...]
    placed: tuple[PodReport, ...]
    unplaced: tuple[PodReport, ...]
    lost: tuple[PodReport, ...]


class GroupAfter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a group is spread afterwards."""

    violated: bool
    skew: int
    excess: int
    counts: dict[str, int]
    """As in `group`; a domain that is gone is absent."""


class SimulatedGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group that the changes affect."""

    group: GroupReport
    """Before the changes."""
    as_it_is: GroupAfter
    with_costs: GroupAfter | None
    without_costs: GroupAfter | None


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The hypothetical cluster."""

    api_version: str = API_VERSION
    kind: Literal["SimulationReport"] = "SimulationReport"
    source: str
    time: datetime
    notes: tuple[str, ...] = ()
    added_nodes: tuple[str, ...]
    removed_nodes: tuple[str, ...]
    restored_nodes: tuple[str, ...] = ()
    """Lost, and back without pods."""
    cordoned_nodes: tuple[str, ...] = ()
    drained_nodes: tuple[str, ...]
    scaled: tuple[ScaledReport, ...]
    as_it_is: OutcomeReport
    """With the current costs."""
    with_costs: OutcomeReport | None
    """With Respread's costs on all pods of scaled workloads; null if no scale-down uses costs."""
    without_costs: OutcomeReport | None
    """Without costs."""
    groups: tuple[SimulatedGroup, ...]
    """The groups of the scaled workloads, and groups whose pods or domains change."""
    losses: tuple[WorkloadLoss, ...] = ()
    """The workloads that are harmed, the worst first: they have no pods for a time, or lose some for good."""
    quotas: tuple[str, ...] = ()
    """Which ResourceQuotas refuse new pods, a sentence each."""

    @property
    def harms(self) -> bool:
        """Whether a constraint is violated afterwards, or a workload loses pods for good."""
        return self.as_it_is.violated > 0 or any(loss.missing for loss in self.losses)

    def names(self) -> Iterator[str]:
        """Yield the pods that the changes delete."""
        return (f"pod/{pod.pod}" for pod in (*self.as_it_is.deleted, *self.as_it_is.lost))


class Run(NamedTuple):
    """The changes with some pod deletion costs."""

    outcome: HypotheticalOutcome
    plan: Plan
    """For the result."""
    pace: Callable[[Sequence[Move]], PaceReport]
    """Returns how long moves of the plan take."""


class Runs(NamedTuple):
    """The same changes under different pod deletion costs; see `SimulationReport`."""

    as_it_is: Run
    with_costs: Run | None = None
    without_costs: Run | None = None


def groups_shown(
    before: Spread, runs: Runs, scaled: Iterable[WorkloadName], namespace: str | None
) -> tuple[SpreadGroup, ...]:
    """Return the groups that changes are about, as they were before them."""
    names, spreads = set(scaled), [run.outcome.spread for run in runs if run is not None]

    def changes(group: SpreadGroup) -> bool:
        return any(_differs(group, spread.groups.get(group.key)) for spread in spreads)

    found = [
        group
        for group in before.groups.values()
        if namespace in (None, group.key.namespace) and (not names.isdisjoint(group.workloads) or changes(group))
    ]
    return tuple(sorted(found, key=lambda group: (group.key.namespace, group.workloads, str(group.key))))


def _differs(group: SpreadGroup, after: SpreadGroup | None) -> bool:
    """Return whether the pods or domains of a group are others than before."""
    if after is group:
        return False
    if after is None or after.counts != group.counts:
        return True
    return after.domains is not group.domains and after.domains.nodes.keys() != group.domains.nodes.keys()


def simulation_report(
    runs: Runs,
    shown: tuple[SpreadGroup, ...],
    changes: HypotheticalChanges,
    protections: Mapping[WorkloadName, tuple[int, ScaleDownProtection]],
    *,
    before: ClusterSnapshot,
    namespace: str | None,
    origin: Origin,
) -> SimulationReport:
    """Return a simulation for the output.

    Args:
        runs: the results.
        shown: the groups to report, before the changes.
        changes: what was simulated.
        protections: of each scaled workload, how many pods it has and whether they are protected.
        before: the cluster before the changes.
        namespace: tell of the pods of this one only.
        origin: what it was made from.
    """
    with_costs, without_costs = runs.with_costs, runs.without_costs
    return SimulationReport(
        source=origin.source,
        time=origin.time,
        notes=origin.notes,
        added_nodes=runs.as_it_is.outcome.added,
        removed_nodes=changes.remove,
        restored_nodes=changes.restore,
        cordoned_nodes=changes.cordon,
        drained_nodes=changes.drain,
        scaled=tuple(_scaled(name, replicas, *protections[name]) for name, replicas in changes.scale),
        as_it_is=_outcome(runs.as_it_is, shown, before, namespace),
        with_costs=None if with_costs is None else _outcome(with_costs, shown, before, namespace),
        without_costs=None if without_costs is None else _outcome(without_costs, shown, before, namespace),
        losses=tuple(
            loss
            for loss in workload_losses(before, (*changes.remove, *changes.restore), runs.as_it_is.outcome)
            if loss.damage is not Damage.UNHARMED and namespace in (None, loss.namespace)
        ),
        quotas=quota_refusals(before, runs.as_it_is.outcome.snapshot, namespace),
        groups=tuple(
            SimulatedGroup(
                group=group_report(group),
                as_it_is=_group_after(group, runs.as_it_is),
                with_costs=None if with_costs is None else _group_after(group, with_costs),
                without_costs=None if without_costs is None else _group_after(group, without_costs),
            )
            for group in shown
        ),
    )


def _scaled(name: WorkloadName, replicas: int, pods: int, protection: ScaleDownProtection) -> ScaledReport:
    report = protection_report(name, protection)
    return ScaledReport(**msgspec.structs.asdict(report), pods=pods, replicas=replicas)


def _group_after(before: SpreadGroup, run: Run) -> GroupAfter:
    after = run.outcome.spread.groups.get(before.key)
    report = group_report(msgspec.structs.replace(before, counts={}) if after is None else after)
    return GroupAfter(violated=report.violated, skew=report.skew, excess=report.excess, counts=report.counts)


def _outcome(run: Run, shown: Iterable[SpreadGroup], before: ClusterSnapshot, namespace: str | None) -> OutcomeReport:
    outcome = run.outcome

    def told(pods: Iterable[PodReport]) -> tuple[PodReport, ...]:
        return tuple(pod for pod in pods if namespace in (None, pod.namespace))

    keys = {group.key for group in shown}
    moves = [move for move in run.plan.moves if not keys.isdisjoint(move.groups)]
    return OutcomeReport(
        violated=sum(_group_after(group, run).violated for group in shown),
        evictions=len(moves),
        pace=run.pace(moves),
        certain=outcome.certain,
        deleted=told(_pod(pod, certain=outcome.certain) for pod in outcome.deleted),
        placed=told(_pod(each.pod, certain=each.certain) for each in outcome.placed),
        unplaced=told(
            _pod(each.pod, certain=True, message=each.why, pending_before=was_pending(each.pod, before))
            for each in outcome.unplaced
        ),
        lost=told(_pod(pod, certain=True) for pod in outcome.lost),
    )


def _pod(pod: Pod, *, certain: bool, message: str = "", pending_before: bool = False) -> PodReport:
    workload = workload_of(pod)
    return PodReport(
        namespace=pod.namespace,
        pod=pod.name,
        workload=WorkloadReference(workload.kind, workload.name),
        node=pod.node_name or None,
        certain=certain,
        message=message,
        was_pending=pending_before,
    )
