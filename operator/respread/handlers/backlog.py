"""How far a watch is behind, by what has come over its connection and was not read yet."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from time import monotonic

if sys.platform != "win32":
    import fcntl
    import termios


class Backlog:
    """Since when there has always been something to read.

    An event does not say when it was sent. But once everything that had come was read, nothing older is left; so what
    is unread now, here or still at the API server, came after that.
    """

    __slots__ = ("_clock", "since")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start with nothing to read.

        Args:
            clock: Seconds that never go back.
        """
        self._clock = clock
        self.since: float | None = None
        """Since when; None if everything that came was read."""

    def came(self) -> None:
        """Note that something has come."""
        if self.since is None:
            self.since = self._clock()

    def emptied(self) -> None:
        """Note that everything that has come was read."""
        self.since = None

    def lag_seconds(self) -> float:
        """Return how old the oldest of what is unread is at most; 0 if there is nothing. Readable from any thread."""
        since = self.since
        return 0.0 if since is None else self._clock() - since


def unread_bytes(transport: asyncio.BaseTransport | None) -> int:
    """Return how many bytes the system holds for a connection that were not read; 0 where it does not tell."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or sys.platform == "win32":
        return 0
    try:
        answer = fcntl.ioctl(socket.fileno(), termios.FIONREAD, bytes(4))
    except (OSError, ValueError):  # it was closed this very moment
        return 0
    return int.from_bytes(answer, sys.byteorder)
