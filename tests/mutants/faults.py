"""Plausible faults that were thought up, or that once no test caught. Each must be caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.change import Change

_LIST: Final = Path(__file__).with_suffix(".txt")
"""Under the name of each fault, its file, and the code that it replaces (`-`) by other code (`+`)."""


class Fault(NamedTuple):
    """A plausible fault."""

    name: str
    file: str
    """Relative to `operator/respread`."""
    right: str
    """The code to replace, which occurs exactly once."""
    wrong: str

    def change(self, code: str) -> Change:
        """Return the change to the code of the file.

        Raises:
            LookupError: what it replaces is not there, or more than once, because the code has changed.
        """
        if (times := code.count(self.right)) != 1:
            raise LookupError(f"{self.file} has this {times} times instead of once: {self.right!r}")
        start = code.index(self.right)
        return Change(self.name, self.file, start, start + len(self.right), self.wrong)


def _listed() -> Iterator[Fault]:
    for text in _LIST.read_text(encoding="utf-8").split("\n\n"):
        name, file, *lines = text.splitlines()
        right, wrong = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        yield Fault(name.removeprefix("# "), file, right, wrong)


FAULTS: Final = tuple(_listed())
