"""`respread advise`: constraints for workloads that nothing keeps spread."""

from __future__ import annotations

from typing import Final

import click

from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example, scheduler_option
from respread.scheduling.configuration import SchedulerConfiguration, of_version
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread_cli.completion import live_values
from respread_cli.options import cluster_options, namespace_options, output_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.read.reading import read_for_plan
from respread_cli.render.advice_text import advice_text
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.watching import show_results
from respread_cli.report.advice_report import AdviceReport, Preset, advice_report

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

    report = show_results(look, output, lambda found: Shown(found, lambda _: advice_text(found)))
    ctx.exit(output.code(violated=bool(report.workloads)))
