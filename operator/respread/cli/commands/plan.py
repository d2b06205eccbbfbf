"""`respread plan`: the evictions that would restore the spread."""

from __future__ import annotations

import click

from respread.cli.options import ENVIRONMENT, ClusterOptions, OutputOptions
from respread.cli.read.planned import PlanningOptions, plan_cluster_of, planning_options
from respread.cli.render.output import show
from respread.cli.render.plan_report import plan_report
from respread.cli.render.plan_table import PlanView


@click.command(context_settings=ENVIRONMENT)
@planning_options
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show the evictions that would restore the spread.

    The output lists the evictions in their order, where each replacement may land, and what stays violated and why. The
    operator would do the same now, except that the command ignores modes, windows, quiet periods and back-off. Nothing
    is evicted. If there is no policy, the plan is made for a policy with an empty spec.

    Exit code: 0 if all constraints that the policies restore hold, 1 if one is violated, 2 for an error.
    """
    planned = plan_cluster_of(cluster, planning)
    report = plan_report(
        planned.plan,
        planned.spread,
        planned.reports,
        default_policy=planned.default_policy,
        namespace=namespace,
        origin=planned.origin,
    )
    show(
        report,
        output,
        lambda console: PlanView(console, wide=output.wide, with_namespace=namespace is None).render(report),
    )
    ctx.exit(1 if report.violated else 0)
