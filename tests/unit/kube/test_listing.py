"""Lists are read page by page, and no page takes much memory, however large the objects are."""

from __future__ import annotations

import msgspec
from aiohttp import web

from respread.kube.listing import MOST_BYTES, pages
from tests.integration.stub_api_server import StubApiServer

OBJECTS = 36
OBJECT_BYTES = 1 << 20


async def test_a_page_that_is_too_large_is_requested_again_in_parts() -> None:
    server, limits = StubApiServer(), list[int]()
    assert OBJECTS * OBJECT_BYTES > MOST_BYTES

    async def answer(request: web.Request) -> web.StreamResponse:
        limit, begin = int(request.query["limit"]), int(request.query.get("continue", 0))
        limits.append(limit)
        items = [{"name": number, "fat": "x" * OBJECT_BYTES} for number in range(OBJECTS)[begin : begin + limit]]
        more = str(begin + limit) if begin + limit < OBJECTS else ""
        return web.json_response({"metadata": {"continue": more}, "items": items})

    server.on("GET", "/pods", answer)
    async with server.running() as requests:
        found = pages(requests, "/api/v1/pods", {}, page_objects=500, timeout_seconds=60)
        read = [msgspec.json.decode(each)["name"] async for page in found for each in page.objects]
    assert limits == [500, 62, *[7] * 6]
    assert read == list(range(OBJECTS))
