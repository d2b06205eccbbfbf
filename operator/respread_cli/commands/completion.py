"""`respread completion`: scripts that make shells complete lines, and completions as kubectl reads them.

click completes commands, options and choices; `live_values.py` adds what is in the cluster.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from respread.program.command_line import CommandWithExamples, Example

SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
VARIABLE: Final = "_RESPREAD_COMPLETE"
"""The variable with which the scripts request completions; click derives it from the program's name."""

# Of cobra (ShellCompDirective), which kubectl is made with.
_DEFAULT: Final = 0
_NO_FILES: Final = 4
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
    complete = SHELLS[shell](ctx.find_root().command, {}, "respread", VARIABLE)
    click.echo(ShellComplete.source(complete), nl=False)  # bash's own runs bash to check its version


def cobra_lines(command: click.Command, arguments: list[str]) -> list[str]:
    """Return completions as programs made with cobra print them: values with descriptions, and a directive.

    `arguments` is what is typed after the program's name; the last one is to be completed, and may be empty.
    """
    *before, incomplete = arguments or [""]
    found = ShellComplete(command, {}, "respread", VARIABLE).get_completions(before, incomplete)
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in found if each.type == "plain"]
    files = any(each.type in {"file", "dir"} for each in found)
    return [*lines, f":{_DEFAULT if files else _NO_FILES}"]
