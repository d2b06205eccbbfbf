"""`respread simulate`: what scaling workloads and losing or adding nodes would do to the spread."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import click
from rich.console import Console, RenderableType

from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli.completion import live_values
from respread_cli.options import planning_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.simulate_table import SimulationView
from respread_cli.render.watching import show_results
from respread_cli.report.planned import PlanningOptions, plan_cluster_of
from respread_cli.report.simulate_changes import Typed
from respread_cli.report.simulate_report import SimulationReport
from respread_cli.report.simulating import Simulator
from respread_cli.report.what_if import Cancellation

EXAMPLES: Final = (
    Example("What a scale-down would leave", "simulate --scale deploy/web=4 -n shop"),
    Example("What the loss of a zone would do", "simulate --remove-domain zone=zone-c"),
    Example("How long the spread takes after a zone was away", "simulate --restore-domain zone=zone-c"),
    Example("Whether two more nodes would help", "simulate --add-nodes 2,like=node-a1 --scale deploy/web=12"),
    Example("Fail a pipeline if a drain would leave a constraint violated", "simulate --drain node-a1 --exit-code"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.option(
    "--scale",
    metavar="WORKLOAD=N",
    shell_complete=live_values.workloads,
    multiple=True,
    help="Scale deploy/web to 4 pods: deploy/web=4, or with its namespace shop/deploy/web=4.",
)
@click.option("--drain", metavar="NODE", multiple=True, shell_complete=live_values.nodes, help="Drain a node.")
@click.option(
    "--cordon",
    metavar="NODE",
    multiple=True,
    shell_complete=live_values.nodes,
    help="Cordon a node: its pods stay, and it gets no new pods.",
)
@click.option("--remove-domain", metavar="KEY=VALUE", multiple=True, help="Lose all nodes of a domain at once: zone=c.")
@click.option(
    "--restore-domain",
    metavar="KEY=VALUE",
    multiple=True,
    help="Lose all nodes of a domain at once, and get them back without their pods.",
)
@click.option(
    "--add-nodes",
    metavar="N[,like=NODE]",
    multiple=True,
    help="Add copies of a node; without like=NODE, of one node of each zone in turn.",
)
@planning_options
@click.pass_context
def simulate(
    ctx: click.Context,
    *,
    scale: tuple[str, ...],
    drain: tuple[str, ...],
    cordon: tuple[str, ...],
    remove_domain: tuple[str, ...],
    restore_domain: tuple[str, ...],
    add_nodes: tuple[str, ...],
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show what changes would do to the spread, without making them.

    A scale-down deletes the pods that its controller would delete, with and without Respread's pod deletion costs. New
    pods, and pods that lose their node, go to the feasible nodes that the scheduler prefers. This is likely, not
    certain. The changes are applied one after another: add nodes, remove domains, lose and restore domains, cordon and
    drain nodes, scale workloads. Nothing is changed in the cluster. How long the evictions take is an estimate.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated afterwards.
    """
    typed = Typed(
        scale=scale,
        drain=drain,
        remove_domain=remove_domain,
        restore_domain=restore_domain,
        add_nodes=add_nodes,
        cordon=cordon,
    )
    if typed.nothing:
        raise click.UsageError(
            "say what to simulate: --scale deploy/web=4, --drain, --cordon, --remove-domain, --restore-domain or "
            "--add-nodes."
        )

    def look() -> SimulationReport:
        planned = plan_cluster_of(cluster, planning)
        return Simulator(planned.predictor).simulate(planned, typed, namespace, Cancellation())

    def render(report: SimulationReport, console: Console) -> Iterator[RenderableType]:
        return SimulationView(console, wide=output.wide, with_namespace=namespace is None).render(report)

    report = show_results(look, output, lambda found: Shown(found, partial(render, found)))
    ctx.exit(output.code(violated=report.as_it_is.violated > 0))
