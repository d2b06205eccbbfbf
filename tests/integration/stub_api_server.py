"""An API server that gives scripted answers, for cases that a real one can't produce."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from respread.kube.access import ClusterAccess
from respread.kube.credentials import Endpoint, FixedIdentity
from respread.kube.requests import CONNECTIONS, Requests, open_requests

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StubApiServer:
    """Answers each request by its method and path from `answers`, and records the requests."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Answering] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Any] = []

    def on(self, method: str, path: str, answer: Answering) -> None:
        """Set the answer to requests of a method whose path ends like this."""
        self.answers[method, path] = answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.bodies.append(await request.json() if request.can_read_body else None)
        for (method, path), answer in self.answers.items():
            if request.method == method and request.path.endswith(path):
                return await answer(request)
        return web.json_response({"kind": "Status", "message": "not found", "details": {"kind": "pods"}}, status=404)

    @contextlib.asynccontextmanager
    async def running(self, connections: int = CONNECTIONS) -> AsyncIterator[Requests]:
        """Serve, and yield requests to it over so many connections at most."""
        async with (
            served(self.handle) as address,
            open_requests(nobody_at(address), connections=connections) as requests,
        ):
            yield requests


@contextlib.asynccontextmanager
async def served(answer: Answering) -> AsyncIterator[str]:
    """Have every request to a server of its own answered so, and yield its address."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def write_kubeconfig(file: Path, server: str, token: str) -> None:
    """Write a kubeconfig with a single cluster and user."""
    name = "here"
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token}}],
    }
    file.write_text(json.dumps(document), encoding="utf-8")


def nobody_at(server: str) -> ClusterAccess:
    """Return access to an API server without credentials."""
    return ClusterAccess(Endpoint(server=server), FixedIdentity())


def answering(body: Any = None, *, status: int = 200, headers: dict[str, str] | None = None) -> Answering:
    """Answer with JSON, or with text if the body is a string."""

    async def answer(_: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.Response(text=body, status=status, headers=headers, content_type="text/html")
        return web.json_response(body, status=status, headers=headers)

    return answer


async def dropping(request: web.Request) -> web.StreamResponse:
    """Read the request and close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hanging(_: web.Request) -> web.StreamResponse:
    """Read the request and never answer."""
    await asyncio.sleep(3600)
    return web.Response()


async def truncating(request: web.Request) -> web.StreamResponse:
    """Answer with half of the announced content."""
    response = web.StreamResponse(status=201, headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"kind":"Status"')
    assert request.transport is not None
    request.transport.abort()
    return response
