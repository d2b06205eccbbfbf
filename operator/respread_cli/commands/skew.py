"""`respread skew`: how pods are spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.api.reasons import number_of
from respread.cluster.decode.decoder import KINDS
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.auditor import Auditor
from respread.planning.audit.finding import AuditState
from respread.program.command_line import ENVIRONMENT, CommandError, CommandWithExamples, Example, scheduler_option
from respread.scheduling.configuration import SchedulerConfiguration, is_known, of_version
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS, DefaultConstraints
from respread.spread.index import Spread, SpreadIndex
from respread_cli import live_values
from respread_cli.options import cluster_options, namespace_options, output_options, selector_option
from respread_cli.read.cluster_view import ClusterOptions, ReadCluster
from respread_cli.read.reading import read_for_skew, spread_with_owners, with_all_that_decides, with_namespaces
from respread_cli.render.formats import OutputOptions
from respread_cli.render.groups import (
    MOST_DOMAINS,
    MOST_DOMAINS_WIDE,
    Domain,
    domains_shown,
    draw,
    draw_in_line,
    mark,
    natural_width_of_domains,
    of_pending,
    of_unworkable,
    pending_table,
    style_of,
    style_of_state,
    workloads,
)
from respread_cli.render.output import Shown
from respread_cli.render.tables import (
    FAINT,
    OVER,
    SOFT,
    WITHIN,
    ConsoleView,
    GiveWay,
    column_widths,
    cut,
    folded,
    natural_width,
    table_of,
)
from respread_cli.render.watching import show_results
from respread_cli.report.scale_downs import ProtectionReport, ScaleDownReason, protection_reports
from respread_cli.report.skew_report import (
    ORDERS,
    GroupFilter,
    GroupReport,
    SkewReport,
    SortOrder,
    pending_pods,
    short_topology_key,
    skew_report,
    unknown_workloads,
    waiting_pods,
)
from respread_cli.report.target import WorkloadReference, check_namespace, close_to, did_you_mean, joined_words

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
_SCALE_DOWNS: Final = "SCALE-DOWNS"
_DOMAINS: Final = "PODS PER DOMAIN"
_SKEW: Final = "SKEW/MAX"
_GIVE_WAY: Final[GiveWay] = {
    "WHY": (60, 30),
    "SELECTOR": (30, 10),
    _DOMAINS: (30, 20),
    "NAMESPACE": (14, 9),
    "KEY": (27, 12),
    "WORKLOAD": (22, 12),
}
_MOST_CAUSES: Final = 5
"""Causes that are shown without --problems."""
_MOST_WORKLOADS: Final = 3
_MEANINGS: Final[Mapping[tuple[bool, bool], str]] = {
    (True, True): "violated",
    (True, False): "violated, ScheduleAnyway",
    (False, True): "holds",
    (False, False): "holds",
}
"""By whether a constraint is violated, and whether it is a DoNotSchedule constraint."""
_MEANINGS_OF_STATES: Final[Mapping[AuditState, str]] = {
    "Ineffective": "has no effect",
    "Unsatisfiable": "keeps pods Pending",
}


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
        notes = (*view.notes, *_unknown_owners(view.snapshot, spread, namespace))
        return skew_report(
            msgspec.structs.replace(view, notes=notes),
            spread,
            wanted,
            protections=protections,
            findings=auditor.update(view.snapshot, spread, predictor),
            pending=pending_pods(waiting_pods(view.snapshot, groups), predictor),
            problems=problems,
            order=sort_by,
            limit=limit,
        )

    view = partial(SkewView, wide=output.wide, with_namespace=namespace is None, problems=problems)
    report = show_results(look, output, lambda found: Shown(found, lambda console: view(console).render(found)))
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


class SkewView(ConsoleView):
    """Shows groups on one console."""

    def __init__(self, console: Console, *, wide: bool, with_namespace: bool, problems: bool = False) -> None:
        """Prepare; as ConsoleView.

        With `problems`, it says of all constraints that can't work why, and what cures it; else of some.
        """
        super().__init__(console, wide=wide, with_namespace=with_namespace)
        self._is_terminal = console.is_terminal
        self._all_causes = problems or wide

    def render(self, report: SkewReport) -> Iterator[RenderableType]:
        """Return the parts of the output, one below the other."""
        if report.groups:
            yield self._table(report.groups, report.protections)
            if self._is_terminal:
                yield _legend(report.groups, ascii_only=self._ascii)
            yield Text()
            yield from _causes(report, all_of_them=self._all_causes)
        yield from pending_table(
            report.pending, width=self._width, ascii_only=self._ascii, with_namespace=self._with_namespace
        )
        yield summary(report)

    def _table(self, groups: Sequence[GroupReport], protections: Sequence[ProtectionReport] | None) -> Table:
        keys = _short_names(group.topology_key for group in groups)
        reasons = {(each.namespace, each.workload): each.reason for each in protections or ()}
        rows = [
            self._texts(group, keys) | ({_SCALE_DOWNS: _scale_downs(group, reasons)} if protections is not None else {})
            for group in groups
        ]
        headings = list(rows[0]) if rows else []
        domains = [self._domains(group) for group in groups]
        natural = {heading: natural_width(heading, (row[heading] for row in rows)) for heading in headings}
        drawings = (
            natural_width_of_domains(found) if found else self._drawing(group, found, 0).cell_len
            for group, found in zip(groups, domains, strict=True)
        )
        widths = column_widths(natural | {_DOMAINS: max((len(_DOMAINS), *drawings))}, _GIVE_WAY, self._width)
        table = table_of(widths, ascii_only=self._ascii)
        for group, row, found in zip(groups, rows, domains, strict=True):
            cells: list[Text | str] = [
                cut(text, widths[heading], ascii_only=self._ascii)
                if heading == "SELECTOR"
                else folded(text, widths[heading])
                for heading, text in row.items()
            ]
            cells[0] = Text(row[""], style=style_of(group))
            cells[headings.index(_SKEW)] = Text(row[_SKEW], style=style_of(group) if group.violated else "")
            cells.append(self._drawing(group, found, widths[_DOMAINS]))
            table.add_row(*cells)
        return table

    def _texts(self, group: GroupReport, keys: dict[str, str]) -> dict[str, str]:
        """Return a row's texts by their headings."""
        return {
            "": mark(group, ascii_only=self._ascii),
            **({"NAMESPACE": group.namespace} if self._with_namespace else {}),
            "WORKLOAD": workloads(group),
            "KEY": group.topology_key if self._wide else keys[group.topology_key],
            **({"WHEN": group.when_unsatisfiable, "SELECTOR": group.selector} if self._wide else {}),
            _SKEW: f"{group.skew}/{group.max_skew}",
        }

    def _domains(self, group: GroupReport) -> list[Domain]:
        """Return the domains that are drawn one by one; none if one line is enough."""
        if not group.domains or not (self._wide or group.violated):
            return []
        most = MOST_DOMAINS_WIDE if self._wide else MOST_DOMAINS
        return domains_shown(group.counts, group.minimum + group.max_skew, group.empty_domains, most)

    def _drawing(self, group: GroupReport, domains: Sequence[Domain], width: int) -> Text:
        if not group.domains:
            return Text("no eligible domain", style=FAINT)
        if not domains:
            return draw_in_line(group, ascii_only=self._ascii)
        allowed = group.minimum + group.max_skew
        return Text("\n").join(draw(domains, allowed, width, ascii_only=self._ascii))


def summary(report: SkewReport) -> Text:
    """Return a summary of the table in a sentence or two."""
    return _of_constraints(report).append_text(of_pending(report.pending))


def _of_constraints(report: SkewReport) -> Text:
    groups, found = report.groups, len(report.groups) + report.left_out
    if not groups:
        return Text("No pod has such a topology spread constraint.")
    unworkable = report.unsatisfiable + report.ineffective
    if report.left_out:
        limited = f"{len(groups):,} of {found:,} constraints are shown (--limit). "
        are = "is" if report.violated == 1 else "are"
        return Text(f"{limited}{report.violated:,} of the {found:,} {are} violated.", style=SOFT)
    if not report.violated and unworkable:
        return of_unworkable(report.unsatisfiable, report.ineffective, "--problems")
    if not report.violated:
        hold = "The constraint holds" if len(groups) == 1 else f"All {len(groups):,} constraints hold"
        return Text(f"{hold}.", style=WITHIN)
    hard = sum(group.violated and group.when_unsatisfiable == "DoNotSchedule" for group in groups)
    kinds = ", ".join(
        f"{number} {when}"
        for number, when in ((hard, "DoNotSchedule"), (report.violated - hard, "ScheduleAnyway"))
        if number
    )
    text = Text(
        f"{report.violated:,} of {number_of(len(groups), 'constraint')} violated: {kinds}.",
        style=OVER if hard else SOFT,
    )
    if unworkable:
        text.append(" ").append_text(of_unworkable(report.unsatisfiable, report.ineffective, "--problems"))
    return text


def _causes(report: SkewReport, *, all_of_them: bool) -> Iterator[RenderableType]:
    """Yield why constraints can't work and what cures them: of all, or of the first few."""
    found = [(group, finding) for group in report.groups for finding in group.findings]
    shown = found if all_of_them else found[:_MOST_CAUSES]
    for group, finding in shown:
        style = style_of_state(finding.state, finding.when)
        title = Text(f"{finding.rule}", style=style).append(
            f" {', '.join(finding.workloads[:_MOST_WORKLOADS])} in {group.namespace}, {group.topology_key}: "
            f"{finding.message}."
        )
        yield title
        if all_of_them:
            yield Padding(Text(f"Cure: {finding.cure}."), (0, 0, 0, 2))
            if finding.command is not None:
                yield _to_copy(finding.command)
            yield _to_copy(finding.docs)
    if more := len(found) - len(shown):
        yield Text(f"and {more:,} more: see --problems", style=FAINT)
    if found:
        yield Text()


def _to_copy(line: str) -> RenderableType:
    """Return a line that a terminal breaks itself, and so copies in one piece."""
    return Group(Text(f"  {line}", style=FAINT, no_wrap=True, overflow="ignore"))  # Alone, a console would wrap it.


def _legend(groups: Sequence[GroupReport], *, ascii_only: bool) -> Text:
    """Return what the signs of these groups mean, in one line."""
    meanings = {
        mark(group, ascii_only=ascii_only): _MEANINGS_OF_STATES.get(
            group.state, _MEANINGS[group.violated, group.when_unsatisfiable == "DoNotSchedule"]
        )
        for group in groups
    }
    signs = ", ".join(f"{sign} {meaning}" for sign, meaning in meanings.items())
    return Text(f"{signs}. {_SKEW}: the skew and the maxSkew of the constraint.", style=FAINT)


def _short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each topology key, or the full key if two have the same last part."""
    distinct = set(keys)
    parts = [short_topology_key(key) for key in distinct]
    return {key: short if parts.count(short := short_topology_key(key)) == 1 else key for key in distinct}


def _scale_downs(group: GroupReport, reasons: Mapping[tuple[str, WorkloadReference], ScaleDownReason]) -> str:
    """Return how scale-downs of a group's workloads choose pods, each word once."""
    found = (reasons.get((group.namespace, workload)) for workload in group.workloads)
    return ", ".join(dict.fromkeys(str(reason) for reason in found if reason is not None))
