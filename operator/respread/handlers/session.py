"""The HTTP session for Kopf. It decodes lists and events before Kopf sees them.

Kopf lists each kind page by page before it watches it, and would create a task for every object. This session decodes
each page: the informer of the kind gets the objects, and Kopf gets the page without them, with the version to watch
from. From then on, Kopf calls the handlers for every change. The objects of events are decoded here too.

Kopf asks by discovery, once, which kinds there are. Respread knows, and an API server that has just started, or is
behind another one, may not. So Kopf gets the watched kinds, whatever the API server answers.

Many answers make Kopf end the process although the cluster recovers from them. The session handles them itself:

- 410 for a page of a list, whose continue token has expired: the list is started again.
- 403, 404 and any other refusal of a list of a watched kind: the session asks again at growing intervals, with a
  message that says what to do. A redirection counts as a refusal, and is not followed. So does 429, because Kopf can't
  parse its Retry-After if a proxy writes it as a date.
- 410 and any other refusal of a watch, which may be caused by its version: Kopf sees a watch that ends with 410, and
  lists the kind again.
- A watch of a kind of which nothing was heard for long: the same. Its version alone does not show the state: bookmarks
  may never come, a proxy may hold events back, and after etcd was restored from a backup, a watch from a later version
  is silent.
- A page that is not a list: Kopf sees a failed transfer, and lists again.
- Answers that are not HTTP, a proxy's refusal, unreadable credentials, an answer of a session that Kopf has closed
  because credentials were rejected: Kopf sees a lost connection.

Everything else (refused or lost connections, 5xx) is left to Kopf's own retries, which never end with our settings, and
401 to its login handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import aiohttp
from yarl import URL

from respread.cluster.decode.decoder import Kind
from respread.cluster.objects import DecodeError
from respread.cluster.stores import POLICY_KINDS, full_name
from respread.handlers.informer import Informer, unread_bytes
from respread.handlers.watch_stream import expired, or_lost, whole_lines
from respread.kube.access import ClusterAccess
from respread.kube.credentials import CredentialsError
from respread.kube.listing import PageSize
from respread.kube.requests import retry_after_seconds, status_of
from respread.kube.retry import Outage
from respread.telemetry.logs import get_logger

if TYPE_CHECKING:
    from aiohttp.connector import Connection

_log: Final = get_logger(__name__)

_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
"""The limit for Retry-After. Liveness gives a kind 180 s."""
_MOST_UNREAD_BYTES: Final = 1 << 20
"""From this size on, a connection is not read from: more than comes while a watch collects events."""


def open_session(access: ClusterAccess, informers: Mapping[str, Informer]) -> aiohttp.ClientSession:
    """Return a session for Kopf that passes lists to informers. Call it within the event loop.

    The informers are those of each watched collection's path (`/api/v1/pods`). Other answers are returned unchanged.
    """
    prefix = URL(access.endpoint.server).path.rstrip("/")
    wires = {prefix + path: _Wire(informer, Outage(), PageSize()) for path, informer in informers.items()}
    served = {prefix + path: document for path, document in _served(each.kind for each in informers.values()).items()}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=_MOST_UNREAD_BYTES,
        request_class=_request_class(access),
        # Compressing a page costs the API server far more than sending it uncompressed costs the network.
        headers=(("User-Agent", "respread"), ("Accept-Encoding", "identity"), *access.impersonation.headers()),
        response_class=_response_class(wires),
        middlewares=(_Patience(wires, served), _Sender(access)),
        proxy=access.proxy,
    )


def _request_class(access: ClusterAccess) -> type[aiohttp.ClientRequest]:
    class Request(aiohttp.ClientRequest):
        """A request over TLS as the access says now: the files of certificates may change while the session lasts."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "ssl": access.ssl_context})

    return Request


class _Wire(NamedTuple):
    """One kind's informer, its current or past obstacle, and the size of its pages."""

    informer: Informer
    outage: Outage
    page_size: PageSize


def _response_class(wires: Mapping[str, _Wire]) -> type[_Response]:
    class Response(_Response):
        """A response that passes its content to the informer of its kind."""

        async def start(self, connection: Connection) -> aiohttp.ClientResponse:
            """Start to read. For a watch, read only whole lines."""
            await super().start(connection)
            wire = wires.get(self.url.path)
            if wire is not None and self.status == HTTPStatus.OK and "watch" in self.url.query:
                # Kopf reads it by iter_chunked, and aiohttp itself only sets exceptions on it.
                unread = partial(unread_bytes, connection.transport)
                stream = whole_lines(self.content, wire.informer, wire.outage.retry, unread)
                self.content = cast("aiohttp.StreamReader", stream)
                self._is_watch = True
            return self

        async def json(self, **options: Any) -> Any:
            """Return the document; for a page of a watched kind without its items, which the informer takes."""
            wire = wires.get(self.url.path)
            if wire is None or self.status != HTTPStatus.OK:
                return await super().json(**options)
            body = await self._page(wire)
            try:
                remainder = wire.informer.take_page(body)
            except DecodeError as error:
                seconds = wire.outage.retry.failed()
                _log.warning("A page is not a list; listing again", fault=str(error), wait_seconds=round(seconds, 1))
                await asyncio.sleep(seconds)
                raise aiohttp.ClientPayloadError(str(error)) from error
            return remainder

        async def _page(self, wire: _Wire) -> bytes:
            """Return the whole body, unless the page is too large, or takes too long."""
            body, kind = bytearray(), wire.informer.kind.resource
            try:
                async for chunk in or_lost(self.content.iter_any()):
                    body += chunk
                    if wire.page_size.is_too_large(len(body)):
                        wire.page_size.refused()
                        self.close()
                        objects = wire.page_size.objects
                        _log.info("A page is too large; listing again with smaller ones", kind=kind, objects=objects)
                        raise aiohttp.ClientPayloadError(f"the page of {kind} is too large")
            except TimeoutError:
                wire.page_size.was_slow()
                objects = wire.page_size.objects
                _log.warning("A page took too long; listing again with smaller ones", kind=kind, objects=objects)
                raise
            wire.page_size.took(len(body))
            return bytes(body)

    return Response


class _Response(aiohttp.ClientResponse):
    """A response that Kopf can always handle."""

    _is_watch = False
    _served: Mapping[str, Any] | None = None

    def close(self) -> None:
        """Close the connection at once. A TLS shutdown would continue after everything else has ended."""
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()

    def release(self) -> Any:
        """Return the connection to the pool. The connection of a watch, which has no end, is closed."""
        if self._is_watch:
            self.close()
        return super().release()

    async def json(self, **options: Any) -> Any:
        """Return the document. A refusal is always a Status, because Kopf can't handle some others from proxies."""
        if self._served is not None:
            self.release()
            return self._served
        if self.status < HTTPStatus.BAD_REQUEST:
            return await super().json(**{**options, "content_type": None})
        return {"kind": "Status", "code": self.status, "message": await _message_of(self)}

    def expire(self) -> None:
        """Become a watch that ends at once because its version is too old."""
        self.status = HTTPStatus.OK
        self.content = cast("aiohttp.StreamReader", expired(self.content))

    def serve(self, document: Mapping[str, Any]) -> None:
        """Become an answer with this document."""
        self.status = HTTPStatus.OK
        self._served = document


class _Sender:
    """The middleware that adds our credentials, for the API server only."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._origin = URL(access.endpoint.server).origin()

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if request.url.origin() != self._origin:
            raise aiohttp.ClientConnectionError(
                f"the API server at {self._origin} redirects to {request.url.origin()}, which would get our credentials"
            )
        try:
            authorization = await self._access.authorization()
        except (CredentialsError, OSError) as error:
            raise aiohttp.ClientConnectionError(f"there are no credentials for the API server: {error}") from error
        if request.session.closed:  # Meanwhile Kopf logs in again. It can handle this error.
            raise RuntimeError("Session is closed")
        if authorization is not None:
            request.headers["Authorization"] = authorization
        request.server_hostname = self._access.endpoint.server_name
        try:
            return await send(request)
        except aiohttp.ClientSSLError:
            self._access.certificate_refused()
            raise
        except aiohttp.ClientResponseError as error:  # Not HTTP, or a proxy's refusal.
            raise aiohttp.ClientConnectionError(f"the server that answers is not an API server: {error}") from error


class _Patience:
    """The middleware that waits where Kopf would not."""

    def __init__(self, wires: Mapping[str, _Wire], served: Mapping[str, Mapping[str, Any]]) -> None:
        self._wires = wires
        self._served = served

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        wire = self._wires.get(request.url.path)
        if wire is None:
            return await self._discover(request, send)
        kind = wire.informer.kind
        is_watch = "watch" in request.url.query
        while True:
            wire.informer.health.asked(kind.resource)
            if not is_watch and "continue" not in request.url.query:
                wire.informer.begin_list()
            request.url = _sized(request.url, wire.page_size)
            is_silent = is_watch and wire.informer.health.is_silent(kind.resource)
            response = await send(request)
            if response.status == HTTPStatus.OK or _is_left_to_kopf(response.status):
                return self._granted(wire, response, is_silent=is_silent)
            if response.status == HTTPStatus.GONE and is_watch:
                _log.info("The version to watch from is too old; listing again", kind=kind.resource)
                await asyncio.sleep(wire.outage.retry.failed())
            elif response.status == HTTPStatus.GONE and "continue" in request.url.query:
                _log.info("The list took too long for the API server; starting it again", kind=kind.resource)
                request.url = request.url.without_query_params("continue")
                response.release()
                await asyncio.sleep(wire.outage.retry.failed())
            else:
                await self._hold(wire, response)
            if is_watch and response.status not in _SAME_AGAIN:
                return _expired(response)

    def _granted(self, wire: _Wire, response: aiohttp.ClientResponse, *, is_silent: bool) -> aiohttp.ClientResponse:
        """Note that a request was granted, and return what Kopf gets."""
        if response.status != HTTPStatus.OK:
            return response
        kind = wire.informer.kind.resource
        wire.outage.over()
        wire.informer.health.answered(kind)
        if not is_silent:
            return response
        _log.info("Nothing was heard of a kind for long; listing again", kind=kind)
        return _expired(response)

    async def _hold(self, wire: _Wire, response: aiohttp.ClientResponse) -> None:
        """Report the obstacle, then wait before asking again."""
        kind = wire.informer.kind
        message = await _message_of(response)
        name = full_name(kind)
        if response.status == HTTPStatus.FORBIDDEN:
            problem = f"not allowed to list and watch {name}: grant both, as manifests/ does. {message}"
        elif response.status != HTTPStatus.NOT_FOUND:
            problem = f"the API server answers {response.status} to who lists and watches {name}. {message}"
        elif kind in POLICY_KINDS:
            wire.informer.forget()
            problem = f"the CustomResourceDefinition {name} is gone: kubectl apply -f crds/. {message}"
        else:
            problem = f"{name} are not served by this API server in version {kind.version}. {message}"
        problem = problem.strip()
        wire.informer.health.hindered(kind.resource, problem)
        await wire.outage.wait(
            "A kind can't be watched; asking again until it can",
            problem,
            of=kind.resource,
            at_least_seconds=min(
                retry_after_seconds(response.headers.get("Retry-After")) or 0.0, _LONGEST_RETRY_AFTER_SECONDS
            ),
        )

    async def _discover(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Answer what Kopf asks by discovery, unless it has to log in, or tries again anyway."""
        for wire in self._wires.values():
            wire.informer.health.asked(wire.informer.kind.resource)
        response = await send(request)
        document = self._served.get(request.url.path)
        if document is not None and not _is_left_to_kopf(response.status):
            cast("_Response", response).serve(document)
        return response


def _served(kinds: Iterable[Kind]) -> dict[str, dict[str, Any]]:
    """Return the documents of discovery for these kinds, by path."""
    groups: dict[str, dict[str, Any]] = {}
    resources: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        served = resources.setdefault(kind.path.removesuffix(f"/{kind.resource}"), {"resources": []})
        served["resources"].append(
            {
                "name": kind.resource,
                "kind": kind.kind,
                "singularName": "",
                "namespaced": kind.namespaced,
                "verbs": ["list", "watch"],
            }
        )
        if kind.group:
            version = {"version": kind.version}
            groups[kind.group] = {"name": kind.group, "versions": [version], "preferredVersion": version}
    return {"/api": {"versions": ["v1"]}, "/apis": {"groups": [*groups.values()]}, **resources}


_LEAST_UNKNOWN: Final = 600
"""Status codes from here on have no meaning in HTTP."""
_SAME_AGAIN: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals of a watch that are independent of its version."""


def _sized(url: URL, page_size: PageSize) -> URL:
    """Return the URL of a page, with at most this many objects. A watch has no pages."""
    limit = url.query.get("limit")
    return url if limit is None else url.update_query(limit=min(int(limit), page_size.objects))


def _is_left_to_kopf(status: int) -> bool:
    """Whether Kopf logs in after an answer, or tries again, as often as the settings say."""
    return status == HTTPStatus.UNAUTHORIZED or HTTPStatus.INTERNAL_SERVER_ERROR <= status < _LEAST_UNKNOWN


def _expired(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """Make a refused watch look like one that ended. The session creates only its own responses."""
    cast("_Response", response).expire()
    return response


async def _message_of(response: aiohttp.ClientResponse) -> str:
    """Return the message of a refusal, and release the response."""
    try:
        return status_of(await response.read()).message
    except aiohttp.ClientError:
        return ""
    finally:
        response.release()
