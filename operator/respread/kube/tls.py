"""TLS with the API server: accepts the certificates that client-go accepts, and reads them again when they change."""

from __future__ import annotations

import errno
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from respread.kube.credentials import Endpoint, Pem
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

LOOK_SECONDS: Final = 60.0
"""How long files count as unchanged. client-go looks every 5 minutes (transport/ca_rotation.go)."""


class TlsContext:
    """The TLS context for connections to an API server.

    The kubelet replaces a pod's `ca.crt` when the cluster's authority changes, and others the files that a kubeconfig
    names. Then there is another context, so that new connections are made with it.
    """

    __slots__ = ("_clock", "_content", "_endpoint", "_looked_at_seconds", "_trouble", "current")

    def __init__(self, endpoint: Endpoint, clock: Callable[[], float] = monotonic) -> None:
        """Read the files.

        Args:
            endpoint: the API server, with its authority and our client certificate.
            clock: a monotonic clock in seconds.

        Raises:
            OSError: a file can't be read, or (ssl.SSLError) is not a certificate.
        """
        self._endpoint = endpoint
        self._clock = clock
        self._looked_at_seconds: float | None = clock()
        self._trouble = ""
        self._content = _read(endpoint)
        self.current = _context(endpoint, self._content)
        """For new connections."""

    @property
    def is_current(self) -> bool:
        """Whether the files were read within the last minute, and nothing has been refused since."""
        return self._looked_at_seconds is not None and self._clock() - self._looked_at_seconds < LOOK_SECONDS

    def doubt(self) -> None:
        """Read the files again before the next request: the API server's certificate, or ours, was refused."""
        self._looked_at_seconds = None

    def look(self) -> None:
        """Read the files again. If they can't be used, the context stays as it is, as in client-go."""
        self._looked_at_seconds = self._clock()
        try:
            if (content := _read(self._endpoint)) != self._content:
                self.current = _context(self._endpoint, content)
                self._content = content
            self._trouble = ""
        except OSError as error:  # ssl.SSLError is a subclass. Certificate and key are replaced one after the other.
            if (trouble := str(error)) != self._trouble:
                _log.warning(
                    "The files of certificates have changed and can't be used; the former ones stay in use",
                    error=trouble,
                )
            self._trouble = trouble


class _Content(NamedTuple):
    authority: bytes | None
    certificate: bytes | None
    key: bytes | None


def _read(endpoint: Endpoint) -> _Content:
    return _Content(*map(_bytes, (endpoint.certificate_authority, endpoint.client_certificate, endpoint.client_key)))


def _bytes(pem: Pem) -> bytes | None:
    if pem.data or not pem.path:
        return pem.data
    if not Path(pem.path).is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", pem.path)
    content = Path(pem.path).read_bytes()
    if not content.strip():  # Without any, Python would trust the system's authorities.
        raise OSError(errno.ENODATA, "there is nothing in the file", pem.path)
    return content


def _context(endpoint: Endpoint, content: _Content) -> ssl.SSLContext:
    """Return a new context.

    Like client-go, it trusts each certificate of the authority's file, also if another authority has issued it. Like
    client-go, and unlike Python since version 3.13, it does not require identifiers of keys, which authorities lack
    that were made before Go 1.15.
    """
    authority = content.authority
    context = ssl.create_default_context(cadata=authority.decode("ascii", errors="replace") if authority else None)
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    if not endpoint.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if content.certificate and content.key:
        with ExitStack() as files:
            certificate, key = (files.enter_context(_in_file(each)) for each in (content.certificate, content.key))
            context.load_cert_chain(certificate, key)
    return context


@contextmanager
def _in_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file, because Python reads a client certificate only from files.

    On Linux the file is in memory: there is no folder to write to in a container, and a key should not be on a disk.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("pem")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
