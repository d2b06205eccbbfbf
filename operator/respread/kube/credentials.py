"""The address of the API server and our credentials for it, from any source; TLS with it, as client-go accepts it."""

from __future__ import annotations

import errno
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from respread.telemetry.logs import get_logger

TOKEN_SECONDS: Final = 60.0
"""How long a token from a file is used, as in client-go (transport/token_source.go)."""
_IN_NAMES: Final = "!#$&'*+^`|"
"""What a header's name may contain besides letters, digits and `-._~`; client-go escapes the rest, and `%` itself
(transport/round_trippers.go)."""


class CredentialsError(Exception):
    """There are no credentials now."""


class Pem(msgspec.Struct, frozen=True):
    """A certificate or key: the path of a file, or the content itself, which has priority."""

    path: str | None = None
    data: bytes | None = None


class Impersonation(msgspec.Struct, frozen=True):
    """As whom requests are made, if not as ourselves: a kubeconfig's `as` fields, or `--as` and `--as-group`."""

    user: str | None = None
    groups: tuple[str, ...] = ()
    uid: str | None = None
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """More about the user, as in `as-user-extra`: names with their values."""

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that the API server reads, one for each value; none without a user, as in client-go."""
        if not self.user:
            return ()
        return (
            ("Impersonate-User", self.user),
            *((("Impersonate-Uid", self.uid),) if self.uid else ()),
            *(("Impersonate-Group", group) for group in self.groups),
            *(
                (f"Impersonate-Extra-{quote(name, safe=_IN_NAMES)}", each)
                for name, values in self.extra
                for each in values
            ),
        )

    def replaced_by(self, other: Impersonation) -> Impersonation:
        """Return this with the other's user or groups, as kubectl's options replace a kubeconfig's fields."""
        return msgspec.structs.replace(self, user=other.user or self.user, groups=other.groups or self.groups)


OURSELVES: Final = Impersonation()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An API server and how it is reached, without credentials."""

    server: str
    """Its address, including a path prefix, without a slash at the end."""
    name: str = "this cluster"
    """The name of the cluster in a sentence: `context prod`."""
    namespace: str = "default"
    """The operator's own namespace in a cluster, the context's elsewhere."""
    certificate_authority: Pem = Pem()
    client_certificate: Pem = Pem()
    client_key: Pem = Pem()
    verified: bool = True
    """Whether the API server's certificate is verified."""
    server_name: str | None = None
    """The expected name in the API server's certificate, if it differs from the address."""
    proxy: str | None = None
    """The kubeconfig's `proxy-url`."""
    impersonation: Impersonation = OURSELVES


class Identity(Protocol):
    """Our credentials: the value of the Authorization header."""

    @property
    def is_current(self) -> bool:
        """Whether `authorization` can answer at once, without reading a file or running a program."""

    def authorization(self) -> str | None:
        """Return the value; None with a client certificate.

        Raises:
            CredentialsError: there are no credentials now.
            OSError: a file can't be read.
        """


class FixedIdentity:
    """Credentials that never change."""

    is_current: Final = True

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    def authorization(self) -> str | None:
        """Return the value."""
        return self._value


class TokenFile:
    """A token in a file, read again every minute, because the kubelet replaces a pod's token before it expires."""

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        """Read the file when it is first needed."""
        self._path = path
        self._clock = clock
        self._value = ""
        self._read_at_seconds = -inf

    @property
    def is_current(self) -> bool:
        """Whether it was read within the last minute."""
        return self._clock() - self._read_at_seconds < TOKEN_SECONDS

    def authorization(self) -> str:
        """Return the value, and read the file again if it is time.

        Raises:
            CredentialsError: the file is empty.
            OSError: it can't be read.
        """
        if not self.is_current:
            token = self._path.read_text(encoding="utf-8").strip()
            if not token:
                raise CredentialsError(f"the token file {self._path} is empty")
            self._value, self._read_at_seconds = f"Bearer {token}", self._clock()
        return self._value


_log: Final = get_logger(__name__)

LOOK_SECONDS: Final = 60.0
"""How long files count as unchanged. client-go looks every 5 minutes (transport/ca_rotation.go)."""


class TlsContext:
    """The TLS context for connections to an API server.

    The kubelet replaces a pod's `ca.crt` when the cluster's authority changes, and others the files that a kubeconfig
    names. Then there is another context, so that new connections are made with it.
    """

    def __init__(self, endpoint: Endpoint, clock: Callable[[], float] = monotonic) -> None:
        """Read the files.

        Raises:
            OSError: a file can't be read, or (ssl.SSLError) is not a certificate.
        """
        self._endpoint = endpoint
        self._clock = clock
        self._looked_at_seconds = clock()
        self._trouble = ""
        self._content = _read(endpoint)
        self.current = _context(endpoint, self._content)
        """For new connections."""

    @property
    def is_current(self) -> bool:
        """Whether the files were read within the last minute, and nothing has been refused since."""
        return self._clock() - self._looked_at_seconds < LOOK_SECONDS

    def doubt(self) -> None:
        """Read the files again before the next request: the API server's certificate, or ours, was refused."""
        self._looked_at_seconds = -inf

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


_Content = tuple[bytes | None, ...]
"""Of the authority, our certificate, and its key."""


def _read(endpoint: Endpoint) -> _Content:
    return tuple(map(_bytes, (endpoint.certificate_authority, endpoint.client_certificate, endpoint.client_key)))


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
    authority, certificate, key = content
    context = ssl.create_default_context(cadata=authority.decode("ascii", errors="replace") if authority else None)
    context.set_alpn_protocols(["http/1.1"])
    # urllib3 sets them for each connection, which frees those that another thread copies for its own.
    context.set_alpn_protocols = lambda alpn_protocols: None  # type: ignore[method-assign]  # noqa: ARG005
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    if not endpoint.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and key:
        with _in_file(certificate) as certificate_file, _in_file(key) as key_file:
            context.load_cert_chain(certificate_file, key_file)
    return context


@contextmanager
def _in_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file, because Python reads a client certificate only from files.

    On Linux the file is in memory: there is no folder to write to in a container, and a key should not be on a disk.
    """
    linux = sys.platform == "linux"
    with os.fdopen(os.memfd_create("pem"), "wb") if linux else tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}" if linux else file.name
