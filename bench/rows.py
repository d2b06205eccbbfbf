"""Figures of a bench and their targets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

import uvloop


class Row(NamedTuple):
    """One line of the result."""

    what: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the target is met, if there is one."""
        if self.target is None:
            return True
        return self.value <= self.target if self.at_most else self.value >= self.target

    def render(self) -> str:
        """Return the line, with the target and whether it is met."""
        line = f"  {self.what:<44} {self.value:>10,.3f} {self.unit:<6}"
        if self.target is None:
            return line.rstrip()
        return f"{line} {'≤' if self.at_most else '≥'} {self.target:<8,g} {'ok' if self.is_met else 'MISSED'}"


def check(holds: bool, otherwise: str) -> None:
    """End with a message unless a condition holds, because the figures would be worthless."""
    if not holds:
        raise SystemExit(otherwise)


def tell(line: str) -> None:
    """Print the progress to standard error, apart from the figures."""
    print(line, file=sys.stderr, flush=True)


def parser_for(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a module's docstring unchanged."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def print_rows(title: str, rows: Iterable[Row]) -> None:
    """Print a title, and a line for each figure."""
    print(title)
    for row in rows:
        print(row.render())


def measured(measure: Callable[[Callable[[str], None]], Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    """Return the result of a measurement on an event loop like the operator's."""
    return uvloop.run(measure(tell))
