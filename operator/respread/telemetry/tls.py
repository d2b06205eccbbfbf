"""The server's side of TLS: a certificate from files that may be replaced, and connections that it is shown to."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

HANDSHAKE_SECONDS: Final = 5.0
_ACCEPT_AGAIN_SECONDS: Final = 0.1
"""After an error, such as too many open files."""


class ServedCertificate:
    """The files `tls.crt` and `tls.key` in a folder, as of a Secret of the type kubernetes.io/tls.

    The kubelet replaces them when the Secret changes. Connections that are made afterwards get the new certificate.
    """

    def __init__(self, folder: Path) -> None:
        """Read the files.

        Raises:
            ValueError: they can't be read, or don't belong to each other. The message names them.
        """
        self._files = (folder / "tls.crt", folder / "tls.key")
        try:
            self._read = self._versions()
            self._context = self._load()
        except OSError as error:  # SSLError is a subclass of OSError.
            raise ValueError(f"no certificate can be served from {folder}/tls.crt and tls.key: {error}") from error

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        with suppress(OSError):  # While they are being replaced, the last one is served.
            if (found := self._versions()) != self._read:
                self._read = found
                try:
                    self._context = self._load()
                except ssl.SSLError as error:
                    _log.warning("Serving the last certificate, the new one can't be read", reason=str(error))
        return self._context

    def _versions(self) -> list[tuple[int, int]]:
        return [(each.st_ino, each.st_mtime_ns) for each in (file.stat() for file in self._files)]

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files)
        return context


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; an empty host is every address of the machine, IPv4 and IPv6.

    Raises:
        OSError: the address is not available.
    """
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, dualstack_ipv6=both)
    made.setblocking(False)
    return made


async def accept_over_tls(
    listening: socket.socket,
    certificate: ServedCertificate,
    accept: Callable[[], asyncio.BaseProtocol],
    *,
    most_handshakes: int,
) -> None:
    """Accept connections until cancelled. If too many handshakes are under way, the oldest is given up.

    An event loop's own server bounds neither the number of handshakes nor their open files. `accept` returns what gets
    a connection after its handshake. A client that begins a handshake and does not go on uses an open file.
    """
    loop = asyncio.get_running_loop()
    handshakes: dict[asyncio.Task[None], None] = {}

    async def shake_hands(connection: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(
                accept, connection, ssl=certificate.context(), ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError:  # TimeoutError and SSLError are subclasses of OSError: whatever clients send
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    try:
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                continue
            if len(handshakes) >= most_handshakes:
                next(iter(handshakes)).cancel()
            task = asyncio.create_task(shake_hands(connection))
            handshakes[task] = None
            task.add_done_callback(handshakes.pop)
    finally:
        for task in handshakes:
            task.cancel()
