"""Requests to the API server by aiohttp: status, body, what its answers mean, and errors on the way.

The official client is not used: building its models takes longer than the API server's answer, its exceptions hide
whether a request was sent, and importing it costs a quarter of the operator's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import Enum, auto
from functools import cache, partial
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from respread.kube.access import ClusterAccess
from respread.kube.credentials import CredentialsError
from respread.lean_process import no_authorities

with no_authorities():
    import aiohttp

Method = Literal["DELETE", "GET", "PATCH", "POST", "PUT"]

Observe = Callable[[Method, str, int | None, float], None]
"""Told of each request that was sent: method, resource, status code (None: no answer) and seconds until the answer."""

TIMEOUT_SECONDS: Final = 10.0
"""For everything from getting credentials to the last byte of the answer, unless a caller says otherwise."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
CONNECTIONS: Final = 100
"""The maximum number of connections of the operator, those of the Lease aside."""
_CONTENT_TYPES: Final = {"PATCH": "application/merge-patch+json"}
"""Of bodies that are no plain JSON, by method."""
_LEAST_TIMEOUT_SECONDS: Final = 0.05
"""aiohttp interprets 0 as no limit."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the API server."""

    status_code: int
    body: bytes
    retry_after_seconds: float | None = None
    sent: bool = True
    """Whether the request was sent. False: it is known that the permission for it is missing."""

    @property
    def meaning(self) -> Meaning:
        """What it means."""
        return meaning_of(self.status_code)

    @property
    def succeeded(self) -> bool:
        """Whether the request succeeded."""
        return self.meaning is Meaning.DONE

    @property
    def refusal(self) -> str:
        """Its code and the API server's words, for a sentence."""
        return f"{self.status_code}, {status_of(self.body).message or 'no reason given'}"


class Gate(Protocol):
    """Knows which requests would certainly be refused. They are not sent."""

    async def refusal(self, method: Method, path: str, names: Mapping[str, str]) -> Response | None:
        """Return the answer to a request that would be refused; None to send it."""

    def answered(self, method: Method, path: str, names: Mapping[str, str], response: Response) -> None:
        """Take over the answer to a request that was sent."""


class NoResponseError(Exception):
    """The API server did not answer. If `sent`, the request may have reached it and been carried out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent


class TooLargeError(Exception):
    """An answer has more bytes than were wanted. The rest of it was not read."""


class _Prepared(NamedTuple):
    method: Method
    path: str
    names: Mapping[str, str]
    options: Mapping[str, Any]
    """The arguments for the session."""
    deadline: float
    """When the answer must have arrived, on the event loop's clock."""
    refusal: Response | None
    """The answer if it is not to be sent."""


class PreparedRequest:
    """A request with its credentials. Sending it waits only for the connection and the answer."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[int | None], Awaitable[Response]]) -> None:
        """Hold a request ready; see `Requests.prepare`. `send` is given the maximum size of the answer."""
        self._send = send

    async def send(self, *, most_bytes: int | None = None) -> Response:
        """Send it once, and return the answer, whatever the status code.

        The answer may have `most_bytes`; None is any number.

        Raises:
            NoResponseError: no answer, or not all of it, arrived, or its time was over before it was sent.
            TooLargeError: the answer has more bytes.
        """
        return await self._send(most_bytes)


class Requests:
    """Makes requests to the API server. Nothing is ever sent twice: the caller decides whether to try again.

    A caller that must check something right before a request is sent prepares it, checks, and sends it. Others use
    `send`.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: ClusterAccess,
        on_unauthorized: Callable[[], Awaitable[None]] | None = None,
        observe: Observe = lambda *_: None,
        gate: Gate | None = None,
    ) -> None:
        """Create it; `open_requests` also creates the session.

        `on_unauthorized` is called after an answer 401, to load other credentials for the next request. It is cancelled
        if it takes longer than the request's timeout. `observe` is called for each request that was sent.
        """
        self._session = session
        self._access = access
        self._gate = gate
        self._on_unauthorized = on_unauthorized
        self._observe = observe

    def through(self, gate: Gate) -> Requests:
        """Return what sends requests over the same connections, except those that a gate refuses."""
        return Requests(self._session, self._access, self._on_unauthorized, self._observe, gate)

    async def refusal(self, method: Method, path: str, names: Mapping[str, str]) -> Response | None:
        """Return the answer to a request that would certainly be refused; None if it would be sent."""
        return None if self._gate is None else await self._gate.refusal(method, path, names)

    async def prepare(
        self,
        method: Method,
        path: str,
        names: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> PreparedRequest:
        """Return a request that is ready to be sent, with its credentials, which may take long to get.

        The path is a template such as `/api/v1/namespaces/{namespace}/pods/{name}`, whose names are quoted. A body is
        sent as JSON, for a PATCH as a merge patch, unless it has another content type. The time is for everything, from
        getting credentials to the last byte of the answer, which is always JSON.

        Raises:
            NoResponseError: there are no credentials.
        """
        total_seconds = max(timeout_seconds, _LEAST_TIMEOUT_SECONDS)
        deadline = asyncio.get_running_loop().time() + total_seconds
        refusal = await self.refusal(method, path, names)
        headers = [("Accept", accept), *self._access.impersonation.headers()]
        if body is not None:
            headers.append(("Content-Type", content_type or _CONTENT_TYPES.get(method, "application/json")))
        authorization = await self._authorization(deadline)
        if authorization is not None:
            headers.append(("Authorization", authorization))
        quoted = {name: quote(value, safe="") for name, value in names.items()}
        url = self._access.endpoint.server + path.format_map(quoted)
        options = {
            "method": method,
            "url": URL(f"{url}?{urlencode(query)}" if query else url, encoded=True),
            "data": None if body is None else msgspec.json.encode(dict(body)),
            "headers": headers,
            "allow_redirects": False,  # The other server would receive our credentials.
            "ssl": self._access.ssl_context,
            "server_hostname": self._access.endpoint.server_name,
            "proxy": self._access.proxy,
        }
        return PreparedRequest(partial(self._send, _Prepared(method, path, names, options, deadline, refusal)))

    async def _send(self, prepared: _Prepared, most_bytes: int | None) -> Response:
        if prepared.refusal is not None:
            return prepared.refusal
        clock = asyncio.get_running_loop().time
        started, status_code = clock(), None
        left_seconds = prepared.deadline - started
        if left_seconds <= 0:  # The process was frozen in between, and others may do its work by now.
            raise NoResponseError("its time was over before it was sent", sent=False)
        timeout = aiohttp.ClientTimeout(total=left_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, left_seconds))
        try:
            async with self._session.request(**prepared.options, timeout=timeout) as raw:
                content = await _content(raw, most_bytes)
                status_code = raw.status
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            if isinstance(error, aiohttp.ClientSSLError):
                self._access.certificate_refused()
            raise NoResponseError(f"the API server could not be reached: {_words(error)}", sent=False) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise NoResponseError(f"the API server did not answer: {_words(error)}", sent=True) from error
        finally:
            self._observe(prepared.method, resource_of(prepared.path), status_code, clock() - started)
        if raw.status == HTTPStatus.UNAUTHORIZED and self._on_unauthorized is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(prepared.deadline):
                    await self._on_unauthorized()
        response = Response(
            status_code=raw.status,
            body=content,
            retry_after_seconds=retry_after_seconds(raw.headers.get("Retry-After")),
        )
        if self._gate is not None:
            self._gate.answered(prepared.method, prepared.path, prepared.names, response)
        return response

    async def _authorization(self, deadline: float) -> str | None:
        """Return the value of the header, which may take long to get: files are read, plugins run."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._access.authorization()
        except (CredentialsError, OSError) as error:  # TimeoutError is a subclass of OSError.
            raise NoResponseError(
                f"there are no credentials for the API server: {_words(error)}", sent=False
            ) from error

    async def send(
        self,
        method: Method,
        path: str,
        names: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        timeout_seconds: float = TIMEOUT_SECONDS,
        most_bytes: int | None = None,
    ) -> Response:
        """Prepare a request, send it, and return the answer, whatever the status code; see `prepare`.

        Raises:
            NoResponseError: no answer, or not all of it, arrived.
            TooLargeError: the answer has more than `most_bytes`.
        """
        request = await self.prepare(
            method, path, names, query=query, body=body, accept=accept, timeout_seconds=timeout_seconds
        )
        return await request.send(most_bytes=most_bytes)


async def _content(response: aiohttp.ClientResponse, most_bytes: int | None) -> bytes:
    if most_bytes is None:
        return await response.read()
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most_bytes:
            response.close()
            raise TooLargeError(f"an answer of more than {most_bytes} bytes")
    return bytes(content)


@contextlib.asynccontextmanager
async def open_requests(
    access: ClusterAccess,
    on_unauthorized: Callable[[], Awaitable[None]] | None = None,
    observe: Observe = lambda *_: None,
    *,
    connections: int = CONNECTIONS,
) -> AsyncIterator[Requests]:
    """Send requests over connections that last as long as the context. For the other arguments see `Requests`.

    More requests than connections wait for one.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        # Compressing answers costs the API server more than it saves on the network.
        headers={"User-Agent": "respread", "Accept-Encoding": "identity"},
    ) as session:
        yield Requests(session, access, on_unauthorized, observe)


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header in seconds, as Kubernetes writes it. A date, as proxies may write, is ignored."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


@cache
def resource_of(path: str) -> str:
    """Return the resource that a path's template is about, with its subresource: `pods/eviction`."""
    parts = path.strip("/").split("/")
    parts = parts[{"api": 2, "apis": 3}.get(parts[0], 0) :]
    if parts[:2] == ["namespaces", "{namespace}"]:
        parts = parts[2:]
    return "/".join(part for part in parts if not part.startswith("{"))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


_MESSAGE_LENGTH: Final = 500


class Meaning(Enum):
    """What the code of an answer means, whatever was requested."""

    DONE = auto()
    ABSENT = auto()
    """The object, its namespace or the whole resource does not exist."""
    CONFLICT = auto()
    """The object is another one than the request assumes: it exists, has changed, or belongs to somebody else."""
    FORBIDDEN = auto()
    """By RBAC or by admission."""
    UNAUTHORIZED = auto()
    """Nothing was done, and with renewed credentials it may be."""
    THROTTLED = auto()
    """Nothing was done, and later it may be."""
    REFUSED = auto()
    """Nothing was done, and the same request would be refused again."""
    UNCERTAIN = auto()
    """It may have been done, and the next attempt may succeed."""


_MEANINGS: Final[Mapping[int, Meaning]] = {
    HTTPStatus.NOT_FOUND: Meaning.ABSENT,
    HTTPStatus.CONFLICT: Meaning.CONFLICT,
    HTTPStatus.FORBIDDEN: Meaning.FORBIDDEN,
    HTTPStatus.UNAUTHORIZED: Meaning.UNAUTHORIZED,
    HTTPStatus.TOO_MANY_REQUESTS: Meaning.THROTTLED,
    HTTPStatus.REQUEST_TIMEOUT: Meaning.UNCERTAIN,
}


def meaning_of(status_code: int) -> Meaning:
    """Return what the code of an HTTP response means."""
    if HTTPStatus.OK <= status_code < HTTPStatus.MULTIPLE_CHOICES:
        return Meaning.DONE
    refused = HTTPStatus.BAD_REQUEST <= status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    return _MEANINGS.get(status_code, Meaning.REFUSED if refused else Meaning.UNCERTAIN)


class _StatusCause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    """Actually the plural name of the object's resource."""
    causes: tuple[_StatusCause, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """A `metav1.Status`, which the API server returns instead of an object."""

    message: str = ""
    reason: str = ""
    details: _StatusDetails | None = None

    def has_cause(self, reason: str) -> bool:
        """Return whether it names a cause of that kind."""
        return self.details is not None and any(each.reason == reason for each in self.details.causes)

    def is_about(self, kind: str) -> bool:
        """Return whether it is about an object of that resource."""
        return self.details is not None and self.details.kind == kind


def status_of(body: bytes) -> Status:
    """Read the body of an answer. If it is not a `metav1.Status`, such as a proxy's page, it becomes the message."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(message=body[:_MESSAGE_LENGTH].decode("utf-8", "replace").strip())
