"""A simulation as a table: each group before and after, whether workloads are protected, and the evictions needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from respread.api.words import number_of
from respread_cli.render.domain_bars import FAINT, OVER, SOFT, WITHIN, ConsoleView
from respread_cli.render.domain_loss_table import losses_said, losses_table
from respread_cli.render.fitted_table import GiveWay, fitted_table
from respread_cli.render.skew_table import counts_shown, mark, style_of, workloads
from respread_cli.report.planned import pace_in_words
from respread_cli.report.simulate_report import (
    GroupAfter,
    OutcomeReport,
    PodReport,
    ScaledReport,
    SimulatedGroup,
    SimulationReport,
)
from respread_cli.report.skew_report import short_topology_key

_MOST_PODS: Final = 5
_GIVE_WAY: Final[GiveWay] = {"NAMESPACE": (14, 9), "WORKLOAD": (22, 12), "PODS PER DOMAIN": (40, 16)}


class _State(NamedTuple):
    """A line of a group: its state before or after."""

    label: str
    counts: dict[str, int]
    skew: int
    violated: bool
    certain: bool


class SimulationView(ConsoleView):
    """Shows simulations on one console."""

    def render(self, report: SimulationReport) -> Iterator[RenderableType]:
        """Return the parts of the output, one below the other."""
        if report.groups:
            yield self._table(report)
        else:
            yield Text("No constraint has other pods in any of its domains afterwards.")
        yield Text()
        for node, what in (
            *((name, "added") for name in report.added_nodes),
            *((name, "removed") for name in report.removed_nodes),
            *((name, "lost and back") for name in report.restored_nodes),
            *((name, "drained") for name in report.drained_nodes),
        ):
            yield Text(f"Node {node}: {what}.")
        for scaled in report.scaled:
            yield self._scaled(scaled)
        yield from self._pods(report.as_it_is)
        if report.losses:
            yield Text()
            yield Text(losses_said(report.losses), style="bold")
            yield losses_table(report.losses, width=self._width, ascii_only=self._ascii, wide=self._wide)
        yield from (Text(f"{each}.", style=SOFT) for each in report.quotas)
        yield Text()
        yield from _needed(report)

    # Groups

    def _table(self, report: SimulationReport) -> Table:
        rows = [row for group in report.groups for row in self._rows(group, report)]
        return fitted_table(rows, _GIVE_WAY, self._width, ascii_only=self._ascii)

    def _rows(self, simulated: SimulatedGroup, report: SimulationReport) -> Iterator[dict[str, Text]]:
        group = simulated.group
        gone = {(each.namespace, each.workload) for each in report.losses if each.missing}
        loses = any((group.namespace, workload) in gone for workload in group.workloads)
        for at, state in enumerate(_states(simulated, report)):
            first = at == 0
            key = group.topology_key if self._wide else short_topology_key(group.topology_key)
            as_then = msgspec.structs.replace(group, violated=state.violated or (loses and not first))
            yield {
                **({"NAMESPACE": Text(group.namespace if first else "")} if self._with_namespace else {}),
                "WORKLOAD": Text(workloads(group) if first else ""),
                "KEY": Text(key if first else ""),
                "WHEN": Text(state.label, style=FAINT if first else ""),
                "": Text(mark(as_then, ascii_only=self._ascii), style=style_of(as_then)),
                "SKEW/MAX": Text(f"{state.skew}/{group.max_skew}", style=style_of(as_then) if state.violated else ""),
                "PODS PER DOMAIN": Text(f"{self._counts(state.counts)}{'' if state.certain else ' (likely)'}"),
            }

    def _counts(self, counts: dict[str, int]) -> str:
        if self._wide:
            return ", ".join(f"{domain} {pods}" for domain, pods in counts.items())
        return counts_shown(counts)

    # What else there is to be said

    def _scaled(self, scaled: ScaledReport) -> Text:
        where = f" in {scaled.namespace}" if self._with_namespace else ""
        text = Text(f"{scaled.workload}{where}", style="bold")
        text.append(f": {scaled.pods} pods to {scaled.replicas}. ", style="not bold")
        if scaled.replicas < scaled.pods:
            word = "Protected" if scaled.protected else f"Not protected ({scaled.reason})"
            text.append(f"{word}: ", style=f"not bold {WITHIN if scaled.protected else SOFT}")
            text.append(scaled.message, style="not bold")
        return text

    def _pods(self, outcome: OutcomeReport) -> Iterator[Text]:
        unplaced = tuple(pod for pod in outcome.unplaced if not pod.was_pending)
        before = tuple(pod for pod in outcome.unplaced if pod.was_pending)
        if before:
            yield Text(f"Pending before, and still: {number_of(len(before), 'pod')}.", style=FAINT)
        for pods, said in ((outcome.placed, _landing), (unplaced, _pending), (outcome.lost, _lost)):
            shown = pods if self._wide else pods[:_MOST_PODS]
            for pod in shown:
                yield Text(said(pod))
            if len(pods) > len(shown):
                yield Text(
                    f"… and {len(pods) - len(shown)} more (-o wide)" if not self._ascii else "... and more (-o wide)"
                )


def _landing(pod: PodReport) -> str:
    return f"Pod {pod.pod} goes to {pod.node}{', or another node of the same domains' if pod.certain else ' (likely)'}."


def _pending(pod: PodReport) -> str:
    return f"Pod {pod.pod} stays Pending: {pod.message}."


def _lost(pod: PodReport) -> str:
    return f"Pod {pod.pod} is deleted: no controller recreates it."


def _states(simulated: SimulatedGroup, report: SimulationReport) -> Iterator[_State]:
    group = simulated.group
    yield _State("now", group.counts, group.skew, group.violated, certain=True)
    with_costs, without_costs = simulated.with_costs, simulated.without_costs
    if with_costs is None or without_costs is None or report.with_costs is None or report.without_costs is None:
        yield _state("then", simulated.as_it_is, report.as_it_is)
        return
    yield _state("without costs", without_costs, report.without_costs)
    yield _state("with costs", with_costs, report.with_costs)
    if simulated.as_it_is not in (without_costs, with_costs):
        yield _state("as things are", simulated.as_it_is, report.as_it_is)


def _state(label: str, after: GroupAfter, outcome: OutcomeReport) -> _State:
    certain = outcome.certain and all(pod.certain for pod in outcome.placed)
    return _State(label, after.counts, after.skew, after.violated, certain)


def _needed(report: SimulationReport) -> Iterator[Text]:
    """Return how many evictions would be needed, as a sentence."""
    as_it_is, with_costs, without_costs = report.as_it_is, report.with_costs, report.without_costs
    if with_costs is not None and without_costs is not None:
        yield Text(
            f"Evictions needed afterwards: {without_costs.evictions} without pod deletion costs, "
            f"{with_costs.evictions} with them. As things are: {as_it_is.evictions}.",
            style=OVER if as_it_is.violated else WITHIN,
        )
        return
    pace = f" They take {pace_in_words(as_it_is.pace)}." if as_it_is.evictions else ""
    style = OVER if report.harms else WITHIN
    yield Text(f"Evictions needed afterwards: {as_it_is.evictions}.{pace}", style=style)
