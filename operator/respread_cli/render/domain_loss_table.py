"""What workloads lose with their nodes as tables: the worst first, and the harmless in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from respread.api.words import listed, number_of
from respread_cli.render.domain_bars import FAINT, OVER, SOFT, WITHIN, ConsoleView
from respread_cli.render.fitted_table import GiveWay, fitted_table
from respread_cli.report.domain_loss import Damage, DomainLoss, DomainLossReport, NamespaceLoss, WorkloadLoss
from respread_cli.report.skew_report import short_topology_key

_MOST_WORKLOADS: Final = 20
_MOST_NAMESPACES: Final = 10
_GIVE_WAY: Final[GiveWay] = {"WHY": (60, 14), "NAMESPACE": (14, 9), "WORKLOAD": (22, 12)}
_TO_THE_RIGHT: Final = ("PODS", "AT ONCE", "THEN", "MISSING")
_WORDS: Final = {
    Damage.GONE: "no pod left",
    Damage.OUTAGE: "none for a time",
    Damage.MISSING: "fewer pods",
    Damage.UNHARMED: "all back",
}


class DomainLossView(ConsoleView):
    """Shows the loss of each domain on one console."""

    def render(self, report: DomainLossReport) -> Iterator[RenderableType]:
        """Return the parts of the output, one below the other."""
        key = short_topology_key(report.topology_key)
        for domain in report.domains:
            yield Text(f"{key}={domain.domain} lost: {_said(domain)}", style=OVER if domain.workloads else WITHIN)
            if domain.workloads:
                yield losses_table(domain.workloads, width=self._width, ascii_only=self._ascii, wide=self._wide)
            if domain.unharmed:
                yield Text(_unharmed(domain.unharmed, more=bool(domain.workloads)))
            yield from (Text(f"{each}.", style=SOFT) for each in domain.quotas)
            yield Text()
        if any(each.missing or each.outages for each in report.namespaces):
            yield Text("By namespace, in the domain whose loss is worst for it:", style="bold")
            yield self._namespaces(report.namespaces)
            yield Text()
        if report.pending:
            pods = sum(each.pods for each in report.pending)
            named = listed([f"{each.pods} of {each.workload} in {each.namespace}" for each in report.pending])
            yield Text(f"Pending already, and not counted: {number_of(pods, 'pod')} ({named}).", style=FAINT)

    def _namespaces(self, losses: Sequence[NamespaceLoss]) -> Table:
        shown = losses if self._wide else losses[:_MOST_NAMESPACES]
        rows = [
            {
                "NAMESPACE": Text(each.namespace),
                "PODS": Text(str(each.pods)),
                "DOMAIN": Text(each.worst_domain),
                "MISSING": Text(str(each.missing), style=OVER if each.missing else ""),
                "NO POD LEFT": Text(number_of(each.gone, "workload") if each.gone else ""),
                "NONE FOR A TIME": Text(number_of(each.outages, "workload") if each.outages else ""),
            }
            for each in shown
            if each.missing or each.outages
        ]
        return fitted_table(rows, _GIVE_WAY, self._width, ascii_only=self._ascii, to_the_right=_TO_THE_RIGHT)


def losses_table(losses: Sequence[WorkloadLoss], *, width: int, ascii_only: bool, wide: bool) -> Table:
    """Return what workloads lose, one a row; with `wide` all of them, and what their budgets say."""
    shown = losses if wide else losses[:_MOST_WORKLOADS]
    rows = [
        {
            "": Text("x" if ascii_only else "✗", style=OVER if each.missing else SOFT),
            "NAMESPACE": Text(each.namespace),
            "WORKLOAD": Text(str(each.workload)),
            "DAMAGE": Text(_WORDS[each.damage], style=OVER if each.missing else SOFT),
            "PODS": Text(str(each.pods)),
            "AT ONCE": Text(str(each.left)),
            "THEN": Text(str(each.after)),
            "WHY": Text("\n".join(_why(each, wide=wide))),
        }
        for each in shown
    ]
    table = fitted_table(rows, _GIVE_WAY, 10_000 if wide else width, ascii_only=ascii_only, to_the_right=_TO_THE_RIGHT)
    if len(losses) > len(shown):
        table.add_row("", "", f"and {len(losses) - len(shown)} more", *("" for _ in range(5)))
    return table


def losses_said(losses: Sequence[WorkloadLoss]) -> str:
    """Return in a sentence how many workloads are harmed."""
    missing = sum(each.missing for each in losses)
    return f"{number_of(len(losses), 'workload')} harmed: {number_of(missing, 'pod')} would be missing afterwards."


def _said(domain: DomainLoss) -> str:
    lost = f"{number_of(domain.nodes, 'node')} with {number_of(domain.pods, 'pod')}"
    if not domain.workloads:
        return f"{lost}; no workload is harmed."
    outages = sum(each.left == 0 for each in domain.workloads)
    at_once = f"{number_of(outages, 'workload')} without any pod at once"
    if not domain.missing:
        return f"{lost}; all of them find another node, {at_once}."
    find_none = f"{number_of(domain.missing, 'pod')} find no node or are not created again"
    return f"{lost}; {find_none}{f', {at_once}' if outages else ''}."


def _unharmed(number: int, *, more: bool) -> str:
    keep = "keeps some pods and gets the others back" if number == 1 else "keep some pods and get the others back"
    return f"{number_of(number, 'more workload' if more else 'workload')} {keep}."


def _why(loss: WorkloadLoss, *, wide: bool) -> Iterator[str]:
    if loss.message:
        yield f"{loss.missing}: {loss.message}" if loss.missing != loss.pods else loss.message
    if wide or not loss.message:
        yield from loss.budgets
