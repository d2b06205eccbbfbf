"""Pauses between attempts, growing, with random parts, and endless; and the loops and obstacles that use them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from math import inf
from typing import Final

from respread.telemetry.logs import get_logger
from respread.timing import GrowingPause


class Retry:
    """The pauses of one thing that fails and succeeds again, in seconds.

    They double up to a maximum, each with up to half of it removed at random.
    """

    def __init__(self, *, least_seconds: float = 0.5, greatest_seconds: float = 30.0) -> None:
        self._pause = GrowingPause(least_seconds, greatest_seconds)
        self._failures = 0

    @property
    def failing(self) -> bool:
        """Whether it has failed since the last success."""
        return self._failures > 0

    def failed(self) -> float:
        """Record a failure, and return for how many seconds to wait."""
        self._failures += 1
        return self._after(self._failures)

    def succeeded(self) -> None:
        """Record a success: the next failure starts from the minimum pause."""
        self._failures = 0

    def __iter__(self) -> Iterator[float]:
        """Return the pauses from the minimum on, without end.

        Kopf retries with them, and so never ends: a restart of the operator would not bring an API server back.
        """
        return map(self._after, count(1))

    def _after(self, failures: int) -> float:
        return self._pause.seconds(failures) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret


_log: Final = get_logger(__name__)


class Outage:
    """The obstacle for one kind of requests, if there is one."""

    def __init__(self) -> None:
        self.retry = Retry()
        self._problem = ""

    async def wait(self, event: str, problem: str, *, of: str, at_least_seconds: float = 0.0) -> None:
        """Wait before asking again, and log the cause if it has changed.

        The problem is the obstacle, and what to do about it; `of` is what was requested.
        """
        if problem != self._problem:
            self._problem = problem
            _log.error(event, kind=of, problem=problem)
        await asyncio.sleep(max(self.retry.failed(), at_least_seconds))

    def over(self) -> None:
        """Note that a request was accepted. The pauses restart only after a usable answer."""
        self._problem = ""


FAILURE_SECONDS: Final = 5.0
"""How long it waits after a step that failed, unless it is woken."""


class WokenLoop:
    """Takes one step after another until it is stopped. It belongs to one event loop."""

    def __init__(self, failed: Callable[[], None]) -> None:
        """Create it. `failed` logs the exception of a step that failed; it must not end what else the operator does."""
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
