"""A proxy between the operator and the API server that injects faults of networks and busy servers.

It speaks HTTP to the operator and HTTPS to the API server. A function of the test decides what happens to a request:
at random in a soak, exactly in other tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import ssl
import struct
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import aiohttp
import yaml
from aiohttp import web

from respread_sandbox import Sandbox

STATUS_FAULTS: Final = {
    "409": "Conflict",
    "410": "Expired",
    "429": "TooManyRequests",
    "500": "InternalError",
    "503": "ServiceUnavailable",
    "504": "Timeout",
}
FAULTS: Final = (
    "delay",  # it is forwarded after a while
    "drop",  # it never arrives, and the connection is closed
    "reset",  # it never arrives, and the connection is reset
    "hang",  # it never arrives, and the connection stays open
    "lose",  # it is processed, and the answer is lost
    "truncate",  # it is processed, and half of the answer arrives
    "late 504",  # it is processed, and the answer is a timeout
    *STATUS_FAULTS,  # it is not processed, and the answer is that error
)
WATCH_FAULTS: Final = (
    "stall",  # nothing arrives any more, and the connection stays open
    "cut",  # it ends in the middle of a line
    "replay",  # old events arrive again
    "error 410",  # events of that kind, as the API server sends them within a watch
    "error 500",
)
_HOP_BY_HOP: Final = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


class Asked(NamedTuple):
    """A request, with all values that a fault may depend on."""

    method: str
    path: str
    query: Mapping[str, str]
    number: int
    """The number of earlier requests."""

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in {"true", "1"}

    @property
    def is_eviction(self) -> bool:
        return self.path.endswith("/eviction")


class Fault(NamedTuple):
    """What happens to a request."""

    kind: str
    seconds: float = 1.0
    """The length of a delay, or when a hanging connection is closed."""
    after_lines: int = 1
    """For a watch: the number of events that pass first."""


Choose = Callable[[Asked], Fault | None]


def no_fault(_: Asked) -> None:
    """Let every request pass."""


class FaultProxy:
    """A proxy in its own thread. `choose` may be replaced at any time."""

    def __init__(self, sandbox: Sandbox, choose: Choose = no_fault) -> None:
        self.choose = choose
        self.counts: Counter[str] = Counter()
        """Faults by kind."""
        self.valid_token: str | None = None
        """If set, requests with another token are answered with 401."""
        self.bookmark_seconds: float | None = None
        """If set, every watch sends bookmarks at this interval instead of about every minute."""
        self.idle_seconds: float | None = None
        """If set, every watch is cut after this time without an event, as by a load balancer. It gets no bookmark."""
        self.silent: set[str] = set()
        """Paths whose watches deliver nothing while they are in this set. Their events arrive later."""
        self._asked: deque[Asked] = deque(maxlen=10_000)
        self._sandbox = sandbox
        self._lines: dict[str, deque[bytes]] = {}
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="fault-proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(10):
            raise AssertionError("the proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """A copy of the last requests, in order."""
        return tuple(self._asked)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def kubeconfig(self, original: Path, copy: Path) -> Path:
        """Write a kubeconfig equal to another one, but through this proxy."""
        document = yaml.safe_load(original.read_text(encoding="utf-8"))
        for each in document["clusters"]:
            each["cluster"] = {"server": self.address}
        unfinished = copy.with_suffix(".new")
        unfinished.write_text(yaml.safe_dump(document), encoding="utf-8")
        unfinished.chmod(0o600)
        unfinished.rename(copy)
        return copy

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        authority = ssl.create_default_context(cafile=str(self._sandbox.files.serving_certificate))
        connector = aiohttp.TCPConnector(limit=0, ssl=authority)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        self._port = runner.addresses[0][1]
        self._started.set()
        await self._stopping.wait()
        await runner.cleanup()
        await self._session.close()
        await asyncio.sleep(0.1)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query), self._number)
        self._number += 1
        self._asked.append(asked)
        authorization = request.headers.get("Authorization", "")
        if self.valid_token is not None and authorization != f"Bearer {self.valid_token}":
            self.counts["401"] += 1
            return _status(401, "Unauthorized")
        fault = self.choose(asked)
        if fault is None:
            return await self._pass(request)
        self.counts[fault.kind] += 1
        if fault.kind in STATUS_FAULTS:
            return _status(int(fault.kind), STATUS_FAULTS[fault.kind])
        if fault.kind in WATCH_FAULTS:
            return await self._watch(request, fault)
        try:
            return await self._spoil(request, fault)
        except aiohttp.ClientError:
            return _close(request)  # the API server is not available

    async def _spoil(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case "delay":
                await asyncio.sleep(fault.seconds)
                return await self._pass(request)
            case "drop":
                return _close(request)
            case "reset":
                return _reset(request)
            case "hang":
                await asyncio.sleep(fault.seconds)
                return _close(request)
            case "lose" | "late 504":
                async with self._ask(request) as answer:
                    await answer.read()
                return _close(request) if fault.kind == "lose" else _status(504, "Timeout")
            case "truncate":
                return await self._truncate(request)
        raise ValueError(f"there is no fault {fault.kind}")

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") in {"true", "1"}:
            return await self._watch(request, None)
        try:
            async with self._ask(request) as answer:
                body = await answer.read()
                return web.Response(status=answer.status, headers=_passed(answer.headers), body=body)
        except aiohttp.ClientError:
            return _close(request)  # the API server is not available

    async def _truncate(self, request: web.Request) -> web.StreamResponse:
        async with self._ask(request) as answer:
            body = await answer.read()
        response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        _close(request)
        return response

    async def _watch(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        seen = self._lines.setdefault(request.path, deque(maxlen=50))
        try:
            async with self._ask(request) as answer:
                if answer.status != 200:
                    return web.Response(status=answer.status, headers=_passed(answer.headers), body=await answer.read())
                response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
                await response.prepare(request)
                passed = 0
                async for line in self._paced(request, _whole_lines(answer.content)):
                    if fault is not None and passed >= fault.after_lines:
                        await self._spoil_watch(request, response, fault, line, seen)
                        if fault.kind != "replay":
                            return response
                        fault = None
                    await response.write(line)
                    seen.append(line)
                    passed += 1
                await response.write_eof()
                return response
        except (aiohttp.ClientError, ConnectionError):
            return _close(request)

    async def _paced(self, request: web.Request, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the lines of a watch when they may pass, with bookmarks between them if requested."""
        coming: asyncio.Future[bytes] | None = None
        version = request.query.get("resourceVersion", "")
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(lines, b""))
                done, _ = await asyncio.wait([coming], timeout=self.idle_seconds or self.bookmark_seconds)
                while request.path in self.silent:
                    await asyncio.sleep(0.02)
                if done:
                    line, coming = coming.result(), None
                    if not line:
                        return
                    if self.bookmark_seconds is not None:
                        version = json.loads(line)["object"]["metadata"].get("resourceVersion", version)
                    yield line
                elif self.idle_seconds is not None:
                    raise ConnectionError
                elif version:
                    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
                    yield json.dumps(bookmark, separators=(",", ":")).encode() + b"\n"
        finally:
            if coming is not None:
                coming.cancel()

    async def _spoil_watch(
        self, request: web.Request, response: web.StreamResponse, fault: Fault, line: bytes, seen: deque[bytes]
    ) -> None:
        match fault.kind:
            case "stall":
                await asyncio.sleep(fault.seconds)
            case "cut":
                await response.write(line[: len(line) // 2])
            case "replay":
                for old in list(seen):
                    await response.write(old)
                return
            case _:
                code = int(fault.kind.removeprefix("error "))
                status = _status_document(code, "Expired" if code == 410 else "InternalError")
                # without spaces, as the API server writes it
                event = json.dumps({"type": "ERROR", "object": status}, separators=(",", ":"))
                await response.write(event.encode() + b"\n")
        _close(request)

    @contextlib.asynccontextmanager
    async def _ask(self, request: web.Request) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._session.request(
            request.method,
            self._sandbox.server + request.raw_path,
            headers=_passed(request.headers),
            data=await request.read() or None,
            skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(total=None, connect=10),
            allow_redirects=False,
        ) as answer:
            yield answer


async def _whole_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    begun = b""
    async for chunk in content.iter_any():
        *lines, begun = (begun + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _status_document(code: int, reason: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"injected: {code} {reason}",
    }


def _status(code: int, reason: str) -> web.Response:
    headers = {"Retry-After": "1"} if code in {429, 503} else None
    return web.json_response(_status_document(code, reason), status=code, headers=headers)


def _close(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def _reset(request: web.Request) -> web.StreamResponse:
    """Close the connection so that the peer gets a reset."""
    if request.transport is not None:
        connection: socket.socket | None = request.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return _close(request)


class Dice:
    """Chooses faults at random from a seed: a share of the requests of each type."""

    def __init__(self, seed: int, *, rate: float = 0.1, watch_rate: float = 0.3) -> None:
        self.rate = rate
        self.watch_rate = watch_rate
        self._random = random.Random(seed)

    def __call__(self, asked: Asked) -> Fault | None:
        if asked.is_watch:
            if self._random.random() >= self.watch_rate:
                return None
            # The request itself may also be refused: with 410 if its resource version is too old.
            kind = self._random.choice((*WATCH_FAULTS, "410", "429", "503"))
            lines = self._random.choice((0, 1, 3, 10, 30))
            return Fault(kind, self._random.uniform(0.5, 8), lines)
        if self._random.random() >= self.rate:
            return None
        if "continue" in asked.query and self._random.random() < 0.5:
            return Fault("410")
        # A read causes no conflict, and only the continue token of a list expires.
        reads = asked.method == "GET"
        kinds = [kind for kind in FAULTS if kind != "410" and not (reads and kind == "409")]
        kind = self._random.choice(kinds)
        return Fault(kind, self._random.uniform(0.05, 12 if kind == "hang" else 3))
