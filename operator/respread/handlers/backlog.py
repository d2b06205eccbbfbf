"""How far a watch is behind, by what has arrived on its connection and has not been read yet."""

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

    An event does not say when it was sent. But when everything that had arrived has been read, nothing older remains.
    So what is unread now, here or at the API server, came after that.
    """

    __slots__ = ("_clock", "since")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start with nothing to read.

        Args:
            clock: a monotonic clock in seconds.
        """
        self._clock = clock
        self.since: float | None = None
        """Since when; None if everything that arrived was read."""

    def came(self) -> None:
        """Record that something has arrived."""
        if self.since is None:
            self.since = self._clock()

    def emptied(self) -> None:
        """Record that everything that has arrived was read."""
        self.since = None

    def lag_seconds(self) -> float:
        """Return the maximum age of the oldest unread data; 0 if there is none. Any thread may call this."""
        since = self.since
        return 0.0 if since is None else self._clock() - since


def unread_bytes(transport: asyncio.BaseTransport | None) -> int:
    """Return the number of unread bytes that the system holds for a connection; 0 if it does not report it."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or sys.platform == "win32":
        return 0
    try:
        answer = fcntl.ioctl(socket.fileno(), termios.FIONREAD, bytes(4))
    except (OSError, ValueError):  # It was closed just now.
        return 0
    return int.from_bytes(answer, sys.byteorder)
