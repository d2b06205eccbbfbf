"""Asking the API server, while a wave is made, whether the policies are still those that it was planned for.

Only those are read that may have a say in it: each place, which is a namespace or none, by itself and at the same time
as the others. One whose policies can't be read, or only slowly, keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Final

from respread.controller.permission import Permission
from respread.controller.policy_versions import EVERYWHERE, PolicyReader
from respread.kube.listing import ListError
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

CONFIRM_SECONDS: Final = 1.0
"""How often the API server is asked, and how long a wave waits at first for namespaces that take longer than others."""
AT_ONCE: Final = 8
"""How many places are read at the same time."""


class Confirming:
    """Keeps a permission informed of what the API server says."""

    __slots__ = ("_at_once", "_permission", "_reader", "_reading")

    def __init__(self, reader: PolicyReader, permission: Permission) -> None:
        """Ask nothing yet.

        Args:
            reader: asks.
            permission: told of the answers.
        """
        self._reader = reader
        self._permission = permission
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By place. What takes longer than a wave goes on after it, and the next one has its answer."""

    @contextlib.asynccontextmanager
    async def of(self, namespaces: Collection[str]) -> AsyncIterator[None]:
        """Ask for the policies of some namespaces, and go on asking until the context ends.

        Begins when all are read; no later than a second after those that belong to no namespace.
        """
        places = [EVERYWHERE, *sorted(namespaces)]
        first = self._ask(places)
        await asyncio.wait([first[0]])
        await asyncio.wait(first, timeout=CONFIRM_SECONDS)
        going_on = asyncio.create_task(self._go_on(places))
        try:
            yield
        finally:
            going_on.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await going_on

    async def aclose(self) -> None:
        """Drop what is still being asked."""
        reading = tuple(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _go_on(self, places: Iterable[str]) -> None:
        while True:
            await asyncio.sleep(CONFIRM_SECONDS)
            self._ask(places)

    def _ask(self, places: Iterable[str]) -> list[asyncio.Task[None]]:
        """Begin to read what is not being read already."""
        for gone in [place for place, task in self._reading.items() if task.done()]:
            del self._reading[gone]
        return [
            self._reading.get(place) or self._reading.setdefault(place, asyncio.create_task(self._read(place)))
            for place in places
        ]

    async def _read(self, place: str) -> None:
        async with self._at_once:
            try:
                self._permission.confirm(place, await self._reader.read(place))
            except ListError as error:
                _log.info("The policies can't be read", namespace=place, error=str(error))
