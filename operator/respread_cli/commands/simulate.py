"""`respread simulate`: what scaling workloads and losing or adding nodes would do to the spread."""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

import click

from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli import live_values
from respread_cli.options import planning_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.simulate_table import DomainLossView, SimulationView
from respread_cli.render.watching import show_results
from respread_cli.report.domain_loss import DomainLossReport, loss_metrics
from respread_cli.report.planned import PlanningOptions, plan_cluster_of
from respread_cli.report.simulate_changes import Typed
from respread_cli.report.simulate_report import SimulationReport, Simulator
from respread_cli.report.target import check_namespace
from respread_cli.report.what_if import Cancellation

EXAMPLES: Final = (
    Example("What a scale-down would leave", "simulate --scale deploy/web=4 -n shop"),
    Example("What the loss of a zone would do", "simulate --remove-domain zone=zone-c"),
    Example("What the loss of each zone in turn would do, the worst first", "simulate --each-domain zone"),
    Example("The same of node pools, as a report for auditors", "simulate --each-domain karpenter.sh/nodepool -o html"),
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
@click.option(
    "--each-domain",
    metavar="KEY",
    shell_complete=live_values.topology_keys,
    help="Lose each domain of a node label in turn, such as zone, and say what each workload would lose.",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="With --each-domain: print respread_domain_loss_pods in the text format of Prometheus.",
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
    each_domain: str | None,
    metrics: bool,
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

    With --each-domain, the loss of each zone, node pool or other domain is simulated, one at a time: how many pods of
    each workload are left at once, how many find no node, and what PodDisruptionBudgets say.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated afterwards, or if a
    workload loses pods for good.
    """
    typed = Typed(
        scale=scale,
        drain=drain,
        remove_domain=remove_domain,
        restore_domain=restore_domain,
        add_nodes=add_nodes,
        cordon=cordon,
    )
    if each_domain is not None:
        if not typed.nothing:
            raise click.UsageError(
                "--each-domain simulates the loss of each domain alone: leave out the other changes."
            )
        _lose_each(ctx, each_domain, namespace, planning, cluster, output, metrics=metrics)
    if metrics:
        raise click.UsageError("--metrics needs --each-domain KEY.")
    if typed.nothing:
        raise click.UsageError(
            "say what to simulate: --scale deploy/web=4, --drain, --cordon, --remove-domain, --restore-domain, "
            "--each-domain or --add-nodes."
        )

    def look() -> SimulationReport:
        planned = plan_cluster_of(cluster, planning, namespace, all_owners=True)
        report = Simulator(planned.predictor).simulate(planned, typed, namespace, Cancellation())
        check_namespace(namespace, planned.view.snapshot)
        return report

    view = partial(SimulationView, wide=output.wide, with_namespace=namespace is None)
    report = show_results(look, output, lambda found: Shown(found, view))
    ctx.exit(output.code(violated=report.harms))


def _lose_each(
    ctx: click.Context,
    key: str,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
    *,
    metrics: bool,
) -> NoReturn:
    """Show what the loss of each domain of a topology key would do, and exit."""

    def look() -> DomainLossReport:
        planned = plan_cluster_of(cluster, planning, namespace)
        return Simulator(planned.predictor).lose_each(planned, key, namespace, Cancellation())

    if metrics:
        if output.format != "table" or output.watch:
            raise click.UsageError("--metrics is a format of its own: leave out -o and --watch.")
        report = look()
        click.echo(loss_metrics(report), nl=False)
    else:
        view = partial(DomainLossView, wide=output.wide, with_namespace=namespace is None)
        report = show_results(look, output, lambda found: Shown(found, view))
    ctx.exit(output.code(violated=any(each.missing for each in report.domains)))
