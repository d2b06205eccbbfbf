"""Waiting for things, and looking at processes that a test did not start itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for yet (a zombie) does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until_dead(pids: Iterable[int], *, seconds: float = 30) -> None:
    """Wait until none of the processes runs any more."""
    left = set(pids)

    def all_dead() -> bool:
        left.difference_update([pid for pid in left if not is_alive(pid)])
        return not left

    wait_until(all_dead, lambda: f"processes {left} to end", seconds=seconds)


def wait_until(condition: Callable[[], bool], what: str | Callable[[], str], *, seconds: float = 120) -> None:
    """Wait for something to become true; it is asked five times a second, and less often where that takes long.

    Not more often: each asking takes the API server's time as well, and several tests wait at a time.
    """
    deadline = time.monotonic() + seconds
    while True:
        asked_at = time.monotonic()
        if condition():
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(min(1.0, max(0.2, 4 * (time.monotonic() - asked_at))))
