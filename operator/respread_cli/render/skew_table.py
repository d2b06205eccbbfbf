"""Spread groups as a table: violated ones with a line per domain, the others with one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.api.words import number_of
from respread.planning.audit.finding import AuditState, When
from respread_cli.render.tables import (
    FAINT,
    INEFFECTIVE,
    OVER,
    SOFT,
    WITHIN,
    ConsoleView,
    GiveWay,
    column_widths,
    cut,
    fitted_table,
    folded,
    natural_width,
    table_of,
)
from respread_cli.report.scale_downs import ProtectionReport, ScaleDownReason
from respread_cli.report.skew_report import GroupReport, PendingPods, SkewReport, short_topology_key
from respread_cli.report.target import WorkloadReference

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
_SIGNS: Final[Mapping[AuditState, tuple[str, str]]] = {
    "Ineffective": ("○", "o"),
    "Unsatisfiable": ("⧗", "P"),
}
"""For a terminal, and in ASCII: P for Pending."""
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
MOST_DOMAINS: Final = 6
"""Up to this many domains are drawn one by one. If there are more, the overfull ones are drawn, and the others
counted."""
MOST_DOMAINS_WIDE: Final = 20
LONGEST_BAR: Final = 24
SHORTEST_BAR: Final = 6
_MOST_COLUMNS: Final = 24
_MOST_NUMBERS: Final = 8
_LONGEST_NAME: Final = 44
_FULL, _EIGHTHS = "█", " ▏▎▍▌▋▊▉█"
_HEIGHTS: Final = "·▁▂▃▄▅▆▇█"
_ASCII_BAR: Final = "#"


class SkewView(ConsoleView):
    """Shows groups on one console."""

    def __init__(self, console: Console, *, wide: bool, with_namespace: bool, problems: bool = False) -> None:
        """Prepare; as ConsoleView.

        Args:
            console: where it is going to be printed.
            wide: whether to show everything.
            with_namespace: whether to show namespaces.
            problems: whether to say why all constraints that can't work can't, and what cures it; else of some.
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
    return Text(f"{signs}. {SKEW}: the skew and the maxSkew of the constraint.", style=FAINT)


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


def _short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each topology key, or the full key if two have the same last part."""
    distinct = set(keys)
    parts = [short_topology_key(key) for key in distinct]
    return {key: short if parts.count(short := short_topology_key(key)) == 1 else key for key in distinct}


def _scale_downs(group: GroupReport, reasons: Mapping[tuple[str, WorkloadReference], ScaleDownReason]) -> str:
    """Return how scale-downs of a group's workloads choose pods, each word once."""
    found = (reasons.get((group.namespace, workload)) for workload in group.workloads)
    return ", ".join(dict.fromkeys(str(reason) for reason in found if reason is not None))


class Domain(NamedTuple):
    """A line: one domain with its pods, or how many domains have that many."""

    name: str
    pods: int
    alike: int = 0
    """The number of domains that the line represents without naming them; 0 for a named one."""


def domains_shown(counts: Mapping[str, int], allowed: int, empty_domains: int, most: int) -> list[Domain]:
    """Return the lines for a group's domains.

    Args:
        counts: Pods per domain, with or without empty ones.
        allowed: The pods that a domain may have.
        empty_domains: The number of domains without pods.
        most: The most domains to name. If there are more, only those with too many pods are named.
    """
    occupied = {name: pods for name, pods in counts.items() if pods}
    if len(occupied) + empty_domains <= most and len(counts) == len(occupied) + empty_domains:
        return [Domain(name, pods) for name, pods in sorted(counts.items())]
    over = sorted((-pods, name) for name, pods in occupied.items() if pods > allowed)[:most]
    named = [Domain(name, -pods) for pods, name in over]
    alike = Counter(occupied[name] for name in occupied.keys() - {each.name for each in named})
    if empty_domains:
        alike[0] = empty_domains
    return [*named, *(Domain("", pods, domains) for pods, domains in sorted(alike.items(), reverse=True))]


def natural_width_of_domains(domains: Sequence[Domain]) -> int:
    """Return the columns that lines need."""
    names = [len(each.name) for each in domains if not each.alike]
    texts = [len(_alike(each)) for each in domains if each.alike]
    most = max((each.pods for each in domains if not each.alike), default=0)
    bars = min(max(names, default=0), _LONGEST_NAME) + len(f"{most:,}") + min(most, LONGEST_BAR) + 2 if names else 0
    return max([bars, *texts])


def draw(domains: Sequence[Domain], allowed: int, width: int, *, ascii_only: bool = False) -> Iterator[Text]:
    """Draw lines: name, pods, and a bar that highlights what is above `allowed`."""
    named = [each for each in domains if not each.alike]
    most = max((each.pods for each in named), default=0)
    digits = len(f"{most:,}")
    longest = max((len(each.name) for each in named), default=0)
    names = min(longest, _LONGEST_NAME, max(width - digits - 2 - min(most, LONGEST_BAR), width // 2))
    columns = min(LONGEST_BAR, max(SHORTEST_BAR, width - names - digits - 2))
    for each in domains:
        if each.alike:
            yield Text(_alike(each), style=FAINT)
            continue
        style = OVER if each.pods > allowed else "" if each.pods else FAINT
        line = Text(f"{cut(each.name, names, ascii_only=ascii_only):<{names}} ").append(
            f"{each.pods:>{digits},} ", style=style
        )
        yield line.append_text(bar(each.pods, allowed, most, columns, ascii_only=ascii_only))


def draw_in_line(group: GroupReport, *, ascii_only: bool = False) -> Text:
    """Draw a group in one line: small columns side by side, in the order of the domains' names, and the numbers."""
    if group.domains > _MOST_COLUMNS:
        domains = domains_shown(group.counts, group.pods, group.empty_domains, 0)
        return Text(", ".join(_alike(each) for each in domains))
    counts = list(group.counts.values())
    numbers = " ".join(map(str, counts)) if group.domains <= _MOST_NUMBERS else f"{min(counts)}-{max(counts)}"
    if ascii_only:
        return Text(numbers)
    text, most = Text(), max(*counts, 1)
    for count in counts:
        height = max(1, round(count * (len(_HEIGHTS) - 1) / most)) if count else 0
        over = count > group.minimum + group.max_skew
        text.append(_HEIGHTS[height], style=OVER if over else WITHIN if count else FAINT)
    return text.append(f"  {numbers}")


def bar(count: int, allowed: int, most: int, columns: int, *, ascii_only: bool = False) -> Text:
    """Return a horizontal bar with one column per pod, or scaled if `most` pods don't fit."""
    per_pod = 1.0 if most <= columns else columns / most
    # A column can't have two colors: the part within is rounded, and the part above takes the rest.
    within = round(min(count, allowed) * per_pod) if count > allowed else count * per_pod
    over = count * per_pod - within if count > allowed else 0.0
    if ascii_only:
        return Text(_ASCII_BAR * round(within), style=WITHIN).append(_ASCII_BAR * round(over), style=OVER)
    return Text(_blocks(within), style=WITHIN).append(_blocks(over), style=OVER)


def _blocks(length: float) -> str:
    whole, part = divmod(round(length * (len(_EIGHTHS) - 1)), len(_EIGHTHS) - 1)
    return _FULL * whole + (_EIGHTHS[part] if part else "")


def _alike(domain: Domain) -> str:
    return f"{domain.pods:,} in {number_of(domain.alike, 'domain')}"
