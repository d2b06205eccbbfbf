"""The time of tests: a clock that they advance, and an event loop in which waiting takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Clock:
    """A clock that a test advances."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    """Advances the clock of the loop instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits for something that nothing will ever bring about")
        self.now += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at second 0; `time()` is the only clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        # slightly later, because rounding could keep a timer from being due at its own time
        return self._virtual.now + 1e-9 * round(self._virtual.now)


def run_in_virtual_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, however long it sleeps."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something of which no event tells."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - it may be anything
            await asyncio.sleep(0.01)
