"""What the API server itself says of the policies, asked while evictions are made: are they still those planned for?

Only those are read that may have a say in a move: each place, which is a namespace or none, by itself and at the same
time as the others. One whose policies can't be read, or only slowly, keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from respread.controller.permits.policy_versions import PolicyReader, PolicyVersions
from respread.kube.listing import ListError
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

CONFIRM_SECONDS: Final = 1.0
"""How old an answer may be before the API server is asked again, and how long that is waited for."""
KEPT_SECONDS: Final = 60.0
"""For how long an answer is kept that nobody asks for."""
AT_ONCE: Final = 8
"""How many places are read at the same time."""


class Confirmations:
    """The last answer for each place, as of when it was asked for."""

    __slots__ = ("_answers", "_at_once", "_clock", "_reader", "_reading")

    def __init__(self, reader: PolicyReader, clock: Callable[[], float]) -> None:
        """Ask nothing yet.

        Args:
            reader: asks.
            clock: seconds that never go back.
        """
        self._reader = reader
        self._clock = clock
        self._answers: dict[str, PolicyVersions] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By place. What takes longer than anybody waits goes on, and the next who asks has its answer."""

    def of(self, place: str) -> PolicyVersions | None:
        """Return the last answer for a place; None if there is none."""
        return self._answers.get(place)

    def note(self, place: str, answer: PolicyVersions) -> None:
        """Note which policies there are in a place, by the API server's own word."""
        now = self._clock()
        self._answers = {at: known for at, known in self._answers.items() if now - known.asked_at < KEPT_SECONDS}
        self._answers[place] = answer

    async def refresh(self, places: Iterable[str]) -> None:
        """Ask for the policies of some places where the last answer is old; no longer than a second."""
        now = self._clock()
        reading = [self._read_once(each) for each in places if now - self._asked_at(each) >= CONFIRM_SECONDS]
        if reading:
            await asyncio.wait(reading, timeout=CONFIRM_SECONDS)

    async def aclose(self) -> None:
        """Drop what is still being asked."""
        reading = tuple(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    def _asked_at(self, place: str) -> float:
        answer = self._answers.get(place)
        return -inf if answer is None else answer.asked_at

    def _read_once(self, place: str) -> asyncio.Task[None]:
        """Begin to read a place unless it is being read already."""
        if (task := self._reading.get(place)) is None:
            task = self._reading[place] = asyncio.create_task(self._read(place))
            task.add_done_callback(lambda _: self._reading.pop(place))
        return task

    async def _read(self, place: str) -> None:
        async with self._at_once:
            try:
                self.note(place, await self._reader.read(place))
            except ListError as error:
                _log.info("The policies can't be read", namespace=place, error=str(error))
