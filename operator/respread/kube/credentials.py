"""The address of the API server and our credentials for it, from any source."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

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

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.path or self.data)


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
        """Return this with what the other one sets in its place, as kubectl's options replace a kubeconfig's fields."""
        return Impersonation(
            other.user or self.user, other.groups or self.groups, other.uid or self.uid, other.extra or self.extra
        )


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

    __slots__ = ("_value",)

    is_current: Final = True

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    @classmethod
    def of_password(cls, username: str, password: str) -> FixedIdentity:
        """Create the credentials for a password."""
        return cls("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii"))

    def authorization(self) -> str | None:
        """Return the value."""
        return self._value


class TokenFile:
    """A token in a file, read again every minute, because the kubelet replaces a pod's token before it expires."""

    __slots__ = ("_clock", "_path", "_read_at_seconds", "_value")

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        """Read the file when it is first needed.

        Args:
            path: the file.
            clock: a monotonic clock in seconds.
        """
        self._path = path
        self._clock = clock
        self._value: str | None = None
        self._read_at_seconds = 0.0

    @property
    def is_current(self) -> bool:
        """Whether it was read within the last minute."""
        return self._value is not None and self._clock() - self._read_at_seconds < TOKEN_SECONDS

    def authorization(self) -> str:
        """Return the value, and read the file again if it is time.

        Raises:
            CredentialsError: the file is empty.
            OSError: it can't be read.
        """
        if self._value is None or not self.is_current:
            token = self._path.read_text(encoding="utf-8").strip()
            if not token:
                raise CredentialsError(f"the token file {self._path} is empty")
            self._value, self._read_at_seconds = f"Bearer {token}", self._clock()
        return self._value
