"""`respread migrate`: converts descheduler's policies to policies of Respread."""

from __future__ import annotations

from typing import Final

import click

from respread.program.command_line import CommandError, CommandWithExamples, Example, files
from respread_cli.migrate.inputs import find_policies, nothing_found
from respread_cli.migrate.policies import migrate as migrate_policies
from respread_cli.migrate.reading import Reading
from respread_cli.migrate.render import render

_STANDARD_INPUT = ("-",)


EXAMPLES: Final = (
    Example("From the policy that descheduler reads", "migrate descheduler-policy.yaml > policies.yaml"),
    Example("From the installed Helm release", "migrate values.yaml cronjob.yaml"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings={"max_content_width": 100})
@click.argument("files", metavar="[FILE]...", nargs=-1, shell_complete=files)
def migrate(files: tuple[str, ...]) -> None:
    """Write policies from the settings of descheduler.

    FILE contains a DeschedulerPolicy (v1alpha1 or v1alpha2), a ConfigMap with one, or the values of descheduler's Helm
    chart. CronJobs and Deployments beside it define when descheduler runs. Without FILE, or with -, the command reads
    standard input. It writes the policies to standard output, in mode DryRun, with a comment for every setting without
    a counterpart. It does not contact a cluster.

    Exit code: 0 if the policies are written, 2 for an error.
    """
    files = files or _STANDARD_INPUT
    reading = Reading()
    found = find_policies(files, reading)
    migrated = migrate_policies(found, reading)
    if reading.mistakes:
        mistakes = list(dict.fromkeys(reading.mistakes))
        raise CommandError("\n  ".join([f"{len(mistakes)} mistakes:", *mistakes]) if len(mistakes) > 1 else mistakes[0])
    if not found:
        raise CommandError(nothing_found(files))
    click.echo(render(migrated), nl=False)
    drafts = [draft for each in migrated for draft in each.drafts]
    remarks = [remark for each in migrated for remark in each.remarks]
    remarks += [remark for draft in drafts for remark in draft.remarks]
    cautions = sum(remark.caution for remark in remarks)
    policies = f"{_count(len(drafts), 'policy', 'policies')} in mode DryRun" if drafts else "No policy comes of it"
    said = f"{policies}, {_count(len(remarks), 'comment', 'comments')}"
    click.echo(
        f"{said} on lines without a counterpart{f', {cautions} of them marked CAUTION' * bool(cautions)}.", err=True
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
