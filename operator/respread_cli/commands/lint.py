"""`respread lint`: what is wrong with manifests, before they are in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from respread.program.command_line import CommandError, CommandWithExamples, Example, files
from respread_cli.lint.rules import RULES, LintLevel
from respread_cli.options import policy_files_option

if TYPE_CHECKING:
    from respread.cluster.state import ClusterSnapshot
    from respread_cli.lint.linting import LintReport

FINDINGS: Final = 1
"""The exit code if there are findings."""
EXAMPLES: Final = (
    Example("The manifests in a folder", "lint manifests/"),
    Example("What Helm would install", "lint - < rendered.yaml"),
    Example("With the nodes and budgets of the cluster", "lint --snapshot cluster.json.gz deploy.yaml"),
    Example("Fail on warnings too", "lint --fail-on warning deploy.yaml"),
    Example("For GitHub's code scanning", "lint -o sarif manifests/ > respread.sarif"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings={"max_content_width": 100})
@click.argument("places", metavar="[FILE]...", nargs=-1, shell_complete=files)
@policy_files_option(help="The same as FILE, as kubectl has it.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="default",
    show_default=True,
    help="The namespace of objects without one.",
)
@click.option(
    "--snapshot",
    metavar="FILE",
    shell_complete=files,
    help="The cluster, from `respread snapshot`: its topology keys, zones and PodDisruptionBudgets.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="The least level for exit code 1.",
)
@click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="Levels of rules, and ignored objects.  [default: .respread-lint.yaml]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "sarif", "junit"]),
    default="text",
    show_default=True,
    help="docs/cli.md describes the fields of json.",
)
@click.option("--rules", "list_rules", is_flag=True, help="List the rules.")
@click.pass_context
def lint(
    ctx: click.Context,
    *,
    places: tuple[str, ...],
    filenames: tuple[str, ...],
    namespace: str,
    snapshot: str | None,
    fail_on: LintLevel,
    config: str | None,
    output: str,
    list_rules: bool,
) -> None:
    """Check manifests and policies in files, without a cluster.

    FILE is a YAML or JSON file, a folder, or - for standard input, such as the output of `helm template`. Objects other
    than workloads, PodDisruptionBudgets and policies are skipped.

    Exit code: 0 if nothing is found, 1 for findings of the level --fail-on, 2 if it can't be run.
    """
    if list_rules:
        for rule in RULES.values():
            click.echo(f"{rule.name:<24}{rule.level:<9}{rule.summary}")
        return
    if not (wanted := (*places, *filenames)):
        raise click.UsageError("name a file, a folder, or - for standard input.")
    if (*wanted, snapshot).count("-") > 1:
        raise click.UsageError("standard input can be read only once.")
    from respread_cli.lint.linting import lint_manifests  # noqa: PLC0415 - not for --rules and --help
    from respread_cli.lint.manifests import read_manifests  # noqa: PLC0415 - as above
    from respread_cli.lint.settings import read_settings  # noqa: PLC0415 - as above

    settings = read_settings(config)
    cluster = None if snapshot is None else _cluster(snapshot)
    manifests = read_manifests(wanted, default_namespace=namespace)
    report = lint_manifests(manifests, settings, default_namespace=namespace, cluster=cluster)
    _show(report, output, fail_on)
    if report.missing:
        raise CommandError("\n  ".join(["not everything can be checked:", *report.missing]))
    ctx.exit(FINDINGS if report.errors or (fail_on == "warning" and report.warnings) else 0)


def _cluster(file: str) -> ClusterSnapshot:
    from respread_cli.read.snapshot_file import read_snapshot  # noqa: PLC0415 - rarely needed

    view = read_snapshot(file)
    for note in view.notes:
        click.echo(f"Note: {note}", err=True)
    return view.snapshot


def _show(report: LintReport, output: str, fail_on: LintLevel) -> None:
    from respread_cli.render import lint_output  # noqa: PLC0415 - not for --rules and --help

    if output == "json":
        click.echo(lint_output.lint_json(report))
    elif output == "sarif":
        click.echo(lint_output.lint_sarif(report))
    elif output == "junit":
        click.echo(lint_output.lint_junit(report, fail_on))
    else:
        for line in lint_output.lint_text(report):
            click.echo(line)
    for note in report.notes:
        click.echo(f"Note: {note}", err=True)
    click.echo(lint_output.lint_summary(report), err=True)
