"""A thread for long computations, so that the Lease is renewed and probes are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PlanningThread:
    """A thread of its own, because asyncio's threads are for credentials and name resolution, which can't wait."""

    __slots__ = ("_clock", "_computed_seconds", "_executor")

    def __init__(self, clock: Callable[[], float], executor: Executor | None = None) -> None:
        """Create it.

        Args:
            clock: a monotonic clock in seconds.
            executor: computes instead of a thread, for simulated time.
        """
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="planning") if executor is None else executor
        self._computed_seconds = 0.0

    async def compute(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Compute in the thread, while the event loop goes on."""
        started = self._clock()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))
        finally:
            self._computed_seconds += self._clock() - started

    def take_seconds(self) -> float:
        """Return the computing time since the last call."""
        seconds, self._computed_seconds = self._computed_seconds, 0.0
        return seconds
