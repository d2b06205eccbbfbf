"""Simulates hypothetical changes of a planned cluster, and plans for the result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from respread.cli.errors import CommandError
from respread.cli.read.planned import Planned
from respread.cli.read.simulate_changes import HypotheticalChanges, Typed, find_changes
from respread.cli.read.what_if import WhatIf
from respread.cli.render.simulate_report import Run, Runs, SimulationReport, groups_shown, simulation_report
from respread.cli.render.skew_report import WorkloadReference
from respread.cluster.workload import WorkloadName
from respread.eviction.remembered import moves_under_way
from respread.planning.planner import Planner
from respread.planning.victims.default_constraints import kinds_restored
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.forecast import NotForetoldError, Ranking
from respread.prevention.protection import ScaleDownProtection, protection_of
from respread.prevention.workload_pods import WorkloadPods, workloads_of
from respread.spread.carried import DefaultConstraints
from respread.spread.index import SpreadIndex

LATER: Final = timedelta(days=365)
"""After this time, no pod is too young to be evicted. The result is what is needed, not what may be done at once."""


def simulate_cluster(planned: Planned, typed: Typed, namespace: str | None) -> SimulationReport:
    """Return what changes would do. The view of the plan's predictor is changed.

    Args:
        planned: the cluster.
        typed: the changes as on the command line.
        namespace: where to look for workloads, and what to report; None is everywhere.

    Raises:
        CommandError: the changes name something that does not exist, or their effect can't be known.
    """
    changes = find_changes(typed, planned.view.snapshot, namespace)
    workloads = workloads_of(planned.view.snapshot, planned.spread, {name.namespace for name, _ in changes.scale})
    runs = _runs(planned, changes, workloads)
    return simulation_report(
        runs,
        groups_shown(planned.spread, runs, [name for name, _ in changes.scale], namespace),
        changes,
        _protections(planned, changes, workloads),
        namespace=namespace,
        origin=planned.origin,
    )


def _runs(planned: Planned, changes: HypotheticalChanges, workloads: Mapping[WorkloadName, WorkloadPods]) -> Runs:
    """Apply the changes, and twice more, with and without costs, if a scale-down uses them."""
    as_it_is = _run(planned, changes, "as it is")
    by_costs = any(
        replicas < len(workloads[name].pods) and workloads[name].replica_sets for name, replicas in changes.scale
    )
    if not by_costs:
        return Runs(as_it_is)
    return Runs(as_it_is, _run(planned, changes, "with costs"), _run(planned, changes, "without costs"))


def _run(planned: Planned, changes: HypotheticalChanges, ranking: Ranking) -> Run:
    defaults = DefaultConstraints(planned.predictor.configuration, kinds_restored(planned.setting.policies))
    now = planned.view.time
    what_if = WhatIf(planned.view.snapshot, SpreadIndex(defaults), planned.predictor, now=now, ranking=ranking)
    what_if.add_nodes(changes.add)
    what_if.remove_nodes(changes.remove)
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
    under_way = moves_under_way(planned.view.statuses, outcome.snapshot, now).for_planning(outcome.snapshot)
    plan = Planner(planned.predictor).plan(
        under_way.snapshot,
        outcome.spread,
        planned.setting,
        now=now + LATER,
        in_flight=under_way.in_flight,
        unreplaced=under_way.unreplaced,
    )
    return Run(outcome, plan)


def _protections(
    planned: Planned, changes: HypotheticalChanges, workloads: Mapping[WorkloadName, WorkloadPods]
) -> dict[WorkloadName, tuple[int, ScaleDownProtection]]:
    """Return the number of pods of each scaled workload, and whether they are protected."""
    policies = () if planned.default_policy else planned.setting.policies
    index, view = PolicyIndex(policies), planned.view
    return {
        name: (len(workloads[name].pods), protection_of(workloads[name], index, view.snapshot, view.statuses))
        for name, _ in changes.scale
    }
