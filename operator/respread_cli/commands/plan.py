"""`respread plan`: the evictions that would restore the spread."""

from __future__ import annotations

from functools import partial
from typing import Final

import click

from respread.cluster.selectors import Selector
from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli import live_values
from respread_cli.options import planning_options, selector_option
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.plan_table import DifferenceView, PlanView
from respread_cli.render.watching import show_results
from respread_cli.report.plan_report import PlanReport, plan_difference, plan_report, read_plan
from respread_cli.report.planned import PlanningOptions, plan_cluster_of
from respread_cli.report.target import check_namespace, find_target, one_target

EXAMPLES: Final = (
    Example("What the operator would evict now", "plan"),
    Example("Only the moves of one workload", "plan deploy/web -n shop"),
    Example("What a policy would do before it is applied", "plan -f policy.yaml"),
    Example("The pods that would be evicted, in their order", "plan -n shop -o name"),
    Example("For a comment on a pull request", "plan -f policy.yaml -o markdown"),
    Example("What a change of policies changes", "plan -f policy.yaml --diff before.json"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument("target", metavar="[TARGET]", nargs=-1, callback=one_target, shell_complete=live_values.targets)
@selector_option
@click.option(
    "--diff",
    "older",
    metavar="OLD.json",
    help="Show what differs from the plan that `respread plan -o json` wrote to this file.",
)
@planning_options
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    target: str | None,
    selector: Selector | None,
    older: str | None,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show the evictions that would restore the spread.

    The output lists the evictions in their order, where each replacement may land, and what stays violated and why. The
    operator would do the same now, except that the command ignores modes, windows, quiet periods and back-off. Nothing
    is evicted. If there is no policy, the plan is made for a policy with an empty spec.

    The plan is always made for the whole cluster. TARGET, -l and -n select what is shown of it. TARGET is a workload
    such as deploy/web, a pod such as pod/web-7c9-x2, a policy such as crbp/default, or just a name.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that the policies restore is violated now.
    """
    before = None if older is None else read_plan(older)

    def look() -> PlanReport:
        planned = plan_cluster_of(cluster, planning, namespace)
        check_namespace(namespace, planned.view.snapshot)
        wanted = None
        if target is not None:
            wanted = find_target(target, planned.view.snapshot, planned.setting.policies, namespace)
        return plan_report(planned, namespace=namespace, selector=selector, target=wanted)

    def shown(report: PlanReport) -> Shown:
        if before is None:
            return Shown(report, partial(PlanView, wide=output.wide, with_namespace=namespace is None))
        return Shown(plan_difference(before, report), DifferenceView)

    report = show_results(look, output, shown)
    ctx.exit(output.code(violated=report.violated > 0))
