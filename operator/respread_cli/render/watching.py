"""`--watch`: the result of a command again whenever it changes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Protocol, Self, TypeVar

import click
import msgspec

from respread.program.command_line import CommandError
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import TABLES, Report, Shown, show
from respread_cli.terminal import ended_by_signals

WATCH_SECONDS: Final = 2.0
"""The least time from one reading of the cluster to the next."""
_READING_SHARE: Final = 5
"""Reading takes a fifth of the time at most, so that a large cluster is not read without a break."""
_INTERRUPTED: Final = 128 + signal.SIGINT

T = TypeVar("T")


def show_results(look: Callable[[], T], output: OutputOptions, shown: Callable[[T], Shown]) -> T:
    """Show the result of a command and return it; with --watch, show each that differs from the one before.

    Args:
        look: reads the cluster.
        output: the options of the command.
        shown: returns what is shown of a result.

    Raises:
        CommandError: of `look`; once something is shown, it is shown as well.
        click.exceptions.Exit: Ctrl-C ended --watch.
    """
    started = time.monotonic()
    result = look()
    if not output.watch:
        show(shown(result), output)
        return result
    try:
        with ended_by_signals(), _display(output) as display:
            _watch(look, display, shown, result, time.monotonic() - started)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_INTERRUPTED) from None


class WatchDisplay(Protocol):
    """Where results are shown one after another."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, shown: Shown) -> None:
        """Show a result that differs from the one before."""

    def confirm(self) -> None:
        """Say that the cluster was read, and is as shown."""

    def fail(self, message: str) -> None:
        """Say why the cluster can't be read."""

    def wait(self, seconds: float) -> None:
        """Sleep, while what is shown stays well."""


def _display(output: OutputOptions) -> WatchDisplay:
    if not sys.stdout.isatty() or output.format not in TABLES:
        return _Appended(output)
    from respread_cli.render.watch_screen import WatchScreen  # noqa: PLC0415 - rarely needed

    return WatchScreen(output)


def _watch(
    look: Callable[[], T], display: WatchDisplay, shown: Callable[[T], Shown], result: T, reading_seconds: float
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
    """Standard output, one result below the other."""

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
