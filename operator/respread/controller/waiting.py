"""When the next reconcile begins: at a change or when something is due, after changes were gathered for a while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from respread.stores.changes import ChangeSignal
from respread.telemetry.health import Heartbeat

GATHER_SECONDS: Final = 0.05
"""How long changes are gathered at least before they are looked at: a change seldom comes alone."""
LONGEST_GATHER_SECONDS: Final = 5.0
"""Where looking takes long, changes are gathered for as long as the last look computed: half of the time at most is
spent on it. What a reconcile waited for answers does not count."""
BEAT_SECONDS: Final = 10.0
"""However quiet the cluster is, the heart beats this often."""
LONGEST_PAUSE_SECONDS: Final = 60.0
"""How long the loop waits at most after reconciles that failed."""


class Waiting:
    """Waits between reconciles, while the heart beats. It belongs to one event loop."""

    __slots__ = ("_changes", "_clock", "_failures", "_gather_seconds", "_heartbeat", "_stop")

    def __init__(self, changes: ChangeSignal, heartbeat: Heartbeat, clock: Callable[[], float]) -> None:
        """Prepare.

        Args:
            changes: tells that the cluster has changed.
            heartbeat: beats after every reconcile that did not fail, and during every wait for a change.
            clock: seconds that never go back.
        """
        self._changes = changes
        self._heartbeat = heartbeat
        self._clock = clock
        self._failures = 0
        self._gather_seconds = GATHER_SECONDS
        self._stop = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether there is to be no other reconcile."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End every wait at once."""
        self._stop.set()
        self._changes.notify("stop")

    def succeeded(self, computed_seconds: float) -> None:
        """Note that a reconcile did not fail, and how long was computed in it."""
        self._failures = 0
        self._heartbeat.beat()
        self._gather_seconds = min(max(GATHER_SECONDS, computed_seconds), LONGEST_GATHER_SECONDS)

    def failed(self) -> float:
        """Note that a reconcile failed, and return for how many seconds there is to be none: longer each time."""
        self._failures += 1
        return min(LONGEST_PAUSE_SECONDS, 2.0 ** min(self._failures, 10))

    async def until(self, wake_at: float) -> None:
        """Wait for a change or a time on the clock; then let more changes come."""
        while not self.stopped and (left := wake_at - self._clock()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_SECONDS)):
                    await self._changes.wait()
                    break
            self._heartbeat.beat()
        await self.pause(self._gather_seconds)
        self._changes.take()

    async def pause(self, seconds: float) -> None:
        """Wait, but not for long once there is to be no other reconcile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
