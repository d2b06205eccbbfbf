"""Access to a sandbox's etcd without its API server."""

from __future__ import annotations

import base64
import json
from typing import Any

import aiohttp

from respread_sandbox import Sandbox


class Etcd:
    """Writes objects that the API server would reject, and deletes objects without events for clients."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._socket = str(sandbox.files.directory / "etcd:1")

    async def put(self, key: str, value: dict[str, Any]) -> None:
        """Store an object as JSON, which the API server reads as well as its own format."""
        await self._ask("put", {"key": _encoded(key), "value": _encoded(json.dumps(value))})

    async def delete(self, key: str) -> None:
        """Delete the object under a key."""
        await self._ask("deleterange", {"key": _encoded(key)})

    async def compact(self) -> None:
        """Compact etcd to the newest revision, so that no list or watch can continue from an older one."""
        revision = (await self._ask("range", {"key": _encoded("/"), "limit": 1}))["header"]["revision"]
        await self._ask("compaction", {"revision": revision, "physical": True})

    async def _ask(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._socket)) as session,
            session.post(f"http://etcd/v3/kv/{method}", json=body) as response,
        ):
            response.raise_for_status()
            answer: dict[str, Any] = await response.json()
            return answer


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
