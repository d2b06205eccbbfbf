"""Tells the control loop that something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class ChangeSignal:
    """What has changed since the last look: a level, not a queue.

    If a resource changes several times before the control loop waits, it is reported once. Changes during a reconcile
    are reported at the next wait.
    """

    __slots__ = ("_being_decided_since", "_changed", "_clock", "_since", "_wakeup")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start without changes.

        Args:
            clock: a monotonic clock in seconds.
        """
        self._clock = clock
        self._changed: set[str] = set()
        self._since: float | None = None
        self._being_decided_since: float | None = None
        self._wakeup = asyncio.Event()

    def notify(self, resource: str) -> None:
        """Report that objects of a resource (its plural name) have changed, and wake the waiting task."""
        if not self._changed:
            self._since = self._clock()
        self._changed.add(resource)
        self._wakeup.set()

    async def wait(self) -> frozenset[str]:
        """Wait until something has changed since the last call, and return the changed resources."""
        await self._wakeup.wait()
        return self.take()

    def take(self) -> frozenset[str]:
        """Return the resources that have changed since the last call, or none, without waiting."""
        self._wakeup.clear()
        changed = frozenset(self._changed)
        self._changed.clear()
        self._being_decided_since, self._since = _earliest(self._being_decided_since, self._since), None
        return changed

    def decided(self) -> None:
        """Record that everything taken so far has been processed."""
        self._being_decided_since = None

    def lag_seconds(self) -> float:
        """Return the age of the oldest unprocessed change. Any thread may call this."""
        since = _earliest(self._being_decided_since, self._since)
        return 0.0 if since is None else max(0.0, self._clock() - since)


def _earliest(*times: float | None) -> float | None:
    """Return the earliest time; None if there is none."""
    return min((each for each in times if each is not None), default=None)
