"""`respread simulate`: what scaling workloads and losing or adding nodes would do to the spread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import click

from respread.cli.errors import CommandError
from respread.cli.examples import CommandWithExamples, Example
from respread.cli.options import ENVIRONMENT, ClusterOptions, OutputOptions
from respread.cli.read.planned import Planned, PlanningOptions, plan_cluster_of, planning_options
from respread.cli.read.simulate_changes import HypotheticalChanges, Typed, find_changes
from respread.cli.read.what_if import WhatIf
from respread.cli.render.output import show
from respread.cli.render.simulate_report import Run, Runs, groups_shown, simulation_report
from respread.cli.render.simulate_table import SimulationView
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


EXAMPLES: Final = (
    Example("What a scale-down would leave", "simulate --scale deploy/web=4 -n shop"),
    Example("What the loss of a zone would do", "simulate --remove-domain zone=zone-c"),
    Example("Whether two more nodes would help", "simulate --add-nodes 2,like=node-a1 --scale deploy/web=12"),
    Example("Fail a pipeline if a drain would leave a constraint violated", "simulate --drain node-a1 --exit-code"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.option("--scale", metavar="WORKLOAD=N", multiple=True, help="Scale deploy/web to 4 pods: deploy/web=4.")
@click.option("--drain", metavar="NODE", multiple=True, help="Drain a node.")
@click.option("--remove-domain", metavar="KEY=VALUE", multiple=True, help="Lose all nodes of a domain at once: zone=c.")
@click.option(
    "--add-nodes",
    metavar="N[,like=NODE]",
    multiple=True,
    help="Add nodes like one that there is; without it, like one of each zone in turn.",
)
@planning_options
@click.pass_context
def simulate(
    ctx: click.Context,
    *,
    scale: tuple[str, ...],
    drain: tuple[str, ...],
    remove_domain: tuple[str, ...],
    add_nodes: tuple[str, ...],
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show what changes would do to the spread, without making them.

    A scale-down deletes the pods that its controller would delete, with and without Respread's pod deletion costs. New
    pods, and pods that lose their node, go to the feasible nodes that the scheduler prefers. This is likely, not
    certain. The changes are applied one after another: add nodes, remove domains, drain nodes, scale workloads. Nothing
    is changed in the cluster.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated afterwards.
    """
    typed = Typed(scale, drain, remove_domain, add_nodes)
    if typed.nothing:
        raise click.UsageError("say what to simulate: --scale deploy/web=4, --drain, --remove-domain or --add-nodes.")
    planned = plan_cluster_of(cluster, planning)
    changes = find_changes(typed, planned.view.snapshot, namespace)
    workloads = workloads_of(planned.view.snapshot, planned.spread, {name.namespace for name, _ in changes.scale})
    runs = _runs(planned, changes, workloads)
    report = simulation_report(
        runs,
        groups_shown(planned.spread, runs, [name for name, _ in changes.scale], namespace),
        changes,
        _protections(planned, changes, workloads),
        namespace=namespace,
        origin=planned.origin,
    )
    show(
        report,
        output,
        lambda console: SimulationView(console, wide=output.wide, with_namespace=namespace is None).render(report),
    )
    ctx.exit(output.code(violated=report.as_it_is.violated > 0))


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
    index = PolicyIndex(policies)
    return {
        name: (len(workloads[name].pods), protection_of(workloads[name], index, planned.view.snapshot))
        for name, _ in changes.scale
    }
