"""The HTTP server of `/metrics`, `/livez` and `/readyz`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from respread.lean_imports import no_authorities
from respread.telemetry.exposition import BusyError, Exposition
from respread.telemetry.health import HealthReport
from respread.telemetry.listen_address import ListenAddress
from respread.telemetry.logs import get_logger

with no_authorities():
    from aiohttp import hdrs, web
    from aiohttp.http_exceptions import HttpProcessingError
    from aiohttp.typedefs import Handler

_log: Final = logging.getLogger("aiohttp.server")
_SHUTDOWN_SECONDS: Final = 1.0
_RETRY_AFTER_SECONDS: Final = 15
_INDEX: Final = """\
Respread

/metrics  Prometheus metrics
/livez    alive; with ?verbose every check
/readyz   ready; with ?verbose every check
"""


class ClientBounds(NamedTuple):
    """What clients may use, because everybody who reaches the port may open connections."""

    connections: int = 500
    """The number of open connections. A process often may have 1,024 files open, and the API server's connections are
    among them: the Lease needs one."""
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


@asynccontextmanager
async def serve_telemetry(
    address: ListenAddress,
    *,
    registry: CollectorRegistry,
    live: Callable[[], HealthReport],
    ready: Callable[[], HealthReport],
    bounds: ClientBounds = BOUNDS,
) -> AsyncIterator[ListenAddress]:
    """Serve while the context lasts. Yields the address with the actual port.

    Args:
        address: Where to listen.
        registry: The content of `/metrics`. It is collected and encoded in a thread of its own, one scrape at a time,
            so that scrapes block neither the event loop nor other threads.
        live: Answers `/livez`. It is called in the event loop, so that a stuck loop gives no answer at all.
        ready: Answers `/readyz`.
        bounds: What clients may use.

    Raises:
        OSError: The address is not available. The message names it.
    """
    exposition = Exposition(registry)
    app = web.Application()
    app.router.add_get("/", _index)
    app.router.add_get("/metrics", _make_metrics_handler(exposition, bounds))
    app.router.add_get("/livez", _make_health_handler(live))
    app.router.add_get("/readyz", _make_health_handler(ready))
    app.on_response_prepare.append(_forbid_caching)
    runner = web.AppRunner(
        app, access_log=None, logger=_ServerLog(_log), handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    with exposition:
        listening: asyncio.Server | None = None
        try:
            listening = await _listen(runner, address, bounds.connections)
            port: int = listening.sockets[0].getsockname()[1]
            bound = ListenAddress(address.host, port)
            get_logger(__name__).info("Serving /metrics, /livez and /readyz", address=bound)
            yield bound
        finally:
            if listening is not None:
                listening.close()
            await runner.cleanup()


async def _listen(runner: web.AppRunner, address: ListenAddress, most_connections: int) -> asyncio.Server:
    """Accept connections. If there are too many, a new one takes the place of the oldest."""
    server = runner.server
    assert server is not None  # noqa: S101 - the runner is set up

    def accept() -> asyncio.BaseProtocol:
        transports = (each.transport for each in server.connections)  # the oldest first
        opened = [each for each in transports if each is not None and not each.is_closing()]
        for surplus in opened[: max(0, len(opened) + 1 - most_connections)]:
            surplus.abort()
        return server()

    try:
        return await asyncio.get_running_loop().create_server(accept, address.host or None, address.port)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot listen on {address}: {error.strerror}; choose another --listen-address, or end what listens there",
        ) from error


async def _index(_request: web.Request) -> web.Response:
    return web.Response(text=_INDEX)


def _make_metrics_handler(exposition: Exposition, bounds: ClientBounds) -> Handler:
    places = asyncio.Semaphore(bounds.scrapes)

    async def expose(request: web.Request) -> web.StreamResponse:
        if places.locked():
            return _too_many(f"{bounds.scrapes} scrapes are being answered already")
        async with places:
            accept = ",".join(request.headers.getall(hdrs.ACCEPT, []))
            compressed = "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower()
            try:
                exposed = await exposition.text(accept, compressed=compressed)
            except BusyError as error:
                return _too_many(str(error))
            response = web.Response(body=exposed.body, headers={hdrs.CONTENT_TYPE: exposed.content_type})
            if exposed.compressed:
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
