"""Loads credentials again when the API server no longer accepts the initial ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from respread.kube.access import AccessError, ClusterAccess
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

LEAST_INTERVAL_SECONDS: Final = 2.0


class Renewal:
    """Loads credentials from their source, and passes them to all users of the access."""

    __slots__ = ("_clock", "_find", "_looked_at", "_looking", "access")

    def __init__(self, access: ClusterAccess, find: Callable[[], ClusterAccess], clock: Callable[[], float]) -> None:
        """Create it.

        Args:
            access: the shared access.
            find: loads an access. It may read files and run plugins, so it is called in a thread.
            clock: a monotonic clock in seconds.
        """
        self.access = access
        self._find = find
        self._clock = clock
        self._looked_at = -inf
        self._looking: asyncio.Task[None] | None = None

    def load(self) -> ClusterAccess:
        """Load an access. The shared one continues with its credentials.

        Raises:
            AccessError: there is none.
        """
        found = self._find()
        self.access.adopt(found)
        return found

    async def __call__(self) -> None:
        """Do this in a thread, once for all callers meanwhile, and not again at once.

        If nothing is found, nothing changes. A caller may be cancelled; the loading continues.
        """
        if self._looking is None or self._looking.done():
            if self._clock() - self._looked_at < LEAST_INTERVAL_SECONDS:
                return
            self._looked_at = self._clock()
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            await asyncio.to_thread(self.load)
        except AccessError as error:
            _log.warning("The API server does not accept the credentials, and there are no others", error=str(error))
