"""Progress of a build that takes minutes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final, Self, TextIO, TypeAlias

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY_SECONDS: Final = 15
WAITING_EVERY_SECONDS: Final = 60
INTRODUCTION: Final = "Building a Kubernetes control plane from Go modules: some minutes, and only this once."
WAITING: Final = "Another process is building the control plane; waiting for it …"


def choose_progress() -> BuildProgress:
    """Return a line on standard error that is updated, on a terminal, or else plain lines."""
    return TerminalProgress(Console(file=sys.stderr)) if sys.stderr.isatty() else PlainProgress(sys.stderr)


class PlainProgress:
    """Prints lines for a log: when the build starts, every 15 s, and when it ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = self._said = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def waiting(self) -> None:
        """Another process builds the same programs and this one waits; called repeatedly."""
        if self._is_time(WAITING_EVERY_SECONDS):  # the builder has more to tell
            self._say(WAITING)

    def building(self, names: Sequence[str]) -> None:
        """The build of these programs starts."""
        self._say(INTRODUCTION)
        self._begun = time.monotonic()
        self._say(f"Building {', '.join(names)} …")

    def working(self, packages: int, line: str) -> None:
        """The build continues; called at least once a second with how many lines Go has printed, and the last one."""
        if self._is_time(LINE_EVERY_SECONDS):
            self._say(f"  {time.monotonic() - self._begun:.0f} s, {packages} packages, last {line}")

    def built(self) -> None:
        """The programs are built."""
        self._say(f"Built in {time.monotonic() - self._begun:.0f} s.")

    def _is_time(self, every_seconds: float) -> bool:
        return time.monotonic() - self._said > every_seconds

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._stream.write(f"{text}\n")
        self._stream.flush()


class TerminalProgress:
    """Shows a line with the time taken and the last output of Go, and updates it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[said]}"),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def waiting(self) -> None:
        """See PlainProgress."""
        if self._task is None:
            self._task = self._progress.add_task(WAITING, total=None, said="")

    def building(self, names: Sequence[str]) -> None:
        """See PlainProgress."""
        if self._task is not None:
            self._progress.remove_task(self._task)  # the wait is over
        self._progress.console.print(f"{INTRODUCTION}\n{', '.join(names)}")
        self._task = self._progress.add_task("Building", total=1, said="")

    def working(self, packages: int, line: str) -> None:
        """See PlainProgress."""
        if self._task is not None:
            self._progress.update(self._task, said=f"{packages} packages, {line}")

    def built(self) -> None:
        """See PlainProgress."""
        if self._task is not None:
            self._progress.update(self._task, completed=1, said="")


BuildProgress: TypeAlias = PlainProgress | TerminalProgress
"""What is told how a build goes on; a build uses it as a context manager."""
