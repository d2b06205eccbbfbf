"""The HTTP session that Kopf works with, and through which the bulk of the cluster comes past Kopf.

Kopf lists each kind page by page before it watches it, and would make a task of every object. Here each page is read on
its way: its objects go to the kind's feed, and Kopf gets the page without them, with the version to watch from. It then
calls the handlers for every change from there on; the object of each is read as it comes past, too.

Some answers make Kopf end the process, though the cluster gets over them; the session waits them out itself:

- 410 for a page of a LIST, whose continue token has expired: the list is begun anew.
- 403, 404 and any other refusal (4xx) of a list of a watched kind: asked again, at growing intervals, with a message
  that says what to do.
- A page that is no list: Kopf is told that the transfer failed, and lists anew.

Everything else - connections refused or lost, 429, 5xx - is left to Kopf's own retries, which by our settings never
end; and 401 to its login handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
from yarl import URL

from respread.cluster.errors import DecodeError
from respread.handlers.access import ClusterAccess
from respread.handlers.backoff import Backoff
from respread.handlers.feed import Feed
from respread.handlers.resources import POLICY_KINDS, full_name
from respread.handlers.watch_stream import WatchStream
from respread.telemetry.logs import get_logger

if TYPE_CHECKING:
    from aiohttp.connector import Connection

_log: Final = get_logger(__name__)


def open_session(access: ClusterAccess, feeds: Mapping[str, Feed]) -> aiohttp.ClientSession:
    """Return a session for Kopf that feeds what is listed; call it within the event loop.

    Args:
        access: The API server, and who we are to it.
        feeds: For each watched collection's path (`/api/v1/pods`), where its objects go.
    """
    prefix = URL(access.server).path.rstrip("/")
    wires = {prefix + path: _Wire(feed) for path, feed in feeds.items()}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=access.ssl_context),
        # Compressing a page costs the API server far more than sending it as it is does the network.
        headers={"User-Agent": "respread", "Accept-Encoding": "identity"},
        response_class=_response_class(wires),
        middlewares=(_Translator(access, wires),),
        proxy=access.proxy,
        trust_env=access.proxy is None,
    )


class _Wire:
    """One kind's feed, and what is or was in its way."""

    __slots__ = ("backoff", "feed", "problem")

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.backoff = Backoff()
        self.problem = ""
        """As logged; empty once a request was granted."""


def _response_class(wires: Mapping[str, _Wire]) -> type[aiohttp.ClientResponse]:
    class Response(aiohttp.ClientResponse):
        """A response that hands what it carries to the feed of its kind."""

        _is_watch = False

        async def start(self, connection: Connection) -> aiohttp.ClientResponse:
            """Begin to read; of a watch, whole lines only."""
            await super().start(connection)
            wire = wires.get(self.url.path)
            if wire is not None and self.status == HTTPStatus.OK and "watch" in self.url.query:
                # Kopf reads it by iter_chunked, and aiohttp itself only sets exceptions on it.
                self.content = cast("aiohttp.StreamReader", WatchStream(self.content, wire.feed, wire.backoff))
                self._is_watch = True
            return self

        def close(self) -> None:
            """End the connection at once: a farewell by TLS would go on when everything else has ended."""
            if self.connection is not None and self.connection.transport is not None:
                self.connection.transport.abort()
            super().close()

        def release(self) -> Any:
            """Give the connection back; that of a watch, which has no end, is closed."""
            if self._is_watch:
                self.close()
            return super().release()

        async def json(self, **options: Any) -> Any:
            """Return the document; of a page of a watched kind, all but its items, which are taken over."""
            wire = wires.get(self.url.path)
            if wire is None or self.status != HTTPStatus.OK:
                return await super().json(**options)
            body = await self.read()
            try:
                remainder = wire.feed.take_page(body)
            except DecodeError as error:
                seconds = wire.backoff.failed()
                _log.warning("A page is no list; listing anew", fault=str(error), wait_seconds=round(seconds, 1))
                await asyncio.sleep(seconds)
                raise aiohttp.ClientPayloadError(str(error)) from error
            wire.backoff.succeeded()
            return remainder

    return Response


class _Translator:
    """The middleware that says who we are, and waits out what Kopf would not."""

    def __init__(self, access: ClusterAccess, wires: Mapping[str, _Wire]) -> None:
        self._access = access
        self._wires = wires

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        wire = self._wires.get(request.url.path)
        if wire is None:
            await self._identify(request)
            return await send(request)
        kind = wire.feed.kind
        while True:
            await self._identify(request)
            wire.feed.health.asked(kind.resource)
            if "watch" not in request.url.query and "continue" not in request.url.query:
                wire.feed.begin_list()
            response = await send(request)
            if response.status == HTTPStatus.GONE and "continue" in request.url.query:
                request.url = request.url.without_query_params("continue")
                _log.info("The list took too long for the API server; beginning it anew", kind=kind.resource)
                response.release()
            elif _is_held(request, response.status):
                await self._hold(wire, response)
            else:
                if response.status == HTTPStatus.OK:
                    wire.problem = ""
                    wire.feed.health.answered(kind.resource)
                return response

    async def _identify(self, request: aiohttp.ClientRequest) -> None:
        authorization = await self._access.authorization()
        if request.session.closed:  # meanwhile, by Kopf, to log in anew: of this error it knows what to do
            raise RuntimeError("Session is closed")
        if authorization is not None:
            request.headers["Authorization"] = authorization
        if self._access.server_name is not None:
            request.server_hostname = self._access.server_name

    async def _hold(self, wire: _Wire, response: aiohttp.ClientResponse) -> None:
        """Say what is in the way, then wait before asking again."""
        kind = wire.feed.kind
        message = await _message_of(response)
        name = full_name(kind)
        if response.status == HTTPStatus.FORBIDDEN:
            problem = f"not allowed to list and watch {name}: grant both, as manifests/ does. {message}"
        elif response.status != HTTPStatus.NOT_FOUND:
            problem = f"the API server answers {response.status} to who lists and watches {name}. {message}"
        elif kind in POLICY_KINDS:
            wire.feed.forget()
            problem = f"the CustomResourceDefinition {name} is gone: kubectl apply -f crds/. {message}"
        else:
            problem = f"{name} are not served by this API server in version {kind.version}. {message}"
        problem = problem.strip()
        wire.feed.health.hindered(kind.resource, problem)
        if wire.problem != problem:
            wire.problem = problem
            _log.error("A kind can't be watched; asking again until it can", kind=kind.resource, problem=problem)
        await asyncio.sleep(wire.backoff.failed())


def _is_held(request: aiohttp.ClientRequest, status: int) -> bool:
    """Whether Kopf would give the process up for an answer, though asking again later may help."""
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return True
    is_list = "watch" not in request.url.query
    refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    return is_list and refused and status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)


async def _message_of(response: aiohttp.ClientResponse) -> str:
    """Return the message of a Status, and be done with the response."""
    try:
        document = await response.json(content_type=None)
    except (aiohttp.ClientError, ValueError):
        return ""
    finally:
        response.release()
    message = document.get("message") if isinstance(document, dict) else None
    return message if isinstance(message, str) else ""
