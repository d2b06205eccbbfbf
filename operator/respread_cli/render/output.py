"""Where output goes, in which format, and what the terminal and its user do to a command meanwhile."""

from __future__ import annotations

import os
import re
import signal
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

import click
import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.program.command_line import CommandError
from respread_cli.render.formats import OutputOptions, TemplateError

PIPE_COLUMNS: Final = 160
"""The width of tables outside of a terminal: wide enough to avoid cuts, and still readable."""
WIDE_COLUMNS: Final = 140
TABLES: Final = ("table", "wide")
"""The formats for people at a terminal."""
_UNCUT_COLUMNS: Final = 10_000
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~])")
"""Characters that mean something in Markdown."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def make_console(*, no_color: bool, wide: bool = False) -> Console:
    """Return a console for tables on standard output.

    With `no_color`, it has no colors, whatever the terminal supports. `wide` is wider than a narrow terminal, as with
    kubectl's -o wide.
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
    """Returns the tables and texts for a console, one below the other."""
    page: Callable[[], msgspec.Struct] | None = None
    """Creates what `-o html` shows, if that is more than the report."""


def show(shown: Shown, output: OutputOptions) -> None:
    """Print a result in the requested format.

    Documents contain its notes. With tables and names, they go to standard error.

    Raises:
        CommandError: the template of jsonpath does not fit the report.
    """
    report, page = shown.report, shown.page
    if output.format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif output.format == "yaml":
        click.echo(yaml.safe_dump(_plain(report), sort_keys=False, allow_unicode=True), nl=False)
    elif output.template is not None:
        try:
            text = output.template.render(_plain(report))
        except TemplateError as error:
            raise CommandError(f"-o jsonpath: {error}.") from error
        click.echo(text, nl=output.watch and not text.endswith("\n"))
    elif output.format == "markdown":
        click.echo(markdown(shown.render(Console(width=_UNCUT_COLUMNS)), report.notes), nl=False)
    elif output.format == "html":
        from respread_cli.page import html_document  # noqa: PLC0415 - rarely needed

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
        print_parts(console, shown.render(console))


def _plain(report: Report) -> Any:
    """Return a report as in JSON, where times are strings."""
    return msgspec.json.decode(msgspec.json.encode(report))


def markdown(parts: Iterable[RenderableType], notes: Iterable[str] = ()) -> str:
    """Return parts of the output as a document in GitHub's Markdown.

    The parts are what a view renders for a console of any width: tables, texts, and both of them indented. Notes for
    the user precede them.
    """
    blocks = [f"> {_escaped(note)}" for note in notes]
    blocks += ["\n".join(_lines(part)) for part in parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _lines(part: RenderableType) -> Iterator[str]:
    if isinstance(part, Padding):
        yield from _lines(part.renderable)
    elif isinstance(part, Table):
        yield from _table(part)
    else:
        yield _inline(part, bold=isinstance(part, Text) and part.style == "bold" and not part.spans)


def _table(table: Table) -> Iterator[str]:
    columns = [[_inline(cell) for cell in column.cells] for column in table.columns]
    yield _row(_inline(column.header) for column in table.columns)
    yield _row("---:" if column.justify == "right" else "---" for column in table.columns)
    yield from (_row(cells) for cells in zip(*columns, strict=True))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _inline(part: RenderableType, *, bold: bool = False) -> str:
    text = _escaped(part.plain if isinstance(part, Text) else str(part)).strip()
    if not text:
        return ""
    text = f"**{text}**" if bold else text
    return text.replace("\n", "<br>")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit, with the exit code that shells give a signal, when one comes within the context.

    It may come up inside the code of a lock or a thread, which may then fail in another way.
    """
    ended_by: list[int] = []

    def end(number: int, _frame: types.FrameType | None) -> None:
        ended_by.append(number)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    except Exception:
        if ended_by:
            raise SystemExit(128 + ended_by[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_screen() -> bool:
    """Return whether a browser has a window to open. Over SSH, it would be one in the terminal."""
    return sys.platform in {"darwin", "win32"} or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
