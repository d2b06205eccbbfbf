"""`respread skew`: how pods are spread."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import click

from respread.cluster.decode.decoder import KINDS
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.auditor import Auditor
from respread.program.command_line import ENVIRONMENT, CommandError, CommandWithExamples, Example, scheduler_option
from respread.scheduling.configuration import SchedulerConfiguration, of_version
from respread.scheduling.default_selector import is_known
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS, DefaultConstraints
from respread.spread.index import Spread, SpreadIndex
from respread_cli import live_values
from respread_cli.options import cluster_options, namespace_options, output_options, selector_option
from respread_cli.read.cluster_view import ClusterOptions, ReadCluster
from respread_cli.read.reading import read_for_skew, spread_with_owners, with_all_that_decides, with_namespaces
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.skew_table import SkewView
from respread_cli.render.watching import show_results
from respread_cli.report.scale_downs import protection_reports
from respread_cli.report.skew_report import (
    ORDERS,
    GroupFilter,
    Origin,
    SkewReport,
    SortOrder,
    pending_pods,
    skew_report,
    unknown_workloads,
    waiting_pods,
)
from respread_cli.report.target import check_namespace, close_to, did_you_mean, joined_words

EXAMPLES: Final = (
    Example("Every constraint, worst first", "skew"),
    Example(
        "The violated DoNotSchedule constraints of one namespace, for a script",
        "skew -n shop --when-unsatisfiable DoNotSchedule --exit-code",
    ),
    Example("The ten worst violated constraints of all namespaces", "skew --violated --limit 10"),
    Example("Zone constraints of pods with a label", "skew -l app=web -k zone"),
    Example(
        "Namespace, workload and skew, one line each",
        'skew -o jsonpath=\'{range .groups[*]}{.namespace}{"\\t"}{.workloads[0].name}{"\\t"}{.skew}{"\\n"}{end}\'',
    ),
    Example("Only what is wrong: violated, and what can't work", "skew --problems"),
    Example("A snapshot file", "skew --snapshot cluster.json.gz"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument("workloads", metavar="[WORKLOAD]...", nargs=-1, shell_complete=live_values.workloads)
@namespace_options
@click.option(
    "-k",
    "--topology-key",
    "topology_keys",
    metavar="KEY",
    shell_complete=live_values.topology_keys,
    multiple=True,
    help="Only this topology key; the part after the slash is enough, such as zone.",
)
@click.option(
    "--when-unsatisfiable",
    type=click.Choice(["DoNotSchedule", "ScheduleAnyway"]),
    help="Only constraints of this kind.  [default: both]",
)
@click.option("--violated", is_flag=True, help="Only violated constraints.")
@click.option(
    "--sort-by",
    type=click.Choice(ORDERS),
    default="severity",
    show_default=True,
    help="severity: violated first, DoNotSchedule before ScheduleAnyway, then by skew beyond maxSkew.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show only the first N constraints.")
@click.option(
    "--soft-defaults",
    is_flag=True,
    help="Also the ScheduleAnyway constraints that the scheduler gives pods without any of their own.",
)
@click.option(
    "--problems",
    is_flag=True,
    help="Only constraints that are violated or can't work, and for the latter the cause and the cure of each.",
)
@selector_option
@scheduler_option
@cluster_options
@output_options
@click.pass_context
def skew(
    ctx: click.Context,
    *,
    workloads: tuple[str, ...],
    namespace: str | None,
    topology_keys: tuple[str, ...],
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None,
    violated: bool,
    sort_by: SortOrder,
    limit: int | None,
    soft_defaults: bool,
    problems: bool,
    selector: Selector | None,
    scheduler_configuration: SchedulerConfiguration,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show how evenly pods are spread, worst first.

    The output has one row for every topology spread constraint of pods in all namespaces, including default constraints
    if they are requested. Violated constraints have one line per domain. Constraints that can't work have a sign of
    their own: ⧗ keeps pods Pending, ○ can't change where pods go. WORKLOAD is a name, a kind and a name such as
    deploy/web, also as two words, or a pattern such as 'web-*'. Pending pods have rows of their own, with the reason.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated, and with --problems
    also 1 if it can't work.
    """
    more = output.format not in {"table", "name"}
    defaults = DefaultConstraints(scheduler_configuration, ALL_DEFAULTS if soft_defaults else HARD_DEFAULTS)
    wanted = GroupFilter(
        namespace=namespace,
        workloads=joined_words(workloads),
        topology_keys=topology_keys,
        when_unsatisfiable=when_unsatisfiable,
        selector=selector,
        only_violated=violated,
    )
    auditor = Auditor()

    def look() -> SkewReport:
        view, spread, predictor = _read(cluster, wanted, defaults, with_policies=more)
        groups = [*filter(wanted.selects, spread.groups.values())]
        protections = protection_reports(view, spread, groups) if more else None
        origin = Origin(view.source, view.time, (*view.notes, *_unknown_owners(view.snapshot, spread, namespace)))
        return skew_report(
            spread,
            wanted,
            origin,
            protections,
            findings=auditor.update(view.snapshot, spread, predictor),
            pending=pending_pods(waiting_pods(view.snapshot, groups), predictor),
            problems=problems,
            order=sort_by,
            limit=limit,
        )

    view = partial(SkewView, wide=output.wide, with_namespace=namespace is None, problems=problems)
    report = show_results(look, output, lambda found: Shown(found, view))
    unworkable = report.unsatisfiable + report.ineffective if problems else 0
    ctx.exit(output.code(violated=report.violated + unworkable > 0))


def _read(
    cluster: ClusterOptions, wanted: GroupFilter, defaults: DefaultConstraints, *, with_policies: bool
) -> tuple[ReadCluster, Spread, Predictor | None]:
    """Return the cluster, its spread, and what predicts where pods go; None if not all pods and nodes may be read."""
    namespace = wanted.namespace
    view = read_for_skew(cluster, namespace, with_policies=with_policies, with_services=defaults.exist)
    view, spread = spread_with_owners(cluster, view, SpreadIndex(defaults), namespace)
    if namespace is not None and namespace not in view.snapshot.pods_by_labels:
        check_namespace(namespace, with_namespaces(cluster, view).snapshot)
    _check_workloads(spread, wanted)
    complete = cluster.snapshot is not None or (namespace is None and KINDS["nodes"].resource not in view.left_out)
    if waiting_pods(view.snapshot, filter(wanted.selects, spread.groups.values())):
        view, complete = with_all_that_decides(cluster, view, with_policies=with_policies)
        view, spread = spread_with_owners(cluster, view, SpreadIndex(defaults), namespace)
    if not complete:
        return view, spread, None
    return view, spread, Predictor(ClusterView(view.snapshot), of_version(defaults.configuration, view.server_version))


def _check_workloads(spread: Spread, wanted: GroupFilter) -> None:
    """Refuse workloads that no constraint is about."""
    if unknown := unknown_workloads(spread, wanted):
        where = "" if wanted.namespace is None else f" in namespace {wanted.namespace}"
        names = {each.name for group in spread.groups.values() for each in group.workloads}
        close = did_you_mean(close_to(unknown[0].rpartition("/")[2], names))
        raise CommandError(f"no pod of {', '.join(unknown)}{where} has a topology spread constraint.{close}")


def _unknown_owners(snapshot: ClusterSnapshot, spread: Spread, namespace: str | None) -> list[str]:
    """Return a note if default constraints are missing because their selectors are unknown."""
    names = [
        f"{owner.kind} {owner.key}"
        for owners_namespace, owners in spread.owners.items()
        if namespace in {None, owners_namespace}
        for owner in owners
        if not is_known(owner, snapshot)
    ]
    if not names:
        return []
    more = f" and {len(names) - 1} more are" if len(names) > 1 else " is"
    return [f"{min(names)}{more} not known, so the default constraints of their pods are left out."]
