"""Confirms during evictions that the policies in the API server are still those of the plan.

It reads only the policies that apply to a move. Each place, a namespace or none, is read separately, in parallel. If
the policies of one place are slow or can't be read, no other place waits: namespaces that took long share a few
readings of their own, however many they are, and the cluster policies wait for no namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from typing import Final

from respread.controller.permits.policy_versions import EVERYWHERE, PolicyReader, PolicyVersions
from respread.kube.listing import ListError
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

CONFIRM_SECONDS: Final = 1.0
"""How old an answer may be before it is requested again, and how long a move waits for it."""
READING_SECONDS: Final = 5.0
"""How long a reading may take. A later answer would be too old to confirm anything."""
KEPT_SECONDS: Final = 60.0
"""How long an unused answer is kept, and for how long a namespace counts as slow."""
AT_ONCE: Final = 8
"""The number of namespaces that are read at the same time."""
SLOW_AT_ONCE: Final = 4
"""The number of namespaces beside these whose last reading took more than `CONFIRM_SECONDS`."""


class Confirmations:
    """The last answer for each place, with the time of the request."""

    __slots__ = ("_answers", "_at_once", "_clock", "_reader", "_reading", "_slow", "_slow_at_once")

    def __init__(self, reader: PolicyReader, clock: Callable[[], float]) -> None:
        """Start without answers.

        Args:
            reader: reads policies.
            clock: a monotonic clock in seconds.
        """
        self._reader = reader
        self._clock = clock
        self._answers: dict[str, PolicyVersions] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._slow_at_once = asyncio.Semaphore(SLOW_AT_ONCE)
        self._slow: dict[str, float] = {}
        """When a reading that took long ended, by namespace."""
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By place. A slow reading continues after its waiters have given up, and later ones use its answer."""

    def of(self, place: str) -> PolicyVersions | None:
        """Return the last answer for a place, or None."""
        return self._answers.get(place)

    def note(self, place: str, answer: PolicyVersions) -> None:
        """Store the policies of a place according to the API server."""
        now = self._clock()
        self._answers = {at: known for at, known in self._answers.items() if now - known.asked_at < KEPT_SECONDS}
        self._answers[place] = answer

    async def refresh(self, places: Iterable[str]) -> None:
        """Read the policies of places with an old answer, for at most a second."""
        now = self._clock()
        reading = [self._read_once(each) for each in places if now - self._asked_at(each) >= CONFIRM_SECONDS]
        if reading:
            await asyncio.wait(reading, timeout=CONFIRM_SECONDS)

    async def aclose(self) -> None:
        """Cancel the readings in progress."""
        reading = tuple(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    def _asked_at(self, place: str) -> float:
        answer = self._answers.get(place)
        return -inf if answer is None else answer.asked_at

    def _read_once(self, place: str) -> asyncio.Task[None]:
        """Start to read a place, unless this is already in progress."""
        if (task := self._reading.get(place)) is None:
            task = self._reading[place] = asyncio.create_task(self._read(place))
            task.add_done_callback(lambda _: self._reading.pop(place))
        return task

    async def _read(self, place: str) -> None:
        async with self._turn(place):
            began = self._clock()
            try:
                async with asyncio.timeout(READING_SECONDS):
                    self.note(place, await self._reader.read(place))
            except TimeoutError:
                _log.info("The policies can't be read in time", namespace=place, limit_seconds=READING_SECONDS)
            except ListError as error:
                _log.info("The policies can't be read", namespace=place, error=str(error))
            self._took(place, self._clock() - began)

    def _turn(self, place: str) -> AbstractAsyncContextManager[object]:
        """Return what lets as many namespaces through at the same time as there may be."""
        if place == EVERYWHERE:
            return nullcontext()
        return self._slow_at_once if place in self._slow else self._at_once

    def _took(self, place: str, seconds: float) -> None:
        now = self._clock()
        self._slow = {at: ended for at, ended in self._slow.items() if at != place and now - ended < KEPT_SECONDS}
        if seconds > CONFIRM_SECONDS:
            self._slow[place] = now
