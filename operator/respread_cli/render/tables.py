"""What a console can show: colors, characters, and tables of its width, whose columns give way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

WITHIN: Final = "green"
OVER: Final = "red"
SOFT: Final = "yellow"
INEFFECTIVE: Final = "magenta"
FAINT: Final = "bright_black"
GAP: Final = 2
"""Blanks between columns."""
_SEPARATORS: Final = " -/."
GiveWay = Mapping[str, tuple[int, int]]
"""The columns that give way, the first one first: all to the first width, then to the second."""


def is_ascii_only(console: Console) -> bool:
    """Whether a console can't show blocks."""
    return not (console.encoding or "").lower().startswith("utf")


class ConsoleView:
    """Shows results on one console."""

    def __init__(self, console: Console, *, wide: bool, with_namespace: bool) -> None:
        self._width = console.width
        self._ascii = is_ascii_only(console)
        self._wide = wide
        self._with_namespace = with_namespace


def fitted_table(
    rows: Sequence[Mapping[str, Text]],
    give_way: GiveWay,
    width: int,
    *,
    ascii_only: bool,
    to_the_right: Collection[str] = (),
) -> Table:
    """Return a table whose cells take several lines where there is no room, so that nothing is cut.

    There is at least one row. Each has its cells by their headings; cells may have several lines. Columns in
    `to_the_right` are aligned to the right.
    """
    natural = _natural_widths(rows)
    widths = column_widths(natural, give_way, width)
    table = table_of(widths, ascii_only=ascii_only, to_the_right=to_the_right)
    for row in rows:
        table.add_row(*(_folded_lines(row[heading], widths[heading]) for heading in natural))
    return table


def keeps_whole(rows: Sequence[Mapping[str, Text]], give_way: GiveWay, width: int, headings: Collection[str]) -> bool:
    """Return whether the cells of some columns stay in one line in a table of this width."""
    natural = _natural_widths(rows)
    widths = column_widths(natural, give_way, width)
    return sum(widths.values()) + GAP * (len(widths) - 1) <= width and all(
        widths[each] == natural[each] for each in headings if each in natural
    )


def _natural_widths(rows: Sequence[Mapping[str, Text]]) -> dict[str, int]:
    return {heading: natural_width(heading, (row[heading].plain for row in rows)) for heading in rows[0]}


def table_of(widths: Mapping[str, int], *, ascii_only: bool, to_the_right: Collection[str] = ()) -> Table:
    """Return a table without rows whose columns have these widths, by their headings."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for heading, width in widths.items():
        shown = heading if ascii_only else heading.replace("->", "→")
        table.add_column(shown, no_wrap=True, width=width, justify="right" if heading in to_the_right else "left")
    return table


def column_widths(natural: Mapping[str, int], give_way: GiveWay, width: int) -> dict[str, int]:
    """Share out the columns of a terminal.

    `natural` is what each column would like to have, by heading, and `width` that of the console.
    """
    widths = dict(natural)
    available = width - GAP * (len(widths) - 1)
    for floors in ({heading: floor[step] for heading, floor in give_way.items()} for step in (0, 1)):
        for heading in (each for each in floors if each in widths):
            excess = sum(widths.values()) - available
            if excess <= 0:
                return widths
            widths[heading] = max(min(floors[heading], widths[heading]), widths[heading] - excess)
    return widths


def natural_width(heading: str, cells: Iterable[str]) -> int:
    """Return how wide a column of these cells would like to be."""
    return max([len(heading), *(len(line) for cell in cells for line in cell.split("\n"))])


def cut(text: str, width: int, *, ascii_only: bool = False) -> str:
    """Return a text as it fits, with a sign where it had to be cut."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}{'~' if ascii_only else '…'}"


def folded(text: str, width: int) -> str:
    """Return a text in lines that fit: broken after a blank or a separator of names where there is one."""
    lines: list[str] = []
    for line in text.split("\n"):
        left = line
        while len(left) > width > 0:
            at = max((left.rfind(each, 0, width) + 1 for each in _SEPARATORS), default=0) or width
            lines.append(left[:at].rstrip())
            left = left[at:]
        lines.append(left)
    return "\n".join(lines)


def _folded_lines(text: Text, width: int) -> Text:
    if all(len(line) <= width for line in text.plain.split("\n")):
        return text
    return Text(folded(text.plain, width), style=text.style)
