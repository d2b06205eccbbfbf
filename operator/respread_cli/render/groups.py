"""How spread groups are shown: signs and colors of their states, bars of their domains, and pods without a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from respread.api.reasons import number_of
from respread.planning.audit.finding import AuditState, When
from respread_cli.render.tables import FAINT, INEFFECTIVE, OVER, SOFT, WITHIN, GiveWay, cut, fitted_table
from respread_cli.report.plan_report import HelpedConstraint, MoveReport
from respread_cli.report.skew_report import GroupReport, PendingPods

_MOST_COUNTS: Final = 8
_MOST_NAMED: Final = 3
_GIVE_WAY: Final[GiveWay] = {"WHY": (60, 30), "NAMESPACE": (14, 9), "WORKLOAD": (22, 12)}
_SIGNS: Final[Mapping[AuditState, tuple[str, str]]] = {"Ineffective": ("○", "o"), "Unsatisfiable": ("⧗", "P")}
"""For a terminal, and in ASCII: P for Pending."""
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


class Domain(NamedTuple):
    """A line: one domain with its pods, or how many domains have that many."""

    name: str
    pods: int
    alike: int = 0
    """The number of domains that the line represents without naming them; 0 for a named one."""


def domains_shown(counts: Mapping[str, int], allowed: int, empty_domains: int, most: int) -> list[Domain]:
    """Return the lines for a group's domains.

    `counts` has the pods per domain, with or without empty ones. If there are more than `most` domains, only those with
    more pods than allowed are named.
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


def move_path(move: MoveReport, constraint: HelpedConstraint, *, ascii_only: bool) -> str:
    """Return where a move takes a pod, for a constraint that it helps: `zone-a → zone-b or zone-c`."""
    likely = "" if move.certain else " (likely)"
    return f"{constraint.from_domain} {'->' if ascii_only else '→'} {_listed(constraint.to_domains)}{likely}"


def _listed(domains: Sequence[str]) -> str:
    if len(domains) > _MOST_NAMED:
        return f"{len(domains):,} domains"
    return " or ".join(domains) if domains else "?"
