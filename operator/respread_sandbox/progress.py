"""Progress of a build that takes minutes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final, Self

from rich.console import Console
from rich.status import Status

LINE_EVERY_SECONDS: Final = 15
WAITING_EVERY_SECONDS: Final = 60
INTRODUCTION: Final = "Building a Kubernetes control plane from Go modules: some minutes, and only this once."
WAITING: Final = "Another process is building the control plane; waiting for it …"


class BuildProgress:
    """Says how a build goes on: a line that is updated on a terminal, or else a line for a log every 15 s."""

    def __init__(self, console: Console | None = None) -> None:
        """Prepare; it begins with the context. Without a console, it is standard error."""
        self._console = console or Console(file=sys.stderr, soft_wrap=True)
        self._status = Status("", console=self._console) if self._console.is_terminal else None
        self._begun = self._said = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def waiting(self) -> None:
        """Another process builds the same programs and this one waits; called repeatedly."""
        self._show(WAITING, WAITING_EVERY_SECONDS)  # the builder has more to tell

    def building(self, names: Sequence[str]) -> None:
        """The build of these programs starts."""
        self._begun = time.monotonic()
        self._say(INTRODUCTION)
        self._say(f"Building {', '.join(names)} …")

    def working(self, packages: int, line: str) -> None:
        """The build continues; called at least once a second with how many lines Go has printed, and the last one."""
        self._show(f"  {time.monotonic() - self._begun:.0f} s, {packages} packages, last {line}", LINE_EVERY_SECONDS)

    def built(self) -> None:
        """The programs are built."""
        self._say(f"Built in {time.monotonic() - self._begun:.0f} s.")

    def _show(self, text: str, every_seconds: float) -> None:
        if self._status is not None:
            self._status.update(text.strip())
            self._status.start()
        elif time.monotonic() - self._said > every_seconds:
            self._say(text)

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._console.print(text, markup=False, highlight=False)
