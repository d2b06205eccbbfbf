"""The HTTP server of the page: files, answers, and a stream of changes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from respread.lean_process import no_authorities
from respread.program.command_line import CommandError
from respread_cli.page import ASSETS
from respread_cli.report.what_if import Cancellation
from respread_cli.ui.engine import Contexts, Engine, Update
from respread_cli.ui.guard import HEADERS, Guard
from respread_cli.ui.what_if import WhatIfRequest

with no_authorities():
    from aiohttp import hdrs, web
    from aiohttp.typedefs import Handler

HOST: Final = "127.0.0.1"
GATHER_SECONDS: Final = 0.15
"""How long changes are collected before they are planned for and sent."""
REFRESH_SECONDS: Final = 20.0
"""How long a plan is shown if nothing arrives."""
HEARTBEAT_SECONDS: Final = 10.0
"""The time without a change after which a browser is told that the connection is alive."""
_MOST_WAITING: Final = 100
"""Updates that may wait for one browser. One that falls behind must load everything again."""
_MOST_BODY_BYTES: Final = 64 * 1024
_SHUTDOWN_SECONDS: Final = 0.5

T = TypeVar("T")


class _ContextRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    context: str


class PageServer:
    """Serves one engine's cluster to any number of browser tabs."""

    def __init__(self, engine: Engine, guard: Guard, arrived: asyncio.Event, contexts: Contexts | None = None) -> None:
        """Create it.

        `arrived` is set when something has arrived that the engine should take over. Contexts open the engines of other
        clusters, if there are any.
        """
        self._engine = engine
        self._contexts = contexts
        self._changing = asyncio.Lock()
        self._guard = guard
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        """The engine's thread: it answers one question at a time."""
        self._what_if_thread = ThreadPoolExecutor(1, thread_name_prefix="what-if")
        """The thread of simulations, which may take long. The page is kept up to date meanwhile."""
        self._arrived = arrived
        self._listeners: set[asyncio.Queue[bytes | None]] = set()

    async def first(self) -> None:
        """Wait until the cluster has been read.

        Raises:
            CommandError: it can't be read.
        """
        while True:
            await self._ask(self._engine.refresh)
            if self._engine.ready:
                return
            await self._arrived.wait()
            self._arrived.clear()

    async def follow(self) -> None:
        """Send changes until cancelled.

        Raises:
            CommandError: the cluster can't be read any more.
        """
        while True:
            with suppress(TimeoutError):  # Time alone may change a plan: pods grow old enough to be evicted.
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._arrived.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._arrived.clear()
            engine = self._engine
            update = await self._ask(engine.refresh)
            if update is not None and engine is self._engine:
                self._send(update)

    def application(self) -> web.Application:
        """Return the routes."""
        app = web.Application(middlewares=[self._guarded], client_max_size=_MOST_BODY_BYTES)
        routes: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "/", self._file),
            ("GET", "/{file:[a-z-]+\\.[a-z]+}", self._file),
            ("GET", "/api/cluster", partial(self._answering, lambda engine: engine.page())),
            ("GET", "/api/workload", self._workload),
            ("GET", "/api/events", self._events),
            ("GET", "/api/history", self._history),
            ("GET", "/api/nodes", self._nodes),
            ("GET", "/api/pending", partial(self._answering, lambda engine: engine.pending())),
            ("GET", "/api/changes", self._changes),
            ("GET", "/api/contexts", self._list_contexts),
            ("POST", "/api/context", self._change_context),
            ("POST", "/api/simulate", self._simulate),
        )
        prefix = "/{token}" if self._guard.has_token else ""
        for method, path, handler in routes:
            app.router.add_route(method, prefix + path, handler)
        app.on_response_prepare.append(_add_headers)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        token = request.path.strip("/").partition("/")[0]
        refusal = self._guard.refusal(request.headers, token)
        if refusal is not None:
            return web.Response(status=403, text=f"Refused: {refusal}.\n")
        try:
            return await handler(request)
        except CommandError as error:
            return _refusal(error.message)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        asset = ASSETS.get(request.match_info.get("file", "index.html"))
        if asset is None:
            raise web.HTTPNotFound
        response = web.Response(body=asset.content, content_type=asset.content_type, charset="utf-8")
        response.enable_compression()
        return response

    async def _answering(self, question: Callable[[Engine], Any], _request: web.Request) -> web.StreamResponse:
        """Answer a question that the path alone asks."""
        return await self._answer(lambda: question(self._engine))

    async def _nodes(self, _request: web.Request) -> web.StreamResponse:
        answer = await self._answer(self._engine.nodes)
        self._what_if_thread.submit(self._engine.prepare_simulations)  # Whoever asks for nodes is about to ask what if.
        return answer

    async def _workload(self, request: web.Request) -> web.StreamResponse:
        namespace, workload = request.query.get("namespace", ""), request.query.get("workload", "")
        return await self._answer(lambda: self._engine.workload(namespace, workload))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        namespace, workload = request.query.get("namespace", ""), request.query.get("workload", "")
        question = await self._ask(lambda: self._engine.events_question(namespace, workload))
        events = await asyncio.to_thread(self._engine.events, question)  # The engine's thread does not wait for it.
        return _json(msgspec.json.encode(events))

    async def _list_contexts(self, _request: web.Request) -> web.StreamResponse:
        return _json(msgspec.json.encode(() if self._contexts is None else self._contexts.names))

    async def _change_context(self, request: web.Request) -> web.StreamResponse:
        """Show the cluster of another context, in every open page, once it has been read."""
        name, contexts = (await _posted(request, _ContextRequest)).context, self._contexts
        if contexts is None or name not in contexts.names:
            return _refusal(f"there is no context {name}")
        async with self._changing:
            try:
                engine = await asyncio.to_thread(contexts.open, name)
                while not engine.ready:
                    await self._ask(engine.refresh)
                    await asyncio.sleep(GATHER_SECONDS)
                self._engine = engine
            finally:  # After what the old engine does: in its thread, one after the other.
                await asyncio.shield(self._ask(lambda: contexts.close_all_but(self._engine)))
        for waiting in tuple(self._listeners):
            self._end(waiting)  # The pages connect again, and load the other cluster.
        return _json(b"{}")

    async def _history(self, _request: web.Request) -> web.StreamResponse:
        return _json(msgspec.json.encode(await asyncio.to_thread(self._engine.history)))

    async def _simulate(self, request: web.Request) -> web.StreamResponse:
        asked = await _posted(request, WhatIfRequest)
        cancellation = Cancellation()
        try:
            return await self._answer(lambda: self._engine.simulate(asked, cancellation), self._what_if_thread)
        finally:
            cancellation.cancel()  # Another change was made, or the tab closed: this request was cancelled.

    async def _answer(
        self, question: Callable[[], Any], thread: ThreadPoolExecutor | None = None
    ) -> web.StreamResponse:
        return _json(await self._ask(lambda: msgspec.json.encode(question()), thread))

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Answer with server-sent events: each `update` applies to the version before."""
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream"})
        await response.prepare(request)
        waiting: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._listeners.add(waiting)
        try:
            await response.write(b"retry: 1000\n" + _event("version", str(self._engine.version).encode()))
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        event = await waiting.get()
                except TimeoutError:
                    event = _event("alive", b"")
                if event is None:
                    break  # It fell behind. The browser connects again, and loads everything.
                await response.write(event)
        except ConnectionError:
            pass  # The tab was closed.
        finally:
            self._listeners.discard(waiting)
        return response

    def _send(self, update: Update) -> None:
        event = _event("update", msgspec.json.encode(update))
        for waiting in tuple(self._listeners):
            if waiting.full():
                self._end(waiting)
            else:
                waiting.put_nowait(event)

    def _end(self, waiting: asyncio.Queue[bytes | None]) -> None:
        """End the stream of one browser, which connects again then."""
        self._listeners.discard(waiting)
        if waiting.full():
            waiting.get_nowait()
        waiting.put_nowait(None)

    async def _ask(self, question: Callable[[], T], thread: ThreadPoolExecutor | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread or self._thread, question)

    def close(self) -> None:
        """End the threads."""
        for thread in (self._thread, self._what_if_thread):
            thread.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def listening(server: PageServer, listener: socket.socket) -> AsyncIterator[None]:
    """Serve on a bound socket while the context lasts."""
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        with suppress(TimeoutError):
            await runner.cleanup()


def listener_on(port: int) -> socket.socket:
    """Return a socket that is bound to a port of 127.0.0.1, 0 for any free one.

    Raises:
        OSError: the port is not available.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
    except OSError:
        listener.close()
        raise
    return listener


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


async def _posted(request: web.Request, kind: type[T]) -> T:
    """Return what a request sends as JSON."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Send JSON.\n")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.DecodeError as error:
        body = msgspec.json.encode({"error": str(error)}).decode()
        raise web.HTTPBadRequest(text=body, content_type="application/json") from error


def _json(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type="application/json", charset="utf-8")
    response.enable_compression()
    return response


def _refusal(message: str) -> web.Response:
    body = msgspec.json.encode({"error": message})
    return web.Response(status=422, body=body, content_type="application/json", charset="utf-8")


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
