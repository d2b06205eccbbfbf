"""Where output goes, and in which format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import click
import msgspec
import yaml
from rich.console import Console, RenderableType

from respread.cli.options import OutputOptions

PIPE_COLUMNS: Final = 160
"""The width of tables that no terminal shows: as good as never cut off, and still to be read."""
WIDE_COLUMNS: Final = 140


def make_console(*, no_color: bool, wide: bool = False) -> Console:
    """Return a console for tables on standard output.

    Args:
        no_color: Without colors, whatever the terminal can do.
        wide: Wider than the terminal if that is narrow, as kubectl's -o wide is.
    """
    console = Console(no_color=True if no_color else None, highlight=False, emoji=False, markup=False)
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    if wide:
        console.width = max(console.width, WIDE_COLUMNS)
    return console


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print tables and texts without the blanks that fill their lines."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=True)  # the console has decided about colors


class Report(Protocol):
    """What a command found out: a struct, and what could not be read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence each."""


def show(report: Report, output: OutputOptions, render: Callable[[Console], Iterable[RenderableType]]) -> None:
    """Print a report in the format that is asked for.

    JSON and YAML have its notes in it; beside tables they go to standard error.

    Args:
        report: a `msgspec.Struct`.
        output: the options of the command.
        render: makes the tables and texts that a person reads, for a console.
    """
    if output.format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif output.format == "yaml":
        plain = msgspec.json.decode(msgspec.json.encode(report))  # as in JSON, times are strings
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        for note in report.notes:
            click.echo(f"Note: {note}", err=True)
        console = make_console(no_color=output.no_color, wide=output.wide)
        print_parts(console, render(console))
