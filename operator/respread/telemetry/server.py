"""The HTTP server of `/metrics`, `/livez` and `/readyz`, and one of `/metrics` over TLS, if wanted.

The text of `/metrics` is produced by a thread of its own, once for all clients that wait. With many series this takes
some time, and everybody who reaches the port can request it. So no number of scrapes may use the threads that others
need, block the event loop, or use more memory than a few scrapes.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from respread.lean_process import no_authorities
from respread.telemetry.health import HealthReport
from respread.telemetry.logs import get_logger
from respread.telemetry.tls import ServedCertificate, accept_over_tls, listening_socket

with no_authorities():
    from aiohttp import hdrs, web
    from aiohttp.http_exceptions import HttpProcessingError
    from aiohttp.typedefs import Handler


_HIGHEST_PORT = 65535


class ListenAddress(msgspec.Struct, frozen=True):
    """A host and a TCP port."""

    host: str
    """Empty for all addresses of the machine, IPv4 and IPv6."""
    port: int
    """0 for any free port."""

    def __str__(self) -> str:
        """Return it in the form of the option, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Return the address in `host:port`, `:port` or `[IPv6]:port`.

    Raises:
        ValueError: It has none of these forms. The message says what is expected.
    """
    match = re.fullmatch(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+(?:%\w+)?)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} is not a listen address: expected host:port, :port or [IPv6]:port, such as :8080")
    return ListenAddress(match["ipv6"] or match["host"] or "", int(match["port"]))


WAIT_SECONDS: Final = 8.0
"""How long a scrape waits for its text. Prometheus itself waits for ten seconds."""
_VERSION: Final = re.compile(r"version=([0-9]{0,3})[^;,]*")
"""A version in an Accept header. The client library compares it as it is, which fails for words, and repeats it in the
Content-Type, so that each would be a format of its own."""
_COMPRESSION_LEVEL: Final = 1
"""The fastest level: series still compress tenfold."""


class BusyError(Exception):
    """The text could not be produced in time."""


class Exposed(NamedTuple):
    """The answer of `/metrics`."""

    body: bytes
    content_type: str


_Format = tuple[str, bool]


class Exposition:
    """Produces the text of a registry, one at a time, for all clients that requested it before it was started."""

    def __init__(self, registry: CollectorRegistry, *, wait_seconds: float = WAIT_SECONDS) -> None:
        """Expose a registry. A client waits for at most `wait_seconds`."""
        self._registry = registry
        self._wait_seconds = wait_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrape")
        self._one_at_a_time = asyncio.Lock()
        self._next: dict[_Format, asyncio.Task[Exposed]] = {}
        """By format, the text that is not started yet."""

    def __enter__(self) -> Self:
        """Start the thread."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop without waiting for a text in production."""
        for task in self._next.values():
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def text(self, accept: str, *, compressed: bool) -> Exposed:
        """Return the text as of now or later. The Accept header selects the format.

        Raises:
            BusyError: it could not be produced in time.
        """
        encode, content_type = choose_encoder(_VERSION.sub(_known_version, accept))
        wanted = (content_type, compressed)
        task = self._next.get(wanted)
        if task is None:
            task = self._next[wanted] = asyncio.create_task(self._make(wanted, encode))
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asyncio.shield(task)  # Others may wait for it too.
        except TimeoutError as error:
            raise BusyError(f"the metrics could not be collected within {self._wait_seconds:g} s") from error

    async def _make(self, wanted: _Format, encode: Callable[[CollectorRegistry], bytes]) -> Exposed:
        content_type, compressed = wanted
        async with self._one_at_a_time:
            del self._next[wanted]
            work = partial(_encoded, encode, self._registry, compressed=compressed)
            body = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        return Exposed(body, content_type)


def _known_version(asked: re.Match[str]) -> str:
    return "version=1.0.0" if int(asked[1] or "0") else "version=0.0.4"


def _encoded(encode: Callable[[CollectorRegistry], bytes], registry: CollectorRegistry, *, compressed: bool) -> bytes:
    body = encode(registry)
    return gzip.compress(body, _COMPRESSION_LEVEL) if compressed else body


_log: Final = logging.getLogger("aiohttp.server")
_SHUTDOWN_SECONDS: Final = 1.0
_RETRY_AFTER_SECONDS: Final = 15
_ABOUT: Final = {
    "/metrics": "Prometheus metrics",
    "/livez": "alive; with ?verbose every check",
    "/readyz": "ready; with ?verbose every check",
}


class ClientBounds(NamedTuple):
    """What clients may use, because everybody who reaches the port may open connections."""

    connections: int = 500
    """The number of open connections. A process often may have 1,024 files open, and the API server's connections are
    among them: the Lease needs one."""
    handshakes: int = 64
    """The number of handshakes over TLS that may be under way, each with an open file too."""
    scrapes: int = 32
    """The number of scrapes that may wait or be read at once. Each holds a connection and its buffers."""
    send_seconds: float = 30.0
    """How long a client may take to read its answer."""


BOUNDS: Final = ClientBounds()


class _ServerLog(logging.LoggerAdapter[logging.Logger]):
    """Logs requests that are not HTTP, which anybody may send, only for debugging. Other exceptions are bugs."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        level = logging.DEBUG if isinstance(exc_info, HttpProcessingError) else logging.ERROR
        self.log(level, msg, *args, exc_info=exc_info, **kwargs)


Judge = Callable[[str], Awaitable[HTTPStatus]]
"""Returns the status for a client with a bearer token: OK if it may read the metrics."""


class SecureMetrics(NamedTuple):
    """Where `/metrics` is served over TLS instead of beside `/livez` and `/readyz`, and to whom."""

    address: ListenAddress
    certificate: ServedCertificate
    judge: Judge


@asynccontextmanager
async def serve_telemetry(
    address: ListenAddress,
    *,
    registry: CollectorRegistry,
    live: Callable[[], HealthReport],
    ready: Callable[[], HealthReport],
    secure: SecureMetrics | None = None,
    bounds: ClientBounds = BOUNDS,
) -> AsyncIterator[ListenAddress]:
    """Serve while the context lasts. Yields the address with the actual port.

    The registry is collected and encoded in a thread of its own, one scrape at a time, so that scrapes block neither
    the event loop nor other threads. `live` answers `/livez` in the event loop, so that a stuck loop gives no answer at
    all, and `ready` answers `/readyz`. If not `secure`, `/metrics` is served at the address, to everybody; else over
    TLS.

    Raises:
        OSError: An address is not available. The message names it.
    """
    log = get_logger(__name__)
    routes = {"/livez": _make_health_handler(live), "/readyz": _make_health_handler(ready)}
    with Exposition(registry) as exposition:
        async with AsyncExitStack() as serving:
            metrics = {"/metrics": _make_metrics_handler(exposition, bounds, secure and secure.judge)}
            if secure is None:
                routes = metrics | routes
            else:
                over_tls = _serving(metrics, secure.address, bounds, secure.certificate)
                log.info("Metrics are served over TLS", address=await serving.enter_async_context(over_tls))
            bound = await serving.enter_async_context(_serving(routes, address, bounds))
            log.info("Serving /livez and /readyz" if secure else "Serving /metrics, /livez and /readyz", address=bound)
            yield bound


@asynccontextmanager
async def _serving(
    routes: Mapping[str, Handler],
    address: ListenAddress,
    bounds: ClientBounds,
    certificate: ServedCertificate | None = None,
) -> AsyncIterator[ListenAddress]:
    """Serve paths at an address, over TLS if there is a certificate. Yields the address with the actual port."""
    app = web.Application()
    app.router.add_get("/", _make_index(routes))
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    app.on_response_prepare.append(_forbid_caching)
    runner = web.AppRunner(
        app, access_log=None, logger=_ServerLog(_log), handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        async with _listening(runner, address, bounds, certificate) as port:
            yield ListenAddress(address.host, port)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _listening(
    runner: web.AppRunner, address: ListenAddress, bounds: ClientBounds, certificate: ServedCertificate | None
) -> AsyncIterator[int]:
    """Accept connections, and yield the port. If there are too many, a new one takes the place of the oldest."""
    server = runner.server
    assert server is not None  # noqa: S101 - the runner is set up

    def accept() -> asyncio.BaseProtocol:
        transports = (each.transport for each in server.connections)  # the oldest first
        opened = [each for each in transports if each is not None and not each.is_closing()]
        for surplus in opened[: max(0, len(opened) + 1 - bounds.connections)]:
            surplus.abort()
        return server()

    option = "--listen-address" if certificate is None else "--metrics-address"
    try:
        if certificate is not None:
            listening = listening_socket(address.host, address.port)
        else:
            plain = await asyncio.get_running_loop().create_server(accept, address.host or None, address.port)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot listen on {address}: {error.strerror}; choose another {option}, or end what listens there",
        ) from error
    if certificate is None:
        with closing(plain):
            yield plain.sockets[0].getsockname()[1]
        return
    with listening:
        accepting = asyncio.create_task(
            accept_over_tls(listening, certificate, accept, most_handshakes=bounds.handshakes)
        )
        try:
            yield listening.getsockname()[1]
        finally:
            accepting.cancel()
            with suppress(asyncio.CancelledError):
                await accepting


def _make_index(routes: Mapping[str, Handler]) -> Handler:
    text = "Respread\n\n" + "".join(f"{path:<9} {_ABOUT[path]}\n" for path in routes)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    return answer


def _make_metrics_handler(exposition: Exposition, bounds: ClientBounds, judge: Judge | None) -> Handler:
    places = asyncio.Semaphore(bounds.scrapes)

    async def expose(request: web.Request) -> web.StreamResponse:
        if places.locked():
            return _too_many(f"{bounds.scrapes} scrapes are being answered already")
        async with places:
            if judge is not None and (refused := await _refusal(request, judge)) is not None:
                return refused
            accept = ",".join(request.headers.getall(hdrs.ACCEPT, []))
            compressed = "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower()
            try:
                exposed = await exposition.text(accept, compressed=compressed)
            except BusyError as error:
                return _too_many(str(error))
            response = web.Response(body=exposed.body, headers={hdrs.CONTENT_TYPE: exposed.content_type})
            if compressed:
                response.headers[hdrs.CONTENT_ENCODING] = "gzip"
            try:
                async with asyncio.timeout(bounds.send_seconds):  # It keeps its place until it is read.
                    await response.prepare(request)
                    await response.write_eof()
            except (TimeoutError, ConnectionError):  # Too slow, or gone: there is no client to answer.
                if request.transport is not None:
                    request.transport.abort()
            return response

    return expose


async def _refusal(request: web.Request, judge: Judge) -> web.Response | None:
    """Return the answer to a client that may not read the metrics."""
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    known = scheme.lower() == "bearer" and token.strip()
    status = await judge(token.strip()) if known else HTTPStatus.UNAUTHORIZED
    if status == HTTPStatus.OK:
        return None
    headers = {hdrs.WWW_AUTHENTICATE: "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    return web.Response(status=status, text=f"{status.phrase}\n", headers=headers)


def _too_many(reason: str) -> web.Response:
    return web.Response(status=503, text=f"{reason}\n", headers={hdrs.RETRY_AFTER: str(_RETRY_AFTER_SECONDS)})


def _make_health_handler(report: Callable[[], HealthReport]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        health = report()
        text = "ok\n" if health.passed and "verbose" not in request.query else health.render()
        return web.Response(text=text, status=200 if health.passed else 503)

    return answer


async def _forbid_caching(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
