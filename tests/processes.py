"""Functions that wait for conditions, and for processes that a test did not start itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

PATIENCE_SECONDS = 240.0
"""How long tests wait for something that takes a few seconds, also on a slow or busy machine."""


def is_alive(pid: int) -> bool:
    """Return whether a process runs, without zombies that have ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until_dead(pids: Iterable[int], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until none of the processes runs any more."""
    left = set(pids)

    def all_dead() -> bool:
        left.difference_update([pid for pid in left if not is_alive(pid)])
        return not left

    wait_until(all_dead, lambda: f"processes {left} to end", seconds=seconds)


def wait_until(
    condition: Callable[[], bool], what: str | Callable[[], str], *, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until a condition is true. Check it five times a second at first, and later once a second.

    Checks load the API server, and several tests wait at the same time. So checks take at most a twentieth of the time,
    and their interval grows with the time waited.
    """
    started_at = time.monotonic()
    while True:
        asked_at = time.monotonic()
        if condition():
            return
        waited = time.monotonic() - started_at
        if waited > seconds:
            raise AssertionError(f"waited {seconds:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(min(1.0, max(0.2, 20 * (time.monotonic() - asked_at), waited / 10)))
