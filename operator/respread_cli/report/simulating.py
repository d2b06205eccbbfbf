"""Simulates hypothetical changes of a planned cluster, and plans for the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from respread.cluster.pod import WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.moves.codec import moves_under_way
from respread.planning.plan import Move, Plan
from respread.planning.planning_model import PlanningModel
from respread.program.command_line import CommandError
from respread.scheduling.predictor import Predictor
from respread.spread.index import Spread
from respread_cli.report.domain_loss import MOST_DOMAINS, DomainLossReport, DomainOutcome, domain_loss_report
from respread_cli.report.forecast import NotForetoldError, Ranking
from respread_cli.report.planned import PaceReport, Planned, pace_report
from respread_cli.report.scale_down_protection import ScaleDownProtection, WorkloadPods, protection_of, workloads_of
from respread_cli.report.simulate_changes import HypotheticalChanges, Typed, domains_of, find_changes
from respread_cli.report.simulate_report import Run, Runs, SimulationReport, groups_shown, simulation_report
from respread_cli.report.skew_report import WorkloadReference
from respread_cli.report.what_if import Cancellation, WhatIf

LATER: Final = timedelta(days=365)
"""After this time, no pod is too young to be evicted. The result is what is needed, not what may be done at once."""


class Simulator:
    """Simulates one set of changes after another, each at the cost of what differs from the last."""

    __slots__ = ("_model",)

    def __init__(self, predictor: Predictor) -> None:
        """Start without a cluster.

        Args:
            predictor: of the cluster's schedulers. Its view is changed.
        """
        self._model = PlanningModel(predictor)

    def prepare(self, planned: Planned) -> None:
        """Take over a cluster, which is most of what the first simulation costs."""
        self._plan(planned, planned.view.snapshot, self._spread(planned))

    def simulate(
        self, planned: Planned, typed: Typed, namespace: str | None, cancellation: Cancellation
    ) -> SimulationReport:
        """Return what changes would do.

        Args:
            planned: the cluster. Its predictor is not used.
            typed: the changes as on the command line.
            namespace: where to look for workloads, and what to report; None is everywhere.
            cancellation: ends it.

        Raises:
            CommandError: the changes name something that does not exist, or their effect can't be known.
            CanceledError: it was canceled.
        """
        snapshot = planned.view.snapshot
        changes = find_changes(typed, snapshot, namespace)
        spread = self._spread(planned)
        workloads = workloads_of(snapshot, spread, {name.namespace for name, _ in changes.scale})
        cancellation.check()
        runs = self._runs(planned, changes, workloads, cancellation)
        return simulation_report(
            runs,
            groups_shown(spread, runs, [name for name, _ in changes.scale], namespace),
            changes,
            _protections(planned, changes, workloads),
            before=snapshot,
            namespace=namespace,
            origin=planned.origin,
        )

    def lose_each(
        self, planned: Planned, typed: str, namespace: str | None, cancellation: Cancellation
    ) -> DomainLossReport:
        """Return what the loss of each domain of a topology key would do, one at a time.

        Args:
            planned: the cluster. Its predictor is not used.
            typed: the key, or the part of it after the last slash.
            namespace: tell of the workloads of this one only; None is everywhere.
            cancellation: ends it.

        Raises:
            CommandError: no node has such a label, or it may be one of several, or there are too many domains.
            CanceledError: it was canceled.
        """
        snapshot = planned.view.snapshot
        key, domains = domains_of(typed, snapshot, MOST_DOMAINS)
        self._spread(planned)

        def lost() -> Iterator[DomainOutcome]:
            for domain, nodes in domains.items():
                what_if = self._what_if(planned, "as it is", cancellation)
                what_if.remove_nodes(nodes)
                yield DomainOutcome(domain, nodes, what_if.outcome())

        return domain_loss_report(snapshot, key, lost(), namespace=namespace, origin=planned.origin)

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

    def _runs(
        self,
        planned: Planned,
        changes: HypotheticalChanges,
        workloads: Mapping[WorkloadName, WorkloadPods],
        cancellation: Cancellation,
    ) -> Runs:
        """Apply the changes, and twice more, with and without costs, if a scale-down uses them."""
        as_it_is = self._run(planned, changes, "as it is", cancellation)
        by_costs = any(
            replicas < len(workloads[name].pods) and workloads[name].replica_sets for name, replicas in changes.scale
        )
        if not by_costs:
            return Runs(as_it_is)
        return Runs(
            as_it_is,
            self._run(planned, changes, "with costs", cancellation),
            self._run(planned, changes, "without costs", cancellation),
        )

    def _run(self, planned: Planned, changes: HypotheticalChanges, ranking: Ranking, cancellation: Cancellation) -> Run:
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
                raise CommandError(f"--scale {WorkloadReference(name.kind, name.name)}={replicas}: {error}.") from error
        outcome = what_if.outcome()
        cancellation.check()
        plan = self._plan(planned, outcome.snapshot, outcome.spread)
        quiet = {policy.name: policy.spec.quiet_period for policy in planned.setting.policies}

        def pace(moves: Sequence[Move]) -> PaceReport:
            longest = max((quiet[move.policy] for move in moves), default=timedelta())
            return pace_report(outcome.snapshot, planned.setting.policies, moves, after=longest)

        return Run(outcome, plan, pace)

    def _plan(self, planned: Planned, snapshot: ClusterSnapshot, spread: Spread) -> Plan:
        now = planned.view.time
        moves = moves_under_way(planned.view.records, snapshot, now)
        return self._model.planner.plan(
            moves.overlay(snapshot),
            spread,
            planned.setting,
            now=now + LATER,
            under_way=moves.for_planning(snapshot),
        )


def _protections(
    planned: Planned, changes: HypotheticalChanges, workloads: Mapping[WorkloadName, WorkloadPods]
) -> dict[WorkloadName, tuple[int, ScaleDownProtection]]:
    """Return the number of pods of each scaled workload, and whether they are protected."""
    index, view = planned.governing, planned.view
    return {
        name: (len(workloads[name].pods), protection_of(workloads[name], index, view.snapshot, view.records))
        for name, _ in changes.scale
    }
