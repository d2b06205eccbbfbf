"""Simulates hypothetical changes of a planned cluster, and the result of `respread simulate` as values.

They are the JSON and YAML output, and the table is made from them. docs/cli.md describes every field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final, Literal, NamedTuple

import msgspec

from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.moves.codec import moves_under_way
from respread.planning.plan import Plan
from respread.planning.planner import PlanningModel
from respread.program.command_line import CommandError
from respread.scheduling.predictor import Predictor
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread_cli.report.domain_loss import (
    Damage,
    DomainLossReport,
    WorkloadLoss,
    domain_loss_report,
    was_pending,
    workload_losses,
)
from respread_cli.report.planned import PaceReport, Planned, pace_report
from respread_cli.report.quota_refusals import quota_refusals
from respread_cli.report.scale_downs import (
    NotForetoldError,
    ProtectionReport,
    Ranking,
    WorkloadPods,
    protection_of,
    workloads_of,
)
from respread_cli.report.simulate_changes import HypotheticalChanges, Typed, domains_of, find_changes
from respread_cli.report.skew_report import ClusterReport, GroupReport, group_report
from respread_cli.report.target import WorkloadReference
from respread_cli.report.what_if import Cancellation, HypotheticalOutcome, WhatIf

LATER: Final = timedelta(days=365)
"""After this time, no pod is too young to be evicted. The result is what is needed, not what may be done at once."""


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


class SimulationReport(ClusterReport, frozen=True, kw_only=True, rename="camel"):
    """The hypothetical cluster."""

    kind: Literal["SimulationReport"] = "SimulationReport"
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


class _Run(NamedTuple):
    """The changes with some pod deletion costs."""

    outcome: HypotheticalOutcome
    plan: Plan
    """For the result."""


class Simulator:
    """Simulates one set of changes after another, each at the cost of what differs from the last."""

    def __init__(self, predictor: Predictor) -> None:
        """Start without a cluster. The predictor's view is changed."""
        self._model = PlanningModel(predictor)

    def prepare(self, planned: Planned) -> None:
        """Take over a cluster, which is most of what the first simulation costs."""
        self._plan(planned, planned.view.snapshot, self._spread(planned))

    def simulate(
        self, planned: Planned, typed: Typed, namespace: str | None, cancellation: Cancellation
    ) -> SimulationReport:
        """Return what changes would do.

        The predictor of what is planned is not used. The namespace is where to look for workloads, and what to report;
        None is everywhere.

        Raises:
            CommandError: the changes name something that does not exist, or their effect can't be known.
            CanceledError: it was canceled.
        """
        view, changes = planned.view, find_changes(typed, planned.view.snapshot, namespace)
        spread = self._spread(planned)
        workloads = workloads_of(view.snapshot, spread, {name.namespace for name, _ in changes.scale})
        cancellation.check()
        by_costs = any(
            replicas < len(workloads[name].pods) and workloads[name].replica_sets for name, replicas in changes.scale
        )
        rankings: tuple[Ranking, ...] = ("as it is", "with costs", "without costs") if by_costs else ("as it is",)
        runs = {each: self._run(planned, changes, each, cancellation) for each in rankings}
        shown = _groups_shown(spread, runs.values(), frozenset(name for name, _ in changes.scale), namespace)
        outcomes = {each: _outcome(run, shown, planned, namespace) for each, run in runs.items()}
        outcome = runs["as it is"].outcome
        return SimulationReport(
            source=view.source,
            time=view.time,
            notes=view.notes,
            added_nodes=outcome.added,
            removed_nodes=changes.remove,
            restored_nodes=changes.restore,
            cordoned_nodes=changes.cordon,
            drained_nodes=changes.drain,
            scaled=tuple(_scaled(workloads[name], replicas, planned) for name, replicas in changes.scale),
            as_it_is=outcomes["as it is"],
            with_costs=outcomes.get("with costs"),
            without_costs=outcomes.get("without costs"),
            losses=tuple(
                loss
                for loss in workload_losses(view.snapshot, (*changes.remove, *changes.restore), outcome)
                if loss.damage is not Damage.UNHARMED and namespace in (None, loss.namespace)
            ),
            quotas=quota_refusals(view.snapshot, outcome.snapshot, namespace),
            groups=tuple(_simulated(group, runs) for group in shown),
        )

    def lose_each(
        self, planned: Planned, typed: str, namespace: str | None, cancellation: Cancellation
    ) -> DomainLossReport:
        """Return what the loss of each domain of a topology key would do, one at a time.

        The predictor of what is planned is not used. A key, or the part of it after the last slash, is typed. With a
        namespace, it tells of its workloads only.

        Raises:
            CommandError: no node has such a label, or it may be one of several, or there are too many domains.
            CanceledError: it was canceled.
        """
        key, domains = domains_of(typed, planned.view.snapshot)
        self._spread(planned)

        def lost() -> Iterator[tuple[str, list[str], HypotheticalOutcome]]:
            for domain, nodes in domains.items():
                what_if = self._what_if(planned, "as it is", cancellation)
                what_if.remove_nodes(nodes)
                yield domain, nodes, what_if.outcome()

        return domain_loss_report(planned.view, key, lost(), namespace)

    def _what_if(self, planned: Planned, ranking: Ranking, cancellation: Cancellation) -> WhatIf:
        return WhatIf(
            planned.view.snapshot,
            self._model.index,
            self._model.predictor,
            now=planned.view.time,
            ranking=ranking,
            cancellation=cancellation,
        )

    def _spread(self, planned: Planned) -> Spread:
        """Return the spread groups of the cluster as it is."""
        self._model.assume(planned.predictor.configuration, planned.setting.policies)
        return self._model.index.update(planned.view.snapshot)

    def _run(
        self, planned: Planned, changes: HypotheticalChanges, ranking: Ranking, cancellation: Cancellation
    ) -> _Run:
        what_if = self._what_if(planned, ranking, cancellation)
        what_if.add_nodes(changes.add)
        what_if.remove_nodes(changes.remove)
        what_if.restore_nodes(changes.restore)
        what_if.cordon(changes.cordon)
        for node in changes.drain:
            what_if.drain(node)
        for name, replicas in changes.scale:
            workload = what_if.workload(name)
            try:
                if workload is not None:
                    what_if.scale(workload, replicas)
            except NotForetoldError as error:
                raise CommandError(f"--scale {WorkloadReference.of(name)}={replicas}: {error}.") from error
        outcome = what_if.outcome()
        cancellation.check()
        return _Run(outcome, self._plan(planned, outcome.snapshot, outcome.spread))

    def _plan(self, planned: Planned, snapshot: ClusterSnapshot, spread: Spread) -> Plan:
        now = planned.view.time
        moves = moves_under_way(planned.view.records, snapshot, now)
        return self._model.planner.plan(
            moves.overlay(snapshot), spread, planned.setting, now=now + LATER, under_way=moves.for_planning(snapshot)
        )


def _groups_shown(
    before: Spread, runs: Iterable[_Run], scaled: frozenset[WorkloadName], namespace: str | None
) -> tuple[SpreadGroup, ...]:
    """Return the groups that changes are about, as they were before them."""
    spreads = [run.outcome.spread for run in runs]

    def changes(group: SpreadGroup) -> bool:
        return any(_differs(group, spread.groups.get(group.key)) for spread in spreads)

    found = [
        group
        for group in before.groups.values()
        if namespace in (None, group.key.namespace) and (not scaled.isdisjoint(group.workloads) or changes(group))
    ]
    return tuple(sorted(found, key=lambda group: (group.key.namespace, group.workloads, str(group.key))))


def _differs(group: SpreadGroup, after: SpreadGroup | None) -> bool:
    """Return whether the pods or domains of a group are others than before."""
    if after is group:
        return False
    if after is None or after.counts != group.counts:
        return True
    return after.domains is not group.domains and after.domains.nodes.keys() != group.domains.nodes.keys()


def _scaled(workload: WorkloadPods, replicas: int, planned: Planned) -> ScaledReport:
    protection = protection_of(workload, planned.governing, planned.view.snapshot, planned.view.records)
    return ScaledReport(**msgspec.structs.asdict(protection), pods=len(workload.pods), replicas=replicas)


def _simulated(group: SpreadGroup, runs: Mapping[Ranking, _Run]) -> SimulatedGroup:
    after = {ranking: _group_after(group, run) for ranking, run in runs.items()}
    return SimulatedGroup(
        group=group_report(group),
        as_it_is=after["as it is"],
        with_costs=after.get("with costs"),
        without_costs=after.get("without costs"),
    )


def _group_after(before: SpreadGroup, run: _Run) -> GroupAfter:
    after = run.outcome.spread.groups.get(before.key)
    report = group_report(msgspec.structs.replace(before, counts={}) if after is None else after)
    return GroupAfter(violated=report.violated, skew=report.skew, excess=report.excess, counts=report.counts)


def _outcome(run: _Run, shown: Iterable[SpreadGroup], planned: Planned, namespace: str | None) -> OutcomeReport:
    outcome = run.outcome

    def told(pods: Iterable[PodReport]) -> tuple[PodReport, ...]:
        return tuple(pod for pod in pods if namespace in (None, pod.namespace))

    keys, policies = {group.key for group in shown}, planned.setting.policies
    moves = [move for move in run.plan.moves if not keys.isdisjoint(move.groups)]
    quiet = {policy.name: policy.spec.quiet_period for policy in policies}
    longest = max((quiet[move.policy] for move in moves), default=timedelta())
    return OutcomeReport(
        violated=sum(_group_after(group, run).violated for group in shown),
        evictions=len(moves),
        pace=pace_report(outcome.snapshot, policies, moves, after=longest),
        certain=outcome.certain,
        deleted=told(_pod(pod, certain=outcome.certain) for pod in outcome.deleted),
        placed=told(_pod(each.pod, certain=each.certain) for each in outcome.placed),
        unplaced=told(
            _pod(each.pod, certain=True, message=each.why, pending_before=was_pending(each.pod, planned.view.snapshot))
            for each in outcome.unplaced
        ),
        lost=told(_pod(pod, certain=True) for pod in outcome.lost),
    )


def _pod(pod: Pod, *, certain: bool, message: str = "", pending_before: bool = False) -> PodReport:
    return PodReport(
        namespace=pod.namespace,
        pod=pod.name,
        workload=WorkloadReference.of(workload_of(pod)),
        node=pod.node_name or None,
        certain=certain,
        message=message,
        was_pending=pending_before,
    )
