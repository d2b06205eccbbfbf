"""A loop that takes its next step when it is woken, or after the time that the last step said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

FAILURE_SECONDS: Final = 5.0
"""How long it waits after a step that failed, unless it is woken."""


class WokenLoop:
    """Takes one step after another until it is stopped. It belongs to one event loop."""

    __slots__ = ("_failed", "_woken", "stopping")

    def __init__(self, failed: Callable[[], None]) -> None:
        """Create it.

        Args:
            failed: logs the exception of a step that failed, which is being handled. The loop goes on, because a bug
                in a step must not end what else the operator does.
        """
        self._failed = failed
        self._woken = asyncio.Event()
        self.stopping = False
        """Whether no more steps will be taken."""

    def wake(self) -> None:
        """Take the next step at once, or when the step that is being taken has ended."""
        self._woken.set()

    def stop(self) -> None:
        """End `run` when the step that is being taken has ended."""
        self.stopping = True
        self._woken.set()

    async def run(self, step: Callable[[], Awaitable[float]]) -> None:
        """Take steps until stopped. A step returns for how many seconds nothing is to be done unless it is woken."""
        while not self.stopping:
            self._woken.clear()
            try:
                wait_seconds = await step()
            except Exception:  # noqa: BLE001 - whatever it is, the next step may succeed
                self._failed()
                wait_seconds = FAILURE_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_seconds == inf else wait_seconds):
                    await self._woken.wait()
