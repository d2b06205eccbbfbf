"""How wide the columns of a table are when there is not room for all that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ColumnWidth(NamedTuple):
    """What a column would like to have, and what it can do with."""

    natural: int
    comfortable: int
    """All columns are brought down to this, in their order, before any goes on to its least."""
    least: int


def column_widths(wanted: Mapping[str, ColumnWidth], available: int) -> dict[str, int]:
    """Share out the columns of a terminal.

    Args:
        wanted: by heading, those that give way first coming first.
        available: what there is for all of them, without the blanks between them.
    """
    widths = {heading: each.natural for heading, each in wanted.items()}
    for floors in (
        {heading: each.comfortable for heading, each in wanted.items()},
        {heading: each.least for heading, each in wanted.items()},
    ):
        for heading, floor in floors.items():
            excess = sum(widths.values()) - available
            if excess <= 0:
                return widths
            widths[heading] = max(min(floor, widths[heading]), widths[heading] - excess)
    return widths


def natural_width(heading: str, cells: Iterable[str]) -> int:
    """Return how wide a column of these cells would like to be."""
    return max([len(heading), *(len(cell) for cell in cells)])


def cut(text: str, width: int, *, ascii_only: bool = False) -> str:
    """Return a text as it fits, with a sign where it had to be cut."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}{'~' if ascii_only else '…'}"
