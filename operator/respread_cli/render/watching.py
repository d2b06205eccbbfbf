"""`--watch`: the result of a command again whenever it changes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Self, TypeVar

import click
import msgspec
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

from respread.program.command_line import CommandError
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import TABLES, Report, Shown, ended_by_signals, make_console, show
from respread_cli.render.tables import FAINT, OVER

WATCH_SECONDS: Final = 2.0
"""The least time from one reading of the cluster to the next."""
_READING_SHARE: Final = 5
"""Reading takes a fifth of the time at most, so that a large cluster is not read without a break."""
_DRAWN_EVERY_SECONDS: Final = 0.5
"""How soon the screen follows a change of the terminal's size."""
_INTERRUPTED: Final = 128 + signal.SIGINT

T = TypeVar("T")


def show_results(look: Callable[[], T], output: OutputOptions, shown: Callable[[T], Shown]) -> T:
    """Show the result of a command and return it; with --watch, show each that differs from the one before.

    `look` reads the cluster, and `shown` returns what is shown of a result.

    Raises:
        CommandError: of `look`; once something is shown, it is shown as well.
        click.exceptions.Exit: Ctrl-C ended --watch.
    """
    started = time.monotonic()
    result = look()
    if not output.watch:
        show(shown(result), output)
        return result
    kind = WatchScreen if sys.stdout.isatty() and output.format in TABLES else _Appended
    try:
        with ended_by_signals(), kind(output) as display:
            _watch(look, display, shown, result, time.monotonic() - started)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_INTERRUPTED) from None


def _watch(
    look: Callable[[], T],
    display: WatchScreen | _Appended,
    shown: Callable[[T], Shown],
    result: T,
    reading_seconds: float,
) -> NoReturn:
    answer = shown(result)
    content = _content(answer.report)
    display.show(answer)
    while True:
        display.wait(max(WATCH_SECONDS, _READING_SHARE * reading_seconds))
        started = time.monotonic()
        try:
            answer = shown(look())
        except CommandError as error:
            display.fail(error.message)
        else:
            before, content = content, _content(answer.report)
            if content == before:
                display.confirm()
            else:
                display.show(answer)
        reading_seconds = time.monotonic() - started


def _content(report: Report) -> Any:
    """Return a report without the times at which the cluster was read."""
    return _without_times(msgspec.to_builtins(report, str_keys=True))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(each) for name, each in value.items() if name != "time"}
    if isinstance(value, list | tuple):
        return [_without_times(each) for each in value]
    return value


class _Appended:
    """Standard output, one result below the other, with the methods of WatchScreen."""

    def __init__(self, output: OutputOptions) -> None:
        self._output = output
        self._begun = False
        self._failure: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be put back."""

    def show(self, shown: Shown) -> None:
        output = self._output
        if self._begun and output.format == "yaml":
            click.echo("---")
        elif self._begun and output.format in {*TABLES, "markdown"}:
            click.echo()
        if output.format in TABLES:
            click.echo(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        self._begun, self._failure = True, None
        show(shown, output)

    def confirm(self) -> None:
        self._failure = None

    def fail(self, message: str) -> None:
        if message != self._failure:
            self._failure = message
            click.echo(f"Note: {message}", err=True)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class WatchScreen:
    """The terminal's alternate screen, as of less and top. It is drawn over, and so does not flicker.

    What does not fit is counted. At the end, the whole result stays on the terminal.
    """

    def __init__(self, output: OutputOptions) -> None:
        """Prepare; the screen begins with the context."""
        from rich.live import Live  # noqa: PLC0415 - rarely needed

        self._output = output
        self._shown: Shown | None = None
        self._changed_at = self._read_at = ""
        self._failure = ""
        self._live = Live(
            get_renderable=lambda: self,
            console=make_console(no_color=output.no_color),
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._shown is not None:
            show(self._shown, self._output)

    def show(self, shown: Shown) -> None:
        """Show a result that differs from the one before."""
        self._shown = shown
        self._changed_at = _now()
        self.confirm()

    def confirm(self) -> None:
        """Say that the cluster was read, and is as shown."""
        self._read_at, self._failure = _now(), ""
        self._live.refresh()

    def fail(self, message: str) -> None:
        """Say why the cluster can't be read."""
        self._failure = message
        self._live.refresh()

    def wait(self, seconds: float) -> None:
        """Sleep, and meanwhile follow the terminal's size."""
        until = time.monotonic() + seconds
        size = self._live.console.size
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _DRAWN_EVERY_SECONDS))
            if size != self._live.console.size:
                size = self._live.console.size
                self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Draw as many lines as fit, and below them when they were read."""
        width, height = options.max_width, options.height or console.height
        options = options.update(height=None)
        lines, status = self._lines(console, options), console.render_lines(self._status(0), options)
        room = max(0, height - len(status))
        if len(lines) > room:  # to say so may take one line more
            room = max(0, height - len(console.render_lines(self._status(len(lines)), options)))
            status = console.render_lines(self._status(len(lines) - room), options)
        drawn = [Segment.adjust_line_length(line, width) for line in lines[:room]]
        drawn += [[Segment(" " * width)]] * (room - len(drawn))
        for number, line in enumerate([*drawn, *status]):
            if number:
                yield Segment.line()
            yield from line

    def _lines(self, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
        """Return the lines of the result, as wide as the terminal: what is beside it could not be scrolled to."""
        if self._shown is None:
            return []
        parts = [
            *(Text(f"Note: {note}", style=FAINT) for note in self._shown.report.notes),
            *self._shown.render(console),
        ]
        return [line for part in parts for line in console.render_lines(part, options, pad=False)]

    def _status(self, hidden: int) -> Text:
        more = f"{hidden} more {'line does' if hidden == 1 else 'lines do'} not fit. " if hidden else ""
        if self._failure:
            return Text(f"{more}As of {self._read_at}: {self._failure}", style=OVER)
        return Text(f"{more}Read at {self._read_at}, last change at {self._changed_at}. Ctrl-C ends.", style=FAINT)


def _now() -> str:
    """Return the time of day where the user is."""
    return f"{datetime.now().astimezone():%H:%M:%S}"
