"""Where output goes, and in which format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import click
import msgspec
import yaml
from rich.console import Console, RenderableType

from respread.program.command_line import CommandError
from respread_cli.render.formats import OutputOptions

if TYPE_CHECKING:
    from respread_cli.render.jsonpath import JsonPathTemplate

PIPE_COLUMNS: Final = 160
"""The width of tables outside of a terminal: wide enough to avoid cuts, and still readable."""
WIDE_COLUMNS: Final = 140
TABLES: Final = ("table", "wide")
"""The formats for people at a terminal."""
_UNCUT_COLUMNS: Final = 10_000


def make_console(*, no_color: bool, wide: bool = False) -> Console:
    """Return a console for tables on standard output.

    Args:
        no_color: Without colors, whatever the terminal supports.
        wide: Wider than a narrow terminal, as with kubectl's -o wide.
    """
    console = Console(no_color=True if no_color else None, highlight=False, emoji=False, markup=False)
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    if wide:
        console.width = max(console.width, WIDE_COLUMNS)
    return console


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print tables and texts without trailing blanks."""
    with console.capture() as capture:
        for part in parts:
            console.print(part, crop=False)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=True)  # the console has decided about colors


class Report(Protocol):
    """The result of a command: a struct, and what could not be read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence each."""

    def names(self) -> Iterable[str]:
        """Yield what `-o name` prints, as arguments for kubectl: `pod/web-1`."""


class Shown(NamedTuple):
    """What is shown of the result of a command."""

    report: Report
    """A `msgspec.Struct`."""
    render: Callable[[Console], Iterable[RenderableType]]
    """Creates the tables and texts for a console."""
    page: Callable[[], msgspec.Struct] | None = None
    """Creates what `-o html` shows, if that is more than the report."""


def show(shown: Shown, output: OutputOptions) -> None:
    """Print a result in the requested format.

    Documents contain its notes. With tables and names, they go to standard error.

    Raises:
        CommandError: the template of jsonpath does not fit the report.
    """
    report, render, page = shown
    if output.format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif output.format == "yaml":
        click.echo(yaml.safe_dump(_plain(report), sort_keys=False, allow_unicode=True), nl=False)
    elif output.template is not None:
        _show_template(report, output.template, whole_lines=output.watch)
    elif output.format == "markdown":
        from respread_cli.render.markdown import markdown  # noqa: PLC0415 - rarely needed

        click.echo(markdown(render(Console(width=_UNCUT_COLUMNS)), report.notes), nl=False)
    elif output.format == "html":
        from respread_cli.page.document import html_document  # noqa: PLC0415 - rarely needed

        content = msgspec.json.encode(report if page is None else page())
        click.echo(html_document(f"Respread: {type(report).__name__}", content), nl=False)
    else:
        for note in report.notes:
            click.echo(f"Note: {note}", err=True)
        if output.format == "name":
            for name in dict.fromkeys(report.names()):
                click.echo(name)
            return
        console = make_console(no_color=output.no_color, wide=output.wide)
        print_parts(console, render(console))


def _plain(report: Report) -> Any:
    """Return a report as in JSON, where times are strings."""
    return msgspec.json.decode(msgspec.json.encode(report))


def _show_template(report: Report, template: JsonPathTemplate, *, whole_lines: bool) -> None:
    from respread_cli.render.jsonpath import TemplateError  # noqa: PLC0415 - rarely needed

    try:
        text = template.render(_plain(report))
    except TemplateError as error:
        raise CommandError(f"-o jsonpath: {error}.") from error
    click.echo(text, nl=whole_lines and not text.endswith("\n"))
