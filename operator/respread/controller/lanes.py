"""The tasks that carry out steps: in which order they start, and how many run at the same time.

Steps that share a controller look at it, and send their evictions, one after another, in the order in which they were
chosen. They are recorded, and wait for answers, at the same time. The steps of a namespace share `AT_ONCE` places. So
if evictions in one namespace are slow, for example because of a hanging webhook, the steps of other namespaces
continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from respread.moves.entry import controller_uid_of
from respread.planning.plan import Step
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

_T = TypeVar("_T")

AT_ONCE: Final = 24
"""The number of steps of a namespace that send requests at the same time. An API server handles a few hundred requests,
and other clients need some too."""
AT_ONCE_IN_ALL: Final = 64
"""The number in all namespaces. Lists, statuses and what is read of controllers use the same connections."""
BACKLOG_SECONDS: Final = 4.0
"""How long a chosen move may wait before it starts: much less than the time after which its plan is too old."""
_FIRST_SECONDS: Final = 1.0
"""The assumed duration of a move before any of its namespace was made."""
_WEIGHT: Final = 0.2
"""The weight of the last move in the estimate for the next one."""


class Lanes:
    """Starts each step in its turn, and computes how many more may be chosen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[asyncio.Task[Any], Step] = {}
        self._in_all = asyncio.Semaphore(AT_ONCE_IN_ALL)
        # Entries without waiters are dropped.
        self._controllers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._at_once: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: Counter[str] = Counter()
        """The number of moves by namespace."""
        self._seconds: dict[str, float] = {}
        """The recent duration of a move, by namespace."""

    def start(self, step: Step, life: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task for a step."""
        task = asyncio.create_task(life)
        self._tasks[task] = step
        task.add_done_callback(self._done)
        return task

    def moves(self) -> set[str]:
        """Return the UIDs of the pods of all tasks."""
        return {move.pod.uid for step in self._tasks.values() for move in step}

    @contextlib.contextmanager
    def under_way(self, step: Step) -> Iterator[None]:
        """Count a step for `room` until the context ends."""
        namespace = step[0].pod.namespace
        self._under_way[namespace] += len(step)
        try:
            yield
        finally:
            self._under_way[namespace] -= len(step)
            if not self._under_way[namespace]:
                del self._under_way[namespace]
                self._seconds.pop(namespace, None)

    @contextlib.asynccontextmanager
    async def turn(self, step: Step) -> AsyncIterator[contextlib.ExitStack]:
        """Wait until a step is next for its controllers. It stays so until its turn is closed, or the context ends."""
        with contextlib.ExitStack() as turn:
            for controller in sorted(set(map(controller_uid_of, step))):
                lock = self._controllers.setdefault(controller, asyncio.Lock())
                await lock.acquire()
                turn.callback(lock.release)
            yield turn

    @contextlib.asynccontextmanager
    async def place(self, step: Step) -> AsyncIterator[None]:
        """Wait for one of the places for requests of a step's namespace. It is used until the context ends."""
        namespace = step[0].pod.namespace
        async with self._at_once.setdefault(namespace, asyncio.Semaphore(AT_ONCE)), self._in_all:
            began = self._clock()
            yield
            self._took(namespace, 2 * (self._clock() - began) / len(step))  # A step takes a place twice.

    def room(self, namespace: str) -> int:
        """Return how many more moves of a namespace may be chosen so that each starts before its plan is too old."""
        seconds = max(self._seconds.get(namespace, _FIRST_SECONDS), 0.001)
        return int(AT_ONCE * (1 + BACKLOG_SECONDS / seconds)) - self._under_way[namespace]

    async def aclose(self, has_begun: Callable[[Step], bool]) -> None:
        """End all tasks: those of steps that have not started at once, the others when their requests are answered."""
        tasks = dict(self._tasks)
        for task, step in tasks.items():
            if not has_begun(step):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _took(self, namespace: str, seconds: float) -> None:
        before = self._seconds.get(namespace, seconds)
        self._seconds[namespace] = before + _WEIGHT * (seconds - before)

    def _done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("An eviction failed for a reason that is a bug", exc_info=error)
