"""`-o markdown`: the tables and texts of the other output, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~])")
_LINE_BREAK: Final = "<br>"


def markdown(parts: Iterable[RenderableType], notes: Iterable[str] = ()) -> str:
    """Return parts of the output as a document in GitHub's Markdown.

    Args:
        parts: what a view renders for a console of any width: tables, texts, and both of them indented.
        notes: sentences for the user, which precede them.
    """
    blocks = [f"> {escaped(note)}" for note in notes]
    blocks += ["\n".join(_lines(part)) for part in parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escaped(text: str) -> str:
    """Return a text escaped for Markdown."""
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
    text = escaped(part.plain if isinstance(part, Text) else str(part)).strip()
    if not text:
        return ""
    text = f"**{text}**" if bold else text
    return text.replace("\n", _LINE_BREAK)
