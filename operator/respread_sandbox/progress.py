"""Showing a person that a build of minutes goes on."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

LINE_EVERY_SECONDS: Final = 15
WAITING_EVERY_SECONDS: Final = 60
INTRODUCTION: Final = "Building a Kubernetes control plane from Go modules: some minutes, and only this once."
WAITING: Final = "Another process is building the control plane; waiting for it …"


class BuildProgress(Protocol):
    """What a build tells while it goes on; entered before the first word, left after the last."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def waiting(self) -> None:
        """Another process builds the same; this one waits for it. Told again and again."""

    def building(self, name: str, number: int, total: int) -> None:
        """A program is begun: the number-th of total."""

    def working(self, packages: int, line: str) -> None:
        """The build still goes on, told at least once a second: so many lines has Go said, and this was the last."""

    def built(self) -> None:
        """The program that was begun is there."""


def choose_progress(stream: TextIO | None = None) -> BuildProgress:
    """A living line on a terminal, plain lines elsewhere; on standard error unless told."""
    stream = stream or sys.stderr
    return TerminalProgress(Console(file=stream)) if stream.isatty() else PlainProgress(stream)


class PlainProgress:
    """Lines for a log: one when a program is begun, one every 15 s, one when it is there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._doing = ""
        self._begun = self._said = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.flush()

    def waiting(self) -> None:
        """See BuildProgress."""
        if self._is_time(WAITING_EVERY_SECONDS):  # the builder has more to tell
            self._say(WAITING)

    def building(self, name: str, number: int, total: int) -> None:
        """See BuildProgress."""
        if number == 1:
            self._say(INTRODUCTION)
        self._doing = name
        self._begun = time.monotonic()
        self._say(f"Building {name} ({number} of {total}) …")

    def working(self, packages: int, line: str) -> None:
        """See BuildProgress."""
        if self._is_time(LINE_EVERY_SECONDS):
            self._say(f"  {self._doing}: {time.monotonic() - self._begun:.0f} s, {packages} steps, last {line}")

    def built(self) -> None:
        """See BuildProgress."""
        self._say(f"Built {self._doing} in {time.monotonic() - self._begun:.0f} s.")

    def _is_time(self, every_seconds: float) -> bool:
        return time.monotonic() - self._said > every_seconds

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._stream.write(f"{text}\n")
        self._stream.flush()


class TerminalProgress:
    """A line for each program, with the time it has taken and what Go does; the last one lives."""

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def waiting(self) -> None:
        """See BuildProgress."""
        if self._task is None:
            self._task = self._progress.add_task(WAITING, total=None, said="")

    def building(self, name: str, number: int, total: int) -> None:
        """See BuildProgress."""
        if self._task is not None and number == 1:
            self._progress.remove_task(self._task)  # the wait is over
        if number == 1:
            self._progress.console.print(INTRODUCTION)
        self._task = self._progress.add_task(f"{name} ({number} of {total})", total=1, said="")

    def working(self, packages: int, line: str) -> None:
        """See BuildProgress."""
        if self._task is not None:
            self._progress.update(self._task, said=f"{packages} steps, {line}")

    def built(self) -> None:
        """See BuildProgress."""
        if self._task is not None:
            self._progress.update(self._task, completed=1, said="")
