"""Figures beside their targets, as benchmarks of one operator print them."""

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

    def render(self) -> str:
        """The line, with the target and whether it is met."""
        line = f"  {self.what:<44} {self.value:>10,.3f} {self.unit:<6}"
        if self.target is None:
            return line.rstrip()
        met = self.value <= self.target if self.at_most else self.value >= self.target
        return f"{line} {'≤' if self.at_most else '≥'} {self.target:<8,g} {'ok' if met else 'MISSED'}"


def check(holds: bool, otherwise: str) -> None:
    """End with a message unless it holds: figures of something else would be worth nothing."""
    if not holds:
        raise SystemExit(otherwise)


def tell(line: str) -> None:
    """Say how far it is, where it does not disturb the figures."""
    print(line, file=sys.stderr, flush=True)


def parser_for(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a module's docstring as it is."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def print_rows(title: str, rows: Iterable[Row]) -> None:
    """Print a title, and a line for each figure."""
    print(title)
    for row in rows:
        print(row.render())


def measured(measure: Callable[[Callable[[str], None]], Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    """Return what is measured on an event loop as the operator's."""
    return uvloop.run(measure(tell))
