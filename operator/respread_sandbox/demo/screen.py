"""The output of the demo: updated on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from respread_cli.render.tables import FAINT, OVER, WITHIN, is_ascii_only
from respread_sandbox.demo.ending import Pair, Picture
from respread_sandbox.demo.world import MAX_SKEW, NAME_PREFIX

HEIGHTS: Final = " ▁▂▃▄▅▆▇█"
CELL_GAP: Final = 2
SIDE_GAP: Final = 4
BARS_FROM_COLUMNS: Final = 100
"""Narrower terminals show only numbers."""
LINE_EVERY_SECONDS: Final = 2.0
FRAMES_PER_SECOND: Final = 8


class Screen:
    """Prints steps, and pictures of the pods while they change."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._ascii = is_ascii_only(console)
        self._bars = not self._ascii and console.width >= BARS_FROM_COLUMNS
        self._tick, self.cross = ("ok", "!") if self._ascii else ("✓", "✗")

    def say(self, text: str = "") -> None:
        """Print a line, with `[bold]` and other markup."""
        self.console.print(self._shown(text), markup=True, soft_wrap=not self.console.is_terminal)

    @contextmanager
    def step(self, doing: str) -> Iterator[DemoStep]:
        """Show an action in progress, and then its result and duration."""
        step = DemoStep()
        begun = time.monotonic()
        if not self.console.is_terminal:
            self.say(f"… {doing}")
        with self.console.status(self._shown(doing)) if self.console.is_terminal else nullcontext():
            yield step
        self.say(f"[{WITHIN}]{self._tick}[/] {step.result or doing} [{FAINT}]({time.monotonic() - begun:.1f} s)[/]")

    def pause(self, text: str) -> None:
        """Wait until the user presses Enter, if there is a user."""
        if self.console.is_terminal and sys.stdin.isatty():
            with suppress(EOFError):
                self.console.input(self._shown(text))

    def live(self) -> LivePicture:
        """Return an object that shows pictures as they change."""
        return LivePicture(self)

    def picture(self, pair: Pair, line: str) -> RenderableType:
        """Draw every Deployment's pods per zone, with both sides beside each other, and a line below."""
        side_width = (self.console.width - SIDE_GAP) // 2
        sides = Table.grid(padding=(0, SIDE_GAP, 0, 0))
        for _ in pair:
            sides.add_column(width=side_width)
        sides.add_row(*(Text(title, style="bold") for title in ("Without prevention", "With prevention")))
        sides.add_row(*(self._grid(picture, side_width) for picture in pair))
        sides.add_row(*(_judgement(picture) for picture in pair))
        return Group(sides, Text.from_markup(self._shown(line)))

    def _shown(self, text: str) -> str:
        """Return a text that the console can show."""
        return text.replace("…", "...") if self._ascii else text

    def _grid(self, picture: Picture, columns: int) -> Table:
        cells = [self._cell(name, list(zones.values())) for name, zones in picture.per_zone.items()]
        width = max(cell.cell_len for cell in cells)
        across = max(1, (columns + CELL_GAP) // (width + CELL_GAP))
        down = -(-len(cells) // across)
        table = Table.grid(padding=(0, CELL_GAP, 0, 0))
        for _ in range(across):
            table.add_column(no_wrap=True, width=width)
        for row in range(down):
            table.add_row(*(cells[position] for position in range(row, len(cells), down)))
        return table

    def _cell(self, name: str, counts: Sequence[int]) -> Text:
        violated = max(counts) - min(counts) > MAX_SKEW
        style = OVER if violated else WITHIN
        drawn = "".join(HEIGHTS[min(count * 2, len(HEIGHTS) - 1)] for count in counts) + " " if self._bars else ""
        text = Text(name.removeprefix(NAME_PREFIX), style=FAINT).append(self.cross if violated else " ", style=style)
        return text.append(f"{drawn}{' '.join(map(str, counts))}", style=style)


class DemoStep:
    """An action in progress."""

    result: str = ""
    """Its result in a line; by default the action itself."""


class LivePicture:
    """Shows changing pictures: updated on a terminal, and a line from time to time elsewhere."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live: Live | None = None
        self._begun = time.monotonic()
        self._said_at = float("-inf")
        self._said = ""
        self._last: RenderableType | None = None

    def __enter__(self) -> Self:
        console = self._screen.console
        if console.is_terminal:
            self._live = Live(console=console, refresh_per_second=FRAMES_PER_SECOND)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._last is not None:
            self._screen.console.print(self._last)

    def show(self, pair: Pair, line: str) -> None:
        """Show a picture with a line below it."""
        drawn = self._screen.picture(pair, line)
        if self._live is not None:
            self._live.update(drawn)
            return
        self._last = drawn
        now = time.monotonic()
        if line != self._said and now - self._said_at >= LINE_EVERY_SECONDS:
            self._said, self._said_at = line, now
            self._screen.say(f"  {now - self._begun:5.1f} s  {line}")


def _judgement(picture: Picture) -> Text:
    violated, of = len(picture.violated_zones), len(picture.per_zone)
    text = f"{violated} of {of} violated, worst skew {picture.worst_skew}"
    return Text(text, style=OVER if violated else WITHIN)
