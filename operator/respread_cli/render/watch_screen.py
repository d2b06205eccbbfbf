"""A terminal while `--watch` is at work: the last result, and below it when it was read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final, Self

from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from respread_cli.render.domain_bars import FAINT, OVER
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown, make_console, show

_DRAWN_EVERY_SECONDS: Final = 0.5
"""How soon it follows a change of the terminal's size."""


class WatchScreen:
    """The terminal's alternate screen, as of less and top. It is drawn over, and so does not flicker.

    What does not fit is counted. At the end, the whole result stays on the terminal.
    """

    def __init__(self, output: OutputOptions) -> None:
        """Prepare; the screen begins with the context."""
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
