"""How the control loop learns that there is something to look at again."""

from __future__ import annotations

import asyncio


class Changes:
    """What has changed since it was last looked at: a level, not a queue.

    However often a resource changes before anyone waits, it is reported once; and what changes while the control loop
    is at work is there when it waits again.
    """

    __slots__ = ("_changed", "_wakeup")

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._wakeup = asyncio.Event()

    def notify(self, resource: str) -> None:
        """Note that objects of a resource (its plural name) are no longer what they were, and wake who waits."""
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
        return changed
