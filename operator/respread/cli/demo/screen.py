"""What the demo shows: on a terminal it lives, elsewhere it is plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from respread.cli.demo.picture import Picture
from respread.cli.demo.world import MAX_SKEW
from respread.cli.domain_bars import FAINT, OVER, WITHIN, bar, is_ascii_only

HEIGHTS: Final = " ▁▂▃▄▅▆▇█"
CELL_GAP: Final = 3
LINE_EVERY_SECONDS: Final = 2.0
FRAMES_PER_SECOND: Final = 8


class Screen:
    """Prints steps, and pictures of the pods while they change."""

    def __init__(self, console: Console, *, most_pods: int) -> None:
        """Prepare.

        Args:
            console: Where to.
            most_pods: The most pods that all zones together will have.
        """
        self.console = console
        self._ascii = is_ascii_only(console)
        self._most_pods = most_pods

    def say(self, text: str = "") -> None:
        """Print a line; `[bold]` and other markup counts."""
        self.console.print(text, markup=True, soft_wrap=not self.console.is_terminal)

    @contextmanager
    def step(self, doing: str) -> Iterator[Step]:
        """Show that something is being done, and when it is, what came of it and how long it took."""
        step = Step()
        begun = time.monotonic()
        if not self.console.is_terminal:
            self.say(f"… {doing}")
        with self.console.status(doing) if self.console.is_terminal else nullcontext():
            yield step
        tick = "ok" if self._ascii else "✓"
        self.say(f"[{WITHIN}]{tick}[/] {step.result or doing} [{FAINT}]({time.monotonic() - begun:.1f} s)[/]")

    def live(self) -> LivePicture:
        """Return what shows pictures as they come."""
        return LivePicture(self)

    def picture(self, picture: Picture, line: str) -> RenderableType:
        """Draw every Deployment's pods per zone, all zones, and a line below."""
        return Group(self._grid(picture), Text(), *self._zones(picture), Text.from_markup(line))

    def _grid(self, picture: Picture) -> Table:
        names = list(picture.per_zone)
        cells = [self._cell(name, list(picture.per_zone[name].values())) for name in names]
        width = max(cell.cell_len for cell in cells)
        across = max(1, (self.console.width + CELL_GAP) // (width + CELL_GAP))
        down = -(-len(cells) // across)
        table = Table.grid(padding=(0, CELL_GAP, 0, 0))
        for _ in range(across):
            table.add_column(no_wrap=True, width=width)
        for row in range(down):
            table.add_row(*(cells[position] for position in range(row, len(cells), down)))
        return table

    def _cell(self, name: str, counts: Sequence[int]) -> Text:
        style = OVER if max(counts) - min(counts) > MAX_SKEW else WITHIN
        numbers = " ".join(map(str, counts))
        drawn = "" if self._ascii else "".join(_column(count) for count in counts) + " "
        return Text(f"{name} ").append(f"{drawn}{numbers}", style=style)

    def _zones(self, picture: Picture) -> Iterator[Text]:
        totals = picture.zone_totals
        columns = max(10, min(60, self.console.width - 20))
        most = max(self._most_pods // max(len(totals), 1), *totals.values(), 1)
        for zone, pods in totals.items():
            yield Text(f"{zone} {pods:>4} ").append_text(bar(pods, most, most, columns, ascii_only=self._ascii))


class Step:
    """Something being done."""

    result: str = ""
    """What came of it, in a line; by default what was being done."""


class LivePicture:
    """Shows pictures as they come: one that lives on a terminal, a line every now and then elsewhere."""

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

    def show(self, picture: Picture, line: str) -> None:
        """Show a picture with a line below it."""
        drawn = self._screen.picture(picture, line)
        if self._live is not None:
            self._live.update(drawn)
            return
        self._last = drawn
        now = time.monotonic()
        totals = " ".join(map(str, picture.zone_totals.values()))
        said = f"{line}; pods per zone {totals}"
        if said != self._said and now - self._said_at >= LINE_EVERY_SECONDS:
            self._said, self._said_at = said, now
            self._screen.say(f"  {now - self._begun:5.1f} s  {said}")


def _column(count: int) -> str:
    return HEIGHTS[min(count * 2, len(HEIGHTS) - 1)]
