"""`respread advise`: constraints for workloads that nothing keeps spread."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

import click
import msgspec
import yaml
from rich.console import RenderableType
from rich.text import Text

from respread.api.reasons import listed, number_of
from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example, scheduler_option
from respread.scheduling.configuration import SchedulerConfiguration, of_version
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread_cli import live_values
from respread_cli.options import cluster_options, namespace_options, output_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.read.reading import read_for_plan
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.watching import show_results
from respread_cli.report.advice_report import AdviceEntry, AdviceReport, Preset, advice_report
from respread_cli.report.planned import pace_in_words

_COMMAND_COLUMNS: Final = 74
_DOMAINS_SHOWN: Final = 6
EXAMPLES: Final = (
    Example("Every workload that is in one zone or on one node by chance", "advise"),
    Example("One workload, with a DoNotSchedule constraint", "advise web -n shop --preset hard"),
    Example("The workloads, for a script", "advise -o name"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument("workloads", metavar="[NAME]...", nargs=-1, shell_complete=live_values.workloads)
@namespace_options
@click.option(
    "--preset",
    type=click.Choice(["soft", "hard"]),
    default="soft",
    show_default=True,
    help="soft suggests ScheduleAnyway, hard DoNotSchedule.",
)
@click.option("--uneven", is_flag=True, help="Also workloads that are uneven over several zones.")
@scheduler_option
@cluster_options
@output_options
@click.pass_context
def advise(
    ctx: click.Context,
    *,
    workloads: tuple[str, ...],
    namespace: str | None,
    preset: Preset,
    uneven: bool,
    scheduler_configuration: SchedulerConfiguration,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Suggest constraints for workloads that nothing keeps spread.

    The output has the workloads without topology spread constraints whose pods are all in one zone or on one node by
    chance, with the constraint that suits each, its cost, and the command that sets it.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a workload is listed.
    """

    def look() -> AdviceReport:
        view = read_for_plan(cluster, with_policies=False)
        predictor = Predictor(ClusterView(), of_version(scheduler_configuration, view.server_version))
        return advice_report(view, predictor, preset=preset, namespace=namespace, workloads=workloads, uneven=uneven)

    report = show_results(look, output, lambda found: Shown(found, lambda _: _rendered(found)))
    ctx.exit(output.code(violated=bool(report.workloads)))


def _rendered(report: AdviceReport) -> Iterator[RenderableType]:
    """Yield a paragraph for each workload: where its pods are, the constraint, what it costs, and the command."""
    for each in report.workloads:
        yield Text(f"{each.namespace} {each.workload}", style="bold")
        yield Text(f"  {listed([f'{domain} {count}' for domain, count in each.counts.items()], _DOMAINS_SHOWN)}")
        yield Text(f"  {each.message}")
        if each.evictions:
            yield Text(f"  Within the default limits, evictions take {pace_in_words(each.pace)}.")
        yield Text()
        manifest = yaml.safe_dump({"topologySpreadConstraints": [each.constraint]}, sort_keys=False)
        yield Text("\n".join(f"    {line}" for line in manifest.splitlines()))
        yield Text()
        yield from _command(each)
        yield Text()
    yield Text(_summary(report))


def _command(each: AdviceEntry) -> Iterator[Text]:
    """Yield the command that applies the patch. Within quotes, the shell takes lines as they are."""
    yield Text(f"  kubectl patch {each.workload.full_name} -n {each.namespace} --type json -p '")
    patch = msgspec.json.format(msgspec.json.encode(each.patch), indent=0).decode()
    lines = wrap(patch, _COMMAND_COLUMNS, break_long_words=False, break_on_hyphens=False)
    yield Text("\n".join(f"    {line}" for line in lines) + "'")


def _summary(report: AdviceReport) -> str:
    looked = f"{number_of(report.looked_at, 'workload')} without constraints"
    if not report.workloads:
        return f"{looked}: none of them is in one zone or on one node by chance."
    return f"{looked}, {len(report.workloads)} of them with advice."
