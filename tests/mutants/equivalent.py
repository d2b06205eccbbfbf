"""Changes that no test can catch, because they change nothing that anybody observes, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LIST: Final = Path(__file__).with_suffix(".txt")
"""Under each reason, a line with the file, function (`-` for none) and name of each change."""


def _listed() -> Iterator[tuple[tuple[str, str, str], str]]:
    reason = ""
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            file, function, name = line.split(maxsplit=2)
            yield (file, function.removeprefix("-"), name), reason


EQUIVALENT: Final = dict(_listed())
"""The reason by the file, function and name of each change."""
