"""An API server with all kinds that the operator watches. The first answer to some requests can be faulty."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from respread.cluster.decode.decoder import Kind
from respread.cluster.stores import RECORDS, watched_kinds
from tests.integration.stub_api_server import served

Spoil = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedCluster:
    """Empty lists, and watches that deliver the events put into them."""

    def __init__(self, spoilt: Mapping[str, Spoil]) -> None:
        """Prepare faulty first answers to some requests.

        Args:
            spoilt: the faulty answers by request: a path of discovery, `list PATH` or `watch PATH`.
        """
        self.asked: Counter[str] = Counter()
        self.server = ""
        self._spoilt = dict(spoilt)
        self._kinds = {kind.path: kind for kind in watched_kinds()}
        self._events: dict[str, asyncio.Queue[bytes]] = {path: asyncio.Queue() for path in self._kinds}

    def bring(self, path: str, event: dict[str, Any]) -> None:
        """Send an event to the watchers."""
        self._events[path].put_nowait(json.dumps(event, separators=(",", ":")).encode() + b"\n")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on its own address."""
        async with served(self._answer) as self.server:
            yield

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = self._kinds.get(request.path)
        sort = request.path if kind is None else f"{'watch' if 'watch' in request.query else 'list'} {request.path}"
        self.asked[sort] += 1
        if (spoil := self._spoilt.pop(sort, None)) is not None:
            return await spoil(request)
        if kind is None:
            return self._discovery(request.path)
        if sort.startswith("watch"):
            return await self._watch(request)
        return web.json_response({"kind": f"{kind.kind}List", "metadata": {"resourceVersion": "100"}, "items": []})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self._events[request.path].get())

    def _discovery(self, path: str) -> web.Response:
        groups: dict[tuple[str, str], list[Kind]] = {}
        for kind in (*self._kinds.values(), *RECORDS.values()):
            groups.setdefault((kind.group, kind.version), []).append(kind)
        if path == "/api":
            return web.json_response({"versions": ["v1"]})
        if path == "/apis":
            versions = [{"groupVersion": f"{group}/{version}", "version": version} for group, version in groups]
            named = [
                {"name": group, "versions": [each], "preferredVersion": each}
                for (group, _), each in zip(groups, versions, strict=True)
                if group
            ]
            return web.json_response({"groups": named})
        for (group, version), kinds in groups.items():
            if path == (f"/apis/{group}/{version}" if group else f"/api/{version}"):
                return web.json_response({"resources": [_resource(kind) for kind in kinds]})
        return web.json_response({"kind": "Status", "code": 404}, status=404)


def discovery_paths() -> list[str]:
    """Return the paths of the discovery documents that the operator needs."""
    groups = {f"/apis/{kind.group}/{kind.version}" if kind.group else "/api/v1" for kind in watched_kinds()}
    return ["/api", "/apis", *sorted(groups)]


def _resource(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.resource,
        "singularName": kind.kind.lower(),
        "kind": kind.kind,
        "namespaced": kind.namespaced,
        "verbs": ["get", "list", "watch"],
    }
