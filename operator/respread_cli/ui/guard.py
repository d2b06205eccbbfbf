"""Decides who may use the page's server: only the browser of the user who started it.

The server listens on the loopback interface only, but every program and every web page on this machine can reach that.
A web page of somebody else can't know the token in the path, can't read answers without CORS headers, and is refused if
it reaches the server under its own name (DNS rebinding) or sends its own Origin.

In a pod, that interface is reached by `kubectl port-forward`, for which Kubernetes asks who it is and what they may do,
and by a proxy in the same pod, which does the same. There a token would only be in the way.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

TOKEN_BYTES: Final = 24

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer."""


def new_token() -> str:
    """Return a secret that goes into the URL."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Guard:
    """Judges requests to one server."""

    def __init__(self, token: str | None, port: int, other_hosts: Iterable[str] = ()) -> None:
        """Create one.

        The token is the secret in the URL; None: whoever reaches the server may read, through any port that is
        forwarded. The other hosts are the names of proxies in front of it.
        """
        self._token = token
        self._port = port
        self._other_hosts = frozenset(other_hosts)

    @property
    def has_token(self) -> bool:
        """Whether the URL contains a token."""
        return self._token is not None

    def _knows(self, host: str) -> bool:
        name, _, port = host.partition(":")
        if name in self._other_hosts:
            return True
        return name in {"127.0.0.1", "localhost"} and (self._token is None or port == str(self._port))

    def refusal(self, headers: Mapping[str, str], token: str) -> str | None:
        """Return why a request is refused; None if it is not.

        The names of headers are in any case. The token is in the first part of the request's path.
        """
        host = headers.get("Host", "")
        if not self._knows(host):
            return "the Host header names another server"
        origin = headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}", f"https://{host}"}:
            return "the request comes from another site"
        if (
            headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}
            and origin is None
            and (headers.get("Sec-Fetch-Mode") != "navigate")
        ):
            return "the request comes from another site"
        if self._token is not None and not hmac.compare_digest(token.encode(), self._token.encode()):
            return "the URL lacks the token that `respread ui` printed"
        return None
