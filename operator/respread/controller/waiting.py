"""When the next reconcile starts: after collected changes, or when something is due."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from respread.growing_pause import GrowingPause
from respread.stores.changes import ChangeSignal
from respread.telemetry.health import Heartbeat

GATHER_SECONDS: Final = 0.05
"""The minimum time for which changes are collected, because they rarely come alone."""
LONGEST_GATHER_SECONDS: Final = 5.0
"""If reconciles compute for long, changes are collected for as long as the CPU time of the last one, so that planning
takes at most half of a core. Waiting does not count, for answers as for a CPU."""
BEAT_SECONDS: Final = 10.0
"""The heartbeat beats this often, however quiet the cluster is."""
FAILURE_PAUSE: Final = GrowingPause(first_seconds=2.0, longest_seconds=60.0)
"""The pause after failed reconciles."""
LOOP_LIMIT_SECONDS: Final = 2 * FAILURE_PAUSE.longest_seconds + BEAT_SECONDS
"""A control loop that has not run for this long is stuck, or fails again and again."""


def heartbeat_of_loop(clock: Callable[[], float]) -> Heartbeat:
    """Return the heartbeat that `Waiting` beats, for the control loop."""
    return Heartbeat("control-loop", limit_seconds=LOOP_LIMIT_SECONDS, clock=clock)


class Waiting:
    """Waits between reconciles, while the heartbeat beats. It belongs to one event loop."""

    __slots__ = ("_changes", "_clock", "_failures", "_gather_seconds", "_heartbeat", "_stop")

    def __init__(self, changes: ChangeSignal, heartbeat: Heartbeat, clock: Callable[[], float]) -> None:
        """Create it.

        Args:
            changes: report that the cluster has changed.
            heartbeat: beats after every successful reconcile, and during every wait for a change.
            clock: a monotonic clock in seconds.
        """
        self._changes = changes
        self._heartbeat = heartbeat
        self._clock = clock
        self._failures = 0
        self._gather_seconds = GATHER_SECONDS
        self._stop = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether there will be no more reconciles."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End every wait at once."""
        self._stop.set()
        self._changes.notify("stop")

    def succeeded(self, computed_seconds: float) -> None:
        """Record that a reconcile succeeded, and its CPU time."""
        self._failures = 0
        self._heartbeat.beat()
        self._gather_seconds = min(max(GATHER_SECONDS, computed_seconds), LONGEST_GATHER_SECONDS)

    def failed(self) -> float:
        """Record that a reconcile failed, and return the pause in seconds, longer each time."""
        self._failures += 1
        return FAILURE_PAUSE.seconds(self._failures)

    async def until(self, wake_at: float) -> None:
        """Wait for a change or a time on the clock, then collect more changes."""
        while not self.stopped and (left := wake_at - self._clock()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_SECONDS)):
                    await self._changes.wait()
                    break
            self._heartbeat.beat()
        await self.pause(self._gather_seconds)
        self._changes.take()

    async def pause(self, seconds: float) -> None:
        """Wait, but not for long after a stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
