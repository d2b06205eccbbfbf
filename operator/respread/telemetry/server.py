"""The HTTP server of `/metrics`, `/livez` and `/readyz`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from respread.telemetry.health import HealthReport
from respread.telemetry.listen_address import ListenAddress
from respread.telemetry.logs import get_logger

_SHUTDOWN_SECONDS = 1.0
_INDEX = """\
Respread

/metrics  Prometheus metrics
/livez    alive; with ?verbose every check
/readyz   ready; with ?verbose every check
"""


@asynccontextmanager
async def serve_telemetry(
    address: ListenAddress,
    *,
    registry: CollectorRegistry,
    live: Callable[[], HealthReport],
    ready: Callable[[], HealthReport],
) -> AsyncIterator[ListenAddress]:
    """Serve while the context lasts; yields the address with the port that was really taken.

    Args:
        address: Where to listen.
        registry: What `/metrics` exposes; collected and encoded in a thread, so that a scrape of many series does not
            hold up the event loop.
        live: Answers `/livez`; called in the event loop, so that a stuck loop gives no answer at all.
        ready: Answers `/readyz`.

    Raises:
        OSError: The address can't be listened on; the message names it.
    """
    app = web.Application()
    app.router.add_get("/", _index)
    app.router.add_get("/metrics", _make_metrics_handler(registry))
    app.router.add_get("/livez", _make_health_handler(live))
    app.router.add_get("/readyz", _make_health_handler(ready))
    app.on_response_prepare.append(_forbid_caching)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        bound = await _start(runner, address)
        get_logger(__name__).info("Serving /metrics, /livez and /readyz", address=bound)
        yield bound
    finally:
        await runner.cleanup()


async def _start(runner: web.AppRunner, address: ListenAddress) -> ListenAddress:
    try:
        await web.TCPSite(runner, address.host or None, address.port).start()
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot listen on {address}: {error.strerror}; choose another --listen-address, or end what listens there",
        ) from error
    port: int = runner.addresses[0][1]
    return ListenAddress(address.host, port)


async def _index(_request: web.Request) -> web.Response:
    return web.Response(text=_INDEX)


def _make_metrics_handler(registry: CollectorRegistry) -> Handler:
    async def expose(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(",".join(request.headers.getall("Accept", [])))
        body = await asyncio.to_thread(encode, registry)
        response = web.Response(body=body, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return expose


def _make_health_handler(report: Callable[[], HealthReport]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        health = report()
        text = "ok\n" if health.passed and "verbose" not in request.query else health.render()
        return web.Response(text=text, status=200 if health.passed else 503)

    return answer


async def _forbid_caching(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
