"""Data read from the API server for moves that were chosen together, each object once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import msgspec

from respread.planning.held import Held

_T = TypeVar("_T")


class _Kept(msgspec.Struct, Generic[_T], frozen=True):
    what: _T
    read_at: float


FAILED_SECONDS: Final = 1.0
"""How long a failure serves: what is held is not chosen again before that."""


class BatchReadings(Generic[_T]):
    """Readings by key. Who asks for one that is being read waits for it."""

    __slots__ = ("_clock", "_failed", "_fresh_seconds", "_kept", "_reading")

    def __init__(self, clock: Callable[[], float], fresh_seconds: float) -> None:
        """Start without readings.

        Args:
            clock: a monotonic clock in seconds.
            fresh_seconds: how long a reading is valid.
        """
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._kept: dict[Hashable, _Kept[_T]] = {}
        self._failed: dict[Hashable, _Kept[Held]] = {}
        self._reading: dict[Hashable, asyncio.Lock] = {}

    def known(self, key: Hashable) -> _T | None:
        """Return a valid reading."""
        found = self._kept.get(key)
        return None if found is None or self._clock() - found.read_at >= self._fresh_seconds else found.what

    async def get(self, key: Hashable, read: Callable[[], Awaitable[_T | Held]]) -> _T | Held:
        """Return a valid reading, or why there is none.

        Args:
            key: what is read.
            read: reads it.
        """
        async with self._reading.setdefault(key, asyncio.Lock()):
            if (known := self.known(key)) is not None:
                return known
            failed = self._failed.get(key)
            if failed is not None and self._clock() - failed.read_at < FAILED_SECONDS:
                return failed.what
            started_at = self._clock()
            found = await read()
            if isinstance(found, Held):
                self._failed[key] = _Kept(found, self._clock())
            else:
                self._kept[key] = _Kept(found, started_at)
            return found
