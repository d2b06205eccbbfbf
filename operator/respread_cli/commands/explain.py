"""`respread explain`: what a plan does with a workload, a pod or a policy, and why."""

from __future__ import annotations

from functools import partial
from typing import Final

import click

from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli import live_values
from respread_cli.options import planning_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.explain_text import ExplainView
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.watching import show_results
from respread_cli.report.explain_report import ExplainReport, explain_report
from respread_cli.report.planned import Planned, PlanningOptions, plan_cluster_of
from respread_cli.report.target import Target, check_namespace, find_target, one_target
from respread_cli.report.workload_view import workload_view

EXAMPLES: Final = (
    Example("Why the pods of a workload move or stay", "explain deploy/web -n shop"),
    Example("Why this pod is not evicted", "explain pod/web-868db494cd-g77vj -n shop"),
    Example("Why a policy can't restore what it selects", "explain crbp/default"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument(
    "target", metavar="TARGET", nargs=-1, required=True, callback=one_target, shell_complete=live_values.targets
)
@planning_options
@click.pass_context
def explain(
    ctx: click.Context,
    *,
    target: str,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show why pods move, and why others don't.

    TARGET is a workload such as deploy/web, a pod such as pod/web-7c9-x2, a policy such as crbp/default, or just a
    name. The output shows its constraints, the domains that count and those that don't, what the plan does, why each
    pod may or may not move, and what a scale-down would leave. The plan is that of `respread plan`.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated.
    """

    def look() -> tuple[Planned, Target, ExplainReport]:
        planned = plan_cluster_of(cluster, planning, namespace)
        check_namespace(namespace, planned.view.snapshot)
        found = find_target(target, planned.view.snapshot, planned.setting.policies, namespace)
        return planned, found, explain_report(planned, found)

    view = partial(ExplainView, wide=output.wide, with_namespace=namespace is None)

    def shown(result: tuple[Planned, Target, ExplainReport]) -> Shown:
        return Shown(result[2], view, partial(workload_view, *result))

    _, _, report = show_results(look, output, shown)
    ctx.exit(output.code(violated=report.violated > 0))
