"""Spread groups as a table: violated ones with a line per domain, the others with one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.api.words import number_of
from respread.planning.audit.finding import AuditState, When
from respread_cli.render.domain_bars import (
    FAINT,
    INEFFECTIVE,
    MOST_DOMAINS,
    MOST_DOMAINS_WIDE,
    OVER,
    SOFT,
    WITHIN,
    ConsoleView,
    Domain,
    domains_shown,
    draw,
    draw_in_line,
)
from respread_cli.render.domain_bars import natural_width as natural_width_of_domains
from respread_cli.render.fitted_table import (
    GiveWay,
    column_widths,
    cut,
    fitted_table,
    folded,
    natural_width,
    table_of,
)
from respread_cli.report.scale_down_protection import ScaleDownReason
from respread_cli.report.skew_report import (
    GroupReport,
    PendingPods,
    ProtectionReport,
    SkewReport,
    WorkloadReference,
    short_topology_key,
)

SCALE_DOWNS: Final = "SCALE-DOWNS"
DOMAINS: Final = "PODS PER DOMAIN"
SKEW: Final = "SKEW/MAX"
_GIVE_WAY: Final[GiveWay] = {
    "WHY": (60, 30),
    "SELECTOR": (30, 10),
    DOMAINS: (30, 20),
    "NAMESPACE": (14, 9),
    "KEY": (27, 12),
    "WORKLOAD": (22, 12),
}
_MOST_COUNTS: Final = 8
_MOST_CAUSES: Final = 5
"""Causes that are shown without --problems."""
_MOST_WORKLOADS: Final = 3


class SkewTable(ConsoleView):
    """Draws groups for one console."""

    def render(self, groups: Sequence[GroupReport], protections: Sequence[ProtectionReport] | None = None) -> Table:
        """Return the table.

        Args:
            groups: What to show.
            protections: Whether their workloads are protected, if it is to be said.
        """
        keys = short_names(group.topology_key for group in groups)
        reasons = {(each.namespace, each.workload): each.reason for each in protections or ()}
        rows = [
            self._texts(group, keys) | ({SCALE_DOWNS: _scale_downs(group, reasons)} if protections is not None else {})
            for group in groups
        ]
        headings = list(rows[0]) if rows else []
        domains = {id(group): self._domains(group) for group in groups}
        natural = {heading: natural_width(heading, (row[heading] for row in rows)) for heading in headings}
        drawings = (self._natural_width(group, domains[id(group)]) for group in groups)
        widths = column_widths(natural | {DOMAINS: max((len(DOMAINS), *drawings))}, _GIVE_WAY, self._width)
        table = table_of(widths, ascii_only=self._ascii)
        for group, row in zip(groups, rows, strict=True):
            cells: list[Text | str] = [
                cut(text, widths[heading], ascii_only=self._ascii)
                if heading == "SELECTOR"
                else folded(text, widths[heading])
                for heading, text in row.items()
            ]
            cells[0] = Text(row[""], style=style_of(group))
            cells[headings.index(SKEW)] = Text(row[SKEW], style=style_of(group) if group.violated else "")
            cells.append(self._drawing(group, domains[id(group)], widths[DOMAINS]))
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
            SKEW: f"{group.skew}/{group.max_skew}",
        }

    def _domains(self, group: GroupReport) -> list[Domain]:
        """Return the domains that are drawn one by one; none if one line is enough."""
        if not group.domains or not (self._wide or group.violated):
            return []
        most = MOST_DOMAINS_WIDE if self._wide else MOST_DOMAINS
        return domains_shown(group.counts, group.minimum + group.max_skew, group.empty_domains, most)

    def _natural_width(self, group: GroupReport, domains: Sequence[Domain]) -> int:
        return natural_width_of_domains(domains) if domains else self._drawing(group, domains, 0).cell_len

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


def pending_table(
    pods: Sequence[PendingPods], *, width: int, ascii_only: bool, with_namespace: bool
) -> Iterator[RenderableType]:
    """Yield pods without a node, and why: a row for each workload and reason."""
    if not pods:
        return
    rows = [
        {
            "": Text(_SIGNS["Unsatisfiable"][ascii_only], style=OVER),
            **({"NAMESPACE": Text(each.namespace)} if with_namespace else {}),
            "WORKLOAD": Text(str(each.workload)),
            "PENDING": Text(str(each.pods)),
            "WHY": Text("\n".join(f"{why.nodes} {why.message}" for why in each.rejections) or each.message),
        }
        for each in pods
    ]
    yield fitted_table(rows, _GIVE_WAY, width, ascii_only=ascii_only, to_the_right={"PENDING"})
    yield Text()


def of_pending(pods: Iterable[PendingPods]) -> Text:
    """Return a sentence about pods without a node, after a blank; empty if there are none."""
    number = sum(each.pods for each in pods)
    return Text(f" {number:,} {'pod is' if number == 1 else 'pods are'} Pending." if number else "", style=OVER)


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


def of_unworkable(unsatisfiable: int, ineffective: int, where: str) -> Text:
    """Return how many constraints can't work, and where to see them."""
    text = Text()
    if unsatisfiable:
        keep = "1 constraint keeps" if unsatisfiable == 1 else f"{unsatisfiable:,} constraints keep"
        text.append(f"{keep} pods Pending, or would. ", style=OVER)
    if ineffective:
        have = "1 has" if ineffective == 1 else f"{ineffective:,} have"
        text.append(f"{have} no effect. ", style=INEFFECTIVE)
    return text.append(f"See {where}.")


def causes(report: SkewReport, *, all_of_them: bool) -> Iterator[RenderableType]:
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


_SIGNS: Final[Mapping[AuditState, tuple[str, str]]] = {
    "Ineffective": ("○", "o"),
    "Unsatisfiable": ("⧗", "P"),
}
"""For a terminal, and in ASCII: P for Pending."""


def legend(groups: Sequence[GroupReport], *, ascii_only: bool) -> Text:
    """Return what the signs of these groups mean, in one line."""
    meanings = {
        mark(group, ascii_only=ascii_only): _MEANINGS_OF_STATES.get(
            group.state, _MEANINGS[group.violated, group.when_unsatisfiable == "DoNotSchedule"]
        )
        for group in groups
    }
    signs = ", ".join(f"{sign} {meaning}" for sign, meaning in meanings.items())
    return Text(f"{signs}. {SKEW}: the skew and the maxSkew of the constraint.", style=FAINT)


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


def mark(group: GroupReport, *, ascii_only: bool = False) -> str:
    """Return a sign for the state of a group."""
    if (signs := _SIGNS.get(group.state)) is not None:
        return signs[ascii_only]
    if not group.violated:
        return "ok" if ascii_only else "✓"
    if group.when_unsatisfiable == "DoNotSchedule":
        return "X" if ascii_only else "✗"
    return "!"


def style_of(group: GroupReport) -> str:
    """Return the color of that sign."""
    if group.state in _SIGNS:
        return style_of_state(group.state, group.findings[0].when)
    if not group.violated:
        return WITHIN
    return OVER if group.when_unsatisfiable == "DoNotSchedule" else SOFT


def style_of_state(state: AuditState, when: When) -> str:
    """Return the color of a constraint that can't work; if it keeps pods Pending, by when."""
    if state == "Unsatisfiable":
        return OVER if when == "Now" else SOFT
    return INEFFECTIVE


def workloads(group: GroupReport) -> str:
    """Return the workloads of a group, the first one by its name."""
    if not group.workloads:
        return ""
    first, *others = group.workloads
    return f"{first} +{len(others)}" if others else str(first)


def counts_shown(counts: Mapping[str, int]) -> str:
    """Return counts in the order of the domains' names, or their range if there are many."""
    values = list(counts.values())
    if not values:
        return "none"
    if len(values) <= _MOST_COUNTS:
        return " ".join(map(str, values))
    return f"{min(values)}-{max(values)} in {len(values):,} domains"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each topology key, or the full key if two have the same last part."""
    distinct = set(keys)
    parts = [short_topology_key(key) for key in distinct]
    return {key: short if parts.count(short := short_topology_key(key)) == 1 else key for key in distinct}


def _scale_downs(group: GroupReport, reasons: Mapping[tuple[str, WorkloadReference], ScaleDownReason]) -> str:
    """Return how scale-downs of a group's workloads choose pods, each word once."""
    found = (reasons.get((group.namespace, workload)) for workload in group.workloads)
    return ", ".join(dict.fromkeys(str(reason) for reason in found if reason is not None))
