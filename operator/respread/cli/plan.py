"""`respread plan`: the evictions that would restore the spread."""

from __future__ import annotations

from collections.abc import Iterable

import click

from respread.api.policy import Policy
from respread.cli.cluster_view import ClusterView
from respread.cli.errors import CommandError
from respread.cli.options import (
    ENVIRONMENT,
    ClusterOptions,
    OutputOptions,
    cluster_options,
    namespace_options,
    option,
    output_options,
)
from respread.cli.output import make_console, print_json, print_parts, print_yaml
from respread.cli.plan_report import PolicyReport, plan_report, policy_report
from respread.cli.plan_table import PlanView
from respread.cli.policy_files import DEFAULT_POLICY, read_policies
from respread.cli.reading import read_for_plan
from respread.cli.scheduler_option import scheduler_option
from respread.planning.assembly import plan_cluster
from respread.planning.protection import threshold_value
from respread.scheduling.cluster_view import ClusterView as SchedulerView
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.spread.index import spread_of


@click.command(context_settings=ENVIRONMENT)
@option(
    "-f",
    "--filename",
    "filenames",
    metavar="FILE",
    multiple=True,
    help="Plan for the policies in this file instead of those in the cluster; - is standard input.",
)
@namespace_options
@option(
    "--namespaced-policies",
    type=click.Choice(["honor", "ignore"]),
    default="honor",
    show_default=True,
    help="As the operator is told.",
)
@scheduler_option
@cluster_options
@output_options
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    filenames: tuple[str, ...],
    namespace: str | None,
    namespaced_policies: str,
    scheduler_configuration: SchedulerConfiguration,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show the evictions that would restore the spread.

    In their order, with where each replacement may land; and what stays violated, and why. It is what the operator
    would do now, whatever the mode and windows of its policies, but for what it knows of the last minutes: quiet
    periods and back-off. Nothing is evicted. Without any policy the plan is made for one with an empty spec.

    Exit code: 0 if all constraints that the policies restore hold, 1 if one is violated, 2 for an error.
    """
    if filenames.count("-") + (cluster.snapshot == "-") > 1:
        raise click.UsageError("standard input can be read only once.")
    view = read_for_plan(cluster, with_policies=not filenames)
    given = read_policies(filenames, default_namespace=view.namespace) if filenames else view.policies
    policies = given or (DEFAULT_POLICY,)
    reports = [policy_report(policy, _wrong(policy, view)) for policy in policies]
    if filenames:
        _refuse(reports)
    spread = spread_of(view.snapshot)
    planned = plan_cluster(
        view.snapshot,
        policies,
        now=view.time,
        spread=spread,
        predictor=Predictor(SchedulerView(), scheduler_configuration),
        priority_classes=view.priority_classes,
        namespaced_policies=namespaced_policies == "honor",
    )
    report = plan_report(
        planned,
        spread,
        reports,
        default_policy=not given,
        namespace=namespace,
        source=view.source,
        time=view.time,
        notes=(*view.notes, *_notes(reports, default_policy=not given)),
    )
    if output.format == "json":
        print_json(report)
    elif output.format == "yaml":
        print_yaml(report)
    else:
        for note in report.notes:
            click.echo(f"Note: {note}", err=True)
        wide = output.format == "wide"
        console = make_console(no_color=output.no_color, wide=wide)
        shown = PlanView(console, wide=wide, with_namespace=namespace is None)
        print_parts(console, shown.render(report))
    ctx.exit(1 if report.violated else 0)


def _wrong(policy: Policy, view: ClusterView) -> list[str]:
    """Return what is wrong with a policy in this very cluster."""
    if policy.problems:
        return []
    try:
        threshold_value(policy.spec.victims.priority_threshold, view.priority_classes)
    except ValueError as error:
        return [str(error)]
    return []


def _refuse(policies: Iterable[PolicyReport]) -> None:
    wrong = [f"{policy.name}: {problem}" for policy in policies for problem in policy.wrong]
    if wrong:
        raise CommandError("; ".join(wrong))


def _notes(policies: Iterable[PolicyReport], *, default_policy: bool) -> list[str]:
    if default_policy:
        return [
            (
                "There is no policy in the cluster; this is the plan for a ClusterRebalancePolicy with an empty spec, "
                "which restores DoNotSchedule constraints in all namespaces but those of Kubernetes itself."
            )
        ]
    notes = [
        f"Policy {policy.name} is wrong and evicts nothing: {'; '.join(policy.wrong)}."
        for policy in policies
        if policy.wrong
    ]
    if dry := [policy.name for policy in policies if policy.mode == "DryRun" and not policy.wrong]:
        those = f"Policy {dry[0]} is" if len(dry) == 1 else f"Policies {', '.join(dry)} are"
        notes.append(f"{those} in mode DryRun: the operator plans this too, and evicts nothing.")
    return notes
