"""`respread completion`: scripts that make shells complete commands, options and what is in the cluster."""

from __future__ import annotations

from typing import Final

import click

from respread.program.command_line import CommandWithExamples, Example
from respread_cli.completion.scripts import SHELLS, script

EXAMPLES: Final = (
    Example("For bash", "completion bash > ~/.local/share/bash-completion/completions/respread"),
    Example("For zsh, into a folder of $fpath", "completion zsh > ~/.zfunc/_respread"),
    Example("For fish", "completion fish > ~/.config/fish/completions/respread.fish"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings={"max_content_width": 100})
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options, and the namespaces, contexts, workloads, nodes and policies of the cluster or
    snapshot that the line selects. For `kubectl respread`, kubectl's own completion is enough: it asks the program
    kubectl_complete-respread, which is installed beside respread.
    """
    click.echo(script(shell, ctx.find_root().command), nl=False)
