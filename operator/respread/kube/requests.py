"""Requests to the API server, by aiohttp: status, body and what went wrong on the way.

Not by the official client: its models take longer to build than the API server takes to answer, its exceptions hide
whether a request was ever sent, and to import it costs a quarter of the operator's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from respread.kube.access import ClusterAccess
from respread.kube.credentials import CredentialsError
from respread.lean_imports import no_authorities

with no_authorities():
    import aiohttp

Method = Literal["GET", "PATCH", "POST", "PUT"]

CONNECT_TIMEOUT_SECONDS: Final = 5.0
CONNECTIONS: Final = 100
"""How many there may be at a time; more requests wait for one."""
_CONTENT_TYPES: Final = {"PATCH": "application/merge-patch+json", "POST": "application/json", "PUT": "application/json"}
_LEAST_TIMEOUT_SECONDS: Final = 0.05
"""aiohttp takes 0 for no limit at all."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server answered."""

    status_code: int
    body: bytes
    retry_after_seconds: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it did what it was asked to."""
        return HTTPStatus.OK <= self.status_code < HTTPStatus.MULTIPLE_CHOICES


class NoResponseError(Exception):
    """The API server did not answer.

    Args:
        message: what went wrong on the way.
        sent: whether the request may have reached the API server and been carried out there.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent


class Requests:
    """Sends requests to the API server. Nothing is ever sent twice: who asks decides whether to ask again."""

    __slots__ = ("_access", "_on_unauthorized", "_session")

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: ClusterAccess,
        on_unauthorized: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Send requests; `open_requests` makes the session too.

        Args:
            session: holds the connections; the caller makes and closes it.
            access: the API server, and the credentials as they are at each request.
            on_unauthorized: called after an answer 401, to find other credentials for the next request; cancelled
                where it takes longer than the request was given.
        """
        self._session = session
        self._access = access
        self._on_unauthorized = on_unauthorized

    async def send(
        self,
        method: Method,
        path: str,
        names: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
        timeout_seconds: float,
        last_look: Callable[[], None] = lambda: None,
    ) -> Response:
        """Send one request and return what came back, whatever the status code.

        Args:
            method: the HTTP method.
            path: a template such as `/api/v1/namespaces/{namespace}/pods/{name}`.
            names: what to put into the template; it is quoted.
            query: parameters of the query.
            body: an object to send as JSON.
            content_type: of the body; None: JSON, and for a PATCH a merge patch.
            accept: in which form the answer is wanted; always JSON.
            timeout_seconds: for all of it, from looking for credentials to the last byte of the answer.
            last_look: called when the request is ready, with nothing left to wait for but the connection; what it
                raises is raised, and nothing is sent.

        Raises:
            NoResponseError: no answer came, or not all of it.
        """
        total_seconds = max(timeout_seconds, _LEAST_TIMEOUT_SECONDS)
        deadline = asyncio.get_running_loop().time() + total_seconds
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type or _CONTENT_TYPES[method]
        try:  # credentials are renewed in here: files are read, plugins run
            async with asyncio.timeout_at(deadline):
                authorization = await self._access.authorization()
        except (CredentialsError, OSError) as error:  # TimeoutError is one of the latter
            raise NoResponseError(
                f"there are no credentials for the API server: {_words(error)}", sent=False
            ) from error
        if authorization is not None:
            headers["Authorization"] = authorization
        url = self._access.server + path.format_map({name: quote(value, safe="") for name, value in names.items()})
        left_seconds = max(deadline - asyncio.get_running_loop().time(), _LEAST_TIMEOUT_SECONDS)
        timeout = aiohttp.ClientTimeout(total=left_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, left_seconds))
        last_look()
        try:
            async with self._session.request(
                method,
                URL(f"{url}?{urlencode(query)}" if query else url, encoded=True),
                data=None if body is None else msgspec.json.encode(dict(body)),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,  # whoever is there would get our credentials
                ssl=self._access.ssl_context,
                server_hostname=self._access.server_name,
                proxy=self._access.proxy,
            ) as raw:
                content = await raw.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NoResponseError(f"the API server could not be reached: {_words(error)}", sent=False) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise NoResponseError(f"the API server did not answer: {_words(error)}", sent=True) from error
        if raw.status == HTTPStatus.UNAUTHORIZED and self._on_unauthorized is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._on_unauthorized()
        return Response(
            status_code=raw.status,
            body=content,
            retry_after_seconds=retry_after_seconds(raw.headers.get("Retry-After")),
        )


@contextlib.asynccontextmanager
async def open_requests(
    access: ClusterAccess, on_unauthorized: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[Requests]:
    """Send requests over connections that last as long as the context; for the arguments see `Requests`."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS),
        # To compress what it answers costs the API server more than the network gains.
        headers={"User-Agent": "respread", "Accept-Encoding": "identity"},
    ) as session:
        yield Requests(session, access, on_unauthorized)


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header in seconds, as Kubernetes writes it; a date, as proxies may write, is passed over."""
    try:
        seconds = 0.0 if header is None else float(header)
    except ValueError:
        return None
    return max(0.0, seconds) if header is not None and math.isfinite(seconds) else None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
