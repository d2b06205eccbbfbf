"""The completion scripts for shells, and completions as kubectl reads them.

click completes commands, options and choices; `live_values.py` adds what is in the cluster.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
VARIABLE: Final = "_RESPREAD_COMPLETE"
"""The variable with which the scripts request completions; click derives it from the program's name."""

# Of cobra (ShellCompDirective), which kubectl is made with.
_DEFAULT: Final = 0
_NO_FILES: Final = 4


def script(shell: str, command: click.Command) -> str:
    """Return the script that makes a shell complete `respread`."""
    complete = SHELLS[shell](command, {}, "respread", VARIABLE)
    return ShellComplete.source(complete)  # bash's own runs bash to check its version


def cobra_lines(command: click.Command, arguments: list[str]) -> list[str]:
    """Return completions as programs made with cobra print them: values with descriptions, and a directive.

    Args:
        command: the program.
        arguments: what is typed after its name; the last one is to be completed, and may be empty.
    """
    *before, incomplete = arguments or [""]
    found = ShellComplete(command, {}, "respread", VARIABLE).get_completions(before, incomplete)
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in found if each.type == "plain"]
    files = any(each.type in {"file", "dir"} for each in found)
    return [*lines, f":{_DEFAULT if files else _NO_FILES}"]
