"""A thread for long computations, so that the Lease is renewed and probes are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from time import thread_time
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PlanningThread:
    """A thread of its own, because asyncio's threads are for credentials and name resolution, which can't wait."""

    __slots__ = ("_computed_seconds", "_cpu_clock", "_executor")

    def __init__(self, executor: Executor | None = None, cpu_clock: Callable[[], float] = thread_time) -> None:
        """Create it.

        Args:
            executor: computes instead of a thread, for simulated time.
            cpu_clock: the CPU time of the thread that calls it, in seconds.
        """
        self._cpu_clock = cpu_clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="planning") if executor is None else executor
        self._computed_seconds = 0.0

    async def compute(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Compute in the thread, while the event loop continues."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self._timed, partial(work, *args, **kwargs)
        )

    def _timed(self, work: Callable[[], _T]) -> _T:
        started = self._cpu_clock()
        try:
            return work()
        finally:
            self._computed_seconds += self._cpu_clock() - started

    def take_seconds(self) -> float:
        """Return the CPU time of what was computed since the last call.

        Not the time that passed: where other processes have the CPUs, it is many times as long, and says nothing of
        what the next computation takes from others.
        """
        seconds, self._computed_seconds = self._computed_seconds, 0.0
        return seconds
