"""A running server of the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import aiohttp

from respread.program.command_line import CommandError
from respread_cli.read.following import Lost
from respread_cli.report.planned import Planning
from respread_cli.ui.engine import Contexts, Engine
from respread_cli.ui.guard import Guard
from respread_cli.ui.server import HOST, PageServer, listener_on, listening
from tests.unit.ui.clusters import OPTIONS, ChangingSource, engine_for

TOKEN = "a-secret"  # noqa: S105 - of this test


class Served:
    """A running server, its cluster, and a client."""

    def __init__(self, source: ChangingSource, arrived: asyncio.Event, url: str, client: aiohttp.ClientSession) -> None:
        self.source = source
        self.url = url
        self.client = client
        self._arrived = arrived

    def change(self, manifests: Iterable[dict[str, Any]]) -> None:
        self.source.put(manifests)
        self._arrived.set()

    def delete(self, manifests: Iterable[dict[str, Any]]) -> None:
        self.source.delete(manifests)
        self._arrived.set()

    def lose(self, lost: Lost | None) -> None:
        self.source.lost = lost
        self._arrived.set()

    async def get(self, path: str) -> dict[str, Any]:
        async with self.client.get(self.url + path) as response:
            assert response.status == 200, await response.text()
            answer: dict[str, Any] = await response.json()
            return answer


@asynccontextmanager
async def served(
    manifests: Iterable[dict[str, Any]],
    *,
    port: int = 0,
    kind: type[Engine] = Engine,
    others: Mapping[str, Iterable[dict[str, Any]]] = MappingProxyType({}),
) -> AsyncIterator[Served]:
    """Serve a cluster while the context lasts, and those of other contexts if they are chosen."""
    source, arrived = ChangingSource(manifests), asyncio.Event()

    @contextmanager
    def opened(name: str | None) -> Iterator[Engine]:
        if name == "broken":
            raise CommandError("the API server of broken can't be reached.")
        other = ChangingSource(others[name or ""])
        other.name = f"context {name}"
        yield Engine(other.source(), partial(Planning, OPTIONS), ())

    contexts = Contexts((*others, "broken") if others else (), opened)
    with closing(listener_on(port)) as listener:
        port = listener.getsockname()[1]
        with closing(PageServer(engine_for(source, kind=kind), Guard(TOKEN, port), arrived, contexts)) as server:
            async with listening(server, listener), aiohttp.ClientSession() as client:
                following = asyncio.create_task(server.follow())
                try:
                    yield Served(source, arrived, f"http://{HOST}:{port}/{TOKEN}/", client)
                finally:
                    following.cancel()
