"""Where output goes, and in which format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click
import msgspec
import yaml
from rich.console import Console, RenderableType

from respread.cli.errors import CommandError
from respread.cli.options import OutputOptions

if TYPE_CHECKING:
    from respread.cli.render.jsonpath import JsonPathTemplate

PIPE_COLUMNS: Final = 160
"""The width of tables outside of a terminal: wide enough to avoid cuts, and still readable."""
WIDE_COLUMNS: Final = 140
WATCH_SECONDS: Final = 2.0
"""With --watch, the least time from one reading of the cluster to the next."""
_READING_SHARE: Final = 10
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
            console.print(part)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=True)  # the console has decided about colors


class Report(Protocol):
    """The result of a command: a struct, and what could not be read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence each."""

    def names(self) -> Iterable[str]:
        """Yield what `-o name` prints, as arguments for kubectl: `pod/web-1`."""


T = TypeVar("T")


def results(look: Callable[[], T], output: OutputOptions, report_of: Callable[[T], Report]) -> Iterator[T]:
    """Yield the result of a command, and with --watch again whenever it changes.

    Args:
        look: reads the cluster.
        output: the options of the command.
        report_of: returns the report of a result, a `msgspec.Struct` with a field `time`, which does not count.

    Raises:
        CommandError: of `look`, the first time; later it is printed.
    """
    started = monotonic()
    result = look()
    yield result
    shown = _without_time(report_of(result))
    while output.watch:
        # Reading takes a tenth of the time at most, so that a large cluster is not read without a break.
        sleep(max(WATCH_SECONDS, _READING_SHARE * (monotonic() - started)))
        started = monotonic()
        try:
            result = look()
        except CommandError as error:
            click.echo(f"Note: {error.message}", err=True)
            continue
        if (now := _without_time(report_of(result))) == shown:
            continue
        shown = now
        if sys.stdout.isatty():
            click.clear()
        elif output.format in {"table", "wide"}:
            click.echo()
        elif output.format == "yaml":
            click.echo("---")
        yield result
        sys.stdout.flush()


def _without_time(report: Report) -> dict[str, Any]:
    """Return the fields of a report, which is a struct though a protocol can't say so."""
    return {**msgspec.structs.asdict(report), "time": None}  # type: ignore[arg-type]  # see above


def show(
    report: Report,
    output: OutputOptions,
    render: Callable[[Console], Iterable[RenderableType]],
    *,
    page: Callable[[], msgspec.Struct] | None = None,
) -> None:
    """Print a report in the requested format.

    Documents contain its notes. With tables and names, they go to standard error.

    Args:
        report: a `msgspec.Struct`.
        output: the options of the command.
        render: creates the tables and texts for a console.
        page: creates what `-o html` shows, if that is more than the report.

    Raises:
        CommandError: the template of jsonpath does not fit the report.
    """
    if output.format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif output.format == "yaml":
        click.echo(yaml.safe_dump(_plain(report), sort_keys=False, allow_unicode=True), nl=False)
    elif output.template is not None:
        _show_template(report, output.template)
    elif output.format == "markdown":
        from respread.cli.render.markdown import markdown  # noqa: PLC0415 - rarely needed

        click.echo(markdown(render(Console(width=_UNCUT_COLUMNS)), report.notes), nl=False)
    elif output.format == "html":
        from respread.page.document import html_document  # noqa: PLC0415 - rarely needed

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


def _show_template(report: Report, template: JsonPathTemplate) -> None:
    from respread.cli.render.jsonpath import TemplateError  # noqa: PLC0415 - rarely needed

    try:
        click.echo(template.render(_plain(report)), nl=False)
    except TemplateError as error:
        raise CommandError(f"-o jsonpath: {error}.") from error
