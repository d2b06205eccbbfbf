"""How the control loop learns that there is something to look at again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class ChangeSignal:
    """What has changed since it was last looked at: a level, not a queue.

    However often a resource changes before anyone waits, it is reported once; and what changes while the control loop
    is at work is there when it waits again.
    """

    __slots__ = ("_being_decided_since", "_changed", "_clock", "_since", "_wakeup")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Begin with none.

        Args:
            clock: seconds that never go back.
        """
        self._clock = clock
        self._changed: set[str] = set()
        self._since: float | None = None
        self._being_decided_since: float | None = None
        self._wakeup = asyncio.Event()

    def notify(self, resource: str) -> None:
        """Note that objects of a resource (its plural name) are no longer what they were, and wake who waits."""
        if not self._changed:
            self._since = self._clock()
        self._changed.add(resource)
        self._wakeup.set()

    async def wait(self) -> frozenset[str]:
        """Wait until something has changed since the last call, and return the resources that did."""
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
        """Note that what was taken so far has been looked at."""
        self._being_decided_since = None

    def lag_seconds(self) -> float:
        """Return for how long the oldest change waits that was not looked at; readable from any thread."""
        since = _earliest(self._being_decided_since, self._since)
        return 0.0 if since is None else max(0.0, self._clock() - since)


def _earliest(*times: float | None) -> float | None:
    """Return the earliest time; None if there is none."""
    return min((each for each in times if each is not None), default=None)
