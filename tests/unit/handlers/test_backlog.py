"""The lag of a watch is measured by its unread data."""

from __future__ import annotations

import asyncio
import socket

from respread.handlers.informer import Backlog, unread_bytes


def test_the_lag_counts_from_the_last_time_at_which_nothing_was_unread() -> None:
    seconds = [100.0]
    backlog = Backlog(clock=lambda: seconds[0])
    assert backlog.lag_seconds() == 0
    backlog.came()
    seconds[0] += 2
    backlog.came()
    seconds[0] += 1
    assert backlog.lag_seconds() == 3
    backlog.emptied()
    assert backlog.lag_seconds() == 0
    seconds[0] += 60
    backlog.came()
    assert backlog.lag_seconds() == 0


async def test_bytes_in_the_socket_buffer_are_counted() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=here)
        transport.pause_reading()
        assert unread_bytes(transport) == 0
        await loop.sock_sendall(there, b"0123456789")
        assert unread_bytes(transport) == 10
        transport.close()
        await asyncio.sleep(0)
        assert unread_bytes(transport) == 0
    assert unread_bytes(None) == 0
