"""`respread simulate`: what scaling workloads and losing or adding nodes would do to the spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NoReturn

import click
import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from respread.api.reasons import listed, number_of
from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli import live_values
from respread_cli.options import planning_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.formats import OutputOptions
from respread_cli.render.groups import counts_shown, mark, style_of, workloads
from respread_cli.render.output import Shown
from respread_cli.render.tables import FAINT, OVER, SOFT, WITHIN, ConsoleView, GiveWay, fitted_table
from respread_cli.render.watching import show_results
from respread_cli.report.domain_loss import (
    Damage,
    DomainLoss,
    DomainLossReport,
    NamespaceLoss,
    WorkloadLoss,
    loss_metrics,
)
from respread_cli.report.planned import PlanningOptions, pace_in_words, plan_cluster_of
from respread_cli.report.simulate_changes import Typed
from respread_cli.report.simulate_report import (
    GroupAfter,
    OutcomeReport,
    PodReport,
    ScaledReport,
    SimulatedGroup,
    SimulationReport,
    Simulator,
)
from respread_cli.report.skew_report import GroupReport, short_topology_key
from respread_cli.report.target import check_namespace
from respread_cli.report.what_if import Cancellation

EXAMPLES: Final = (
    Example("What a scale-down would leave", "simulate --scale deploy/web=4 -n shop"),
    Example("What the loss of a zone would do", "simulate --remove-domain zone=zone-c"),
    Example("What the loss of each zone in turn would do, the worst first", "simulate --each-domain zone"),
    Example("The same of node pools, as a report for auditors", "simulate --each-domain karpenter.sh/nodepool -o html"),
    Example("How long the spread takes after a zone was away", "simulate --restore-domain zone=zone-c"),
    Example("Whether two more nodes would help", "simulate --add-nodes 2,like=node-a1 --scale deploy/web=12"),
    Example("Fail a pipeline if a drain would leave a constraint violated", "simulate --drain node-a1 --exit-code"),
)
_MOST_PODS: Final = 5
_GIVE_WAY: Final[GiveWay] = {"WHY": (60, 14), "NAMESPACE": (14, 9), "WORKLOAD": (22, 12), "PODS PER DOMAIN": (40, 16)}
_MOST_WORKLOADS: Final = 20
_MOST_NAMESPACES: Final = 10
_TO_THE_RIGHT: Final = ("PODS", "AT ONCE", "THEN", "MISSING")
_WORDS: Final = {
    Damage.GONE: "no pod left",
    Damage.OUTAGE: "none for a time",
    Damage.MISSING: "fewer pods",
    Damage.UNHARMED: "all back",
}


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.option(
    "--scale",
    metavar="WORKLOAD=N",
    shell_complete=live_values.workloads,
    multiple=True,
    help="Scale deploy/web to 4 pods: deploy/web=4, or with its namespace shop/deploy/web=4.",
)
@click.option("--drain", metavar="NODE", multiple=True, shell_complete=live_values.nodes, help="Drain a node.")
@click.option(
    "--cordon",
    metavar="NODE",
    multiple=True,
    shell_complete=live_values.nodes,
    help="Cordon a node: its pods stay, and it gets no new pods.",
)
@click.option("--remove-domain", metavar="KEY=VALUE", multiple=True, help="Lose all nodes of a domain at once: zone=c.")
@click.option(
    "--restore-domain",
    metavar="KEY=VALUE",
    multiple=True,
    help="Lose all nodes of a domain at once, and get them back without their pods.",
)
@click.option(
    "--add-nodes",
    metavar="N[,like=NODE]",
    multiple=True,
    help="Add copies of a node; without like=NODE, of one node of each zone in turn.",
)
@click.option(
    "--each-domain",
    metavar="KEY",
    shell_complete=live_values.topology_keys,
    help="Lose each domain of a node label in turn, such as zone, and say what each workload would lose.",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="With --each-domain: print respread_domain_loss_pods in the text format of Prometheus.",
)
@planning_options
@click.pass_context
def simulate(
    ctx: click.Context,
    *,
    scale: tuple[str, ...],
    drain: tuple[str, ...],
    cordon: tuple[str, ...],
    remove_domain: tuple[str, ...],
    restore_domain: tuple[str, ...],
    add_nodes: tuple[str, ...],
    each_domain: str | None,
    metrics: bool,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show what changes would do to the spread, without making them.

    A scale-down deletes the pods that its controller would delete, with and without Respread's pod deletion costs. New
    pods, and pods that lose their node, go to the feasible nodes that the scheduler prefers. This is likely, not
    certain. The changes are applied one after another: add nodes, remove domains, lose and restore domains, cordon and
    drain nodes, scale workloads. Nothing is changed in the cluster. How long the evictions take is an estimate.

    With --each-domain, the loss of each zone, node pool or other domain is simulated, one at a time: how many pods of
    each workload are left at once, how many find no node, and what PodDisruptionBudgets say.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated afterwards, or if a
    workload loses pods for good.
    """
    typed = Typed(
        scale=scale,
        drain=drain,
        remove_domain=remove_domain,
        restore_domain=restore_domain,
        add_nodes=add_nodes,
        cordon=cordon,
    )
    if each_domain is not None:
        if not typed.nothing:
            raise click.UsageError(
                "--each-domain simulates the loss of each domain alone: leave out the other changes."
            )
        _lose_each(ctx, each_domain, namespace, planning, cluster, output, metrics=metrics)
    if metrics:
        raise click.UsageError("--metrics needs --each-domain KEY.")
    if typed.nothing:
        raise click.UsageError(
            "say what to simulate: --scale deploy/web=4, --drain, --cordon, --remove-domain, --restore-domain, "
            "--each-domain or --add-nodes."
        )

    def look() -> SimulationReport:
        planned = plan_cluster_of(cluster, planning, namespace, all_owners=True)
        report = Simulator(planned.predictor).simulate(planned, typed, namespace, Cancellation())
        check_namespace(namespace, planned.view.snapshot)
        return report

    view = partial(SimulationView, wide=output.wide, with_namespace=namespace is None)
    report = show_results(look, output, lambda found: Shown(found, lambda console: view(console).render(found)))
    ctx.exit(output.code(violated=report.harms))


def _lose_each(
    ctx: click.Context,
    key: str,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
    *,
    metrics: bool,
) -> NoReturn:
    """Show what the loss of each domain of a topology key would do, and exit."""

    def look() -> DomainLossReport:
        planned = plan_cluster_of(cluster, planning, namespace)
        return Simulator(planned.predictor).lose_each(planned, key, namespace, Cancellation())

    if metrics:
        if output.format != "table" or output.watch:
            raise click.UsageError("--metrics is a format of its own: leave out -o and --watch.")
        report = look()
        click.echo(loss_metrics(report), nl=False)
    else:
        view = partial(DomainLossView, wide=output.wide, with_namespace=namespace is None)
        report = show_results(look, output, lambda found: Shown(found, lambda console: view(console).render(found)))
    ctx.exit(output.code(violated=any(each.missing for each in report.domains)))


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
        for at, (label, state, certain) in enumerate(_states(simulated, report)):
            first = at == 0
            key = group.topology_key if self._wide else short_topology_key(group.topology_key)
            as_then = msgspec.structs.replace(group, violated=state.violated or (loses and not first))
            yield {
                **({"NAMESPACE": Text(group.namespace if first else "")} if self._with_namespace else {}),
                "WORKLOAD": Text(workloads(group) if first else ""),
                "KEY": Text(key if first else ""),
                "WHEN": Text(label, style=FAINT if first else ""),
                "": Text(mark(as_then, ascii_only=self._ascii), style=style_of(as_then)),
                "SKEW/MAX": Text(f"{state.skew}/{group.max_skew}", style=style_of(as_then) if state.violated else ""),
                "PODS PER DOMAIN": Text(f"{self._counts(state.counts)}{'' if certain else ' (likely)'}"),
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


def _states(
    simulated: SimulatedGroup, report: SimulationReport
) -> Iterator[tuple[str, GroupReport | GroupAfter, bool]]:
    """Yield the lines of a group: when, its state then, and whether that is certain."""
    yield "now", simulated.group, True
    with_costs, without_costs = simulated.with_costs, simulated.without_costs
    if with_costs is None or without_costs is None or report.with_costs is None or report.without_costs is None:
        yield "then", simulated.as_it_is, _is_certain(report.as_it_is)
        return
    yield "without costs", without_costs, _is_certain(report.without_costs)
    yield "with costs", with_costs, _is_certain(report.with_costs)
    if simulated.as_it_is not in (without_costs, with_costs):
        yield "as things are", simulated.as_it_is, _is_certain(report.as_it_is)


def _is_certain(outcome: OutcomeReport) -> bool:
    return outcome.certain and all(pod.certain for pod in outcome.placed)


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
