"""`respread lint`: the mistakes in policies, without a cluster."""

from __future__ import annotations

from typing import Final

import click

from respread.program.command_line import CommandWithExamples, Example
from respread_cli.options import policy_files_option
from respread_cli.read.policy_files import check_policies

MISTAKES: Final = 1
"""The exit code if there are mistakes."""
EXAMPLES: Final = (
    Example("The policies of a file", "lint -f policy.yaml"),
    Example("The policies of several files, for example in a pipeline", "lint -f shop.yaml -f payments.yaml"),
    Example("What Helm would install; objects of other kinds are skipped", "lint -f - < rendered.yaml"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings={"max_content_width": 100})
@policy_files_option(required=True, help="A YAML or JSON file with one or more policies; - is standard input.")
@click.pass_context
def lint(ctx: click.Context, *, filenames: tuple[str, ...]) -> None:
    """Check policies in files, without a cluster.

    It names all mistakes at once, each with file, document and field: those that the API server would reject, and
    those that it can't detect, such as a time zone that does not exist. It can't check whether a PriorityClass
    exists. Objects of other kinds are skipped.

    Exit code: 0 if there is no mistake, 1 if there is one, 2 for an error.
    """
    if filenames.count("-") > 1:
        raise click.UsageError("standard input can be read only once.")
    found = check_policies(filenames, default_namespace="default", only_policies=False)
    mistakes = list(found.mistakes)
    if not found.policies and not mistakes:
        mistakes.append(f"{', '.join(filenames)} holds no policy.")
    for mistake in mistakes:
        click.echo(mistake)
    parts = [_count(len(found.policies), "policy", "policies"), _count(len(mistakes), "mistake", "mistakes")]
    if found.others:
        parts.append(f"{_count(found.others, 'object of another kind', 'objects of other kinds')} skipped")
    click.echo(f"{', '.join(parts)}.", err=True)
    ctx.exit(MISTAKES if mistakes else 0)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
