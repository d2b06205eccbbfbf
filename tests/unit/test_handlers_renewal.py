"""Credentials that are no longer accepted are looked for again, by whoever notices first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aiohttp import web
from kubernetes.aio.client import ApiClient

from respread.eviction.requests import Requests
from respread.handlers.access import ClusterAccess, load_access
from respread.handlers.renewal import LEAST_INTERVAL_SECONDS, Renewal
from respread.handlers.writing import api_client


def write_kubeconfig(file: Path, server: str, token: str) -> None:
    name = "here"
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token}}],
    }
    file.write_text(json.dumps(document))


class Server:
    """Knows one token at a time."""

    def __init__(self) -> None:
        self.token = "old"  # noqa: S105  # no secret

    async def answer(self, request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == f"Bearer {self.token}"
        return web.json_response({}, status=200 if known else 401)


def test_the_next_request_has_the_token_that_is_there_now(tmp_path: Path) -> None:
    file, server, seconds, looked = tmp_path / "kubeconfig", Server(), [0.0], [0]

    async def scenario() -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", server.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        write_kubeconfig(file, address, "old")

        def find() -> ClusterAccess:
            looked[0] += 1
            return load_access(kubeconfig=str(file))

        access = find()
        client: ApiClient = api_client(access)
        requests = Requests(client, Renewal(access, find, lambda: seconds[0]))

        async def ask() -> int:
            return (await requests.send("GET", "/api", {}, timeout_seconds=5)).status_code

        assert await ask() == 200
        server.token = "new"  # noqa: S105  # no secret
        assert [await ask(), await ask()] == [401, 401]
        assert looked[0] == 2  # not for every request
        write_kubeconfig(file, address, "new")
        seconds[0] += LEAST_INTERVAL_SECONDS
        assert [await ask(), await ask()] == [401, 200]
        server.token = "newer"  # noqa: S105  # no secret
        file.unlink()
        seconds[0] += LEAST_INTERVAL_SECONDS
        assert [await ask(), await ask()] == [401, 401]  # and nothing worse
        await client.close()  # type: ignore[no-untyped-call]  # the client has no annotations
        await runner.cleanup()

    asyncio.run(scenario())
