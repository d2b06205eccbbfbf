"""The session takes objects out of pages, sends credentials, and retries requests that Kopf would give up on.

The answers are scripted. tests/integration/handlers/test_ingest.py shows that the real API server gives them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from respread.cluster.meta import ObjectKey
from respread.handlers.session import open_session
from respread.kube.access import ClusterAccess, load_access
from respread.kube.credentials import CredentialsError, Endpoint, FixedIdentity
from respread.kube.listing import MOST_BYTES
from tests.informer_parts import Parts, page, pod
from tests.integration.stub_api_server import served, write_kubeconfig

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

PODS = "/api/v1/pods"
POLICIES = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"


def answer(status: int, body: bytes | dict[str, Any]) -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def give(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=text, content_type="application/json")

    return give


def status(code: int, message: str) -> Answer:
    return answer(code, {"kind": "Status", "code": code, "message": message})


class Script:
    """An API server that gives these answers one after another, and records the requests."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return await self._answers.pop(0)(request)

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(request.query) for request in self.asked]


@asynccontextmanager
async def session_with(
    script: Script, parts: Parts, tmp_path: Path, *, prefix: str = ""
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A session with the scripted API server, and its address."""
    kubeconfig = tmp_path / "kubeconfig"
    informers = {informer.kind.path: informer for informer in parts.informers.all}
    async with served(script.answer) as address:
        write_kubeconfig(kubeconfig, server := f"{address}{prefix}", "secret")
        async with open_session(load_access(kubeconfig=str(kubeconfig)), informers) as session:
            yield session, server


async def get(session: aiohttp.ClientSession, url: str, **options: Any) -> Any:
    async with session.request("get", url, **options) as response:
        response.raise_for_status()
        return await response.json()


def names(parts: Parts) -> set[str]:
    return {key.name for key in parts.informers.state.snapshot.pods}


@pytest.mark.parametrize("prefix", ["", "/k8s/clusters/c-1"])
async def test_a_list_is_decoded_page_by_page(tmp_path: Path, prefix: str) -> None:
    parts = Parts()
    script = Script(answer(200, page(pod("web"), rest="token")), answer(200, page(pod("api"))))
    async with session_with(script, parts, tmp_path, prefix=prefix) as (session, server):
        first = await get(session, f"{server}{PODS}?limit=1")
        assert (first["items"], first["metadata"]["continue"]) == ([], "token")
        assert not names(parts)
        last = await get(session, f"{server}{PODS}?limit=1&continue=token")
        assert (last["items"], last["metadata"]["resourceVersion"]) == ([], "100")
    assert names(parts) == {"web", "api"}
    request = script.asked[0]
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Accept-Encoding"] == "identity"


async def test_responses_for_other_resources_pass_unchanged(tmp_path: Path) -> None:
    parts, body = Parts(), {"kind": "PodList", "metadata": {}, "items": [pod("web")]}
    async with session_with(Script(answer(200, body)), parts, tmp_path) as (session, server):
        assert await get(session, f"{server}/api/v1/namespaces/shop/pods") == body
    assert not names(parts)


async def next_line(response: aiohttp.ClientResponse) -> bytes:
    line: bytes = await anext(response.content.iter_chunked(1024))
    return line


@pytest.mark.parametrize(
    ("query", "read"), [("?limit=1", lambda response: response.json()), ("?watch=true", next_line)]
)
async def test_reading_from_a_closed_connection_is_an_error_that_kopf_waits_out(
    tmp_path: Path, query: str, read: Callable[[aiohttp.ClientResponse], Awaitable[Any]]
) -> None:
    """Kopf closes the session and its connections when credentials are rejected."""
    closed = asyncio.Event()

    async def begin(request: web.Request) -> web.StreamResponse:
        """Send the headers alone, until the client is gone."""
        response = web.StreamResponse()
        await response.prepare(request)
        await closed.wait()
        return response

    async with session_with(Script(begin), Parts(), tmp_path) as (session, server):
        async with session.request("get", f"{server}{PODS}{query}") as response:
            await session.close()
            with pytest.raises(aiohttp.ClientConnectionError):
                await asyncio.wait_for(read(response), 30)
        closed.set()


async def test_a_list_that_took_too_long_is_started_again(tmp_path: Path) -> None:
    parts = Parts()
    script = Script(
        answer(200, page(pod("web"), pod("gone"), rest="old")),
        status(410, "The provided continue parameter is too old"),
        answer(200, page(pod("web"), version=200, rest="new")),
        answer(200, page(pod("api"), version=200)),
    )
    async with session_with(script, parts, tmp_path) as (session, server):
        await get(session, f"{server}{PODS}?limit=2")
        again = await get(session, f"{server}{PODS}?limit=2&continue=old")
        assert again["metadata"] == {"resourceVersion": "200", "continue": "new"}
        await get(session, f"{server}{PODS}?limit=2&continue=new")
    assert names(parts) == {"web", "api"}
    assert script.queries == [
        {"limit": "2"},
        {"limit": "2", "continue": "old"},
        {"limit": "2"},
        {"limit": "2", "continue": "new"},
    ]


async def test_a_forbidden_kind_is_requested_until_it_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts()
    refusal = 'pods is forbidden: User "system:serviceaccount:respread:respread" cannot list resource "pods"'
    held: list[str] = []

    async def look(request: web.Request) -> web.StreamResponse:
        held.extend(each.message for each in parts.health.sync_checks() if each.name == "sync-pods")
        return await answer(200, page(pod("web")))(request)

    async with session_with(Script(status(403, refusal), look), parts, tmp_path) as (session, server):
        await get(session, f"{server}{PODS}")
    assert names(parts) == {"web"}
    assert held == [f"not allowed to list and watch pods: grant both, as manifests/ does. {refusal}"]
    assert next(each for each in parts.health.sync_checks() if each.name == "sync-pods").passed
    assert "not allowed to list and watch pods" in caplog.text


async def test_policies_are_deleted_with_their_crd(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    policy = {"metadata": {"name": "default", "resourceVersion": "1"}, "spec": {"mode": "Enforce"}}
    seen: list[set[str]] = []

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append(set(parts.informers.policies.policies))
        return await answer(200, page(version=3))(request)

    script = Script(answer(200, page(policy, version=2)), answer(404, b"404 page not found"), look)
    async with session_with(script, parts, tmp_path) as (session, server):
        await get(session, server + POLICIES)
        assert set(parts.informers.policies.policies) == {"default"}
        await get(session, server + POLICIES)
    assert seen == [set()]
    assert "clusterrebalancepolicies.respread.dev is gone: kubectl apply -f crds/" in caplog.text


async def test_a_malformed_page_counts_as_a_broken_transfer(tmp_path: Path) -> None:
    parts = Parts()
    script = Script(answer(200, page(pod("web"))), answer(200, page(pod("api"))[:-20]))
    async with session_with(script, parts, tmp_path) as (session, server):
        await get(session, server + PODS)
        with pytest.raises(aiohttp.ClientPayloadError, match="pods"):
            await get(session, server + PODS)
    assert names(parts) == {"web"}


@pytest.mark.parametrize("code", [401, 500, 503, 504])
async def test_other_error_responses_reach_kopf(tmp_path: Path, code: int) -> None:
    async with (
        session_with(Script(status(code, "no")), Parts(), tmp_path) as (session, server),
        session.request("get", server + PODS) as response,
    ):
        assert response.status == code
        assert (await response.json())["message"] == "no"


async def test_a_watch_delivers_only_complete_lines(tmp_path: Path) -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (
            b'{"type":"DELETED",',
            b'"object":{"metadata":{}}}\n' + bookmark[:9],
            bookmark[9:] + b'{"type":"ADD',
        ):
            await response.write(piece)
        return response

    async with (
        session_with(Script(stream), Parts(), tmp_path) as (session, server),
        session.request("get", f"{server}{PODS}?watch=true") as response,
    ):
        received = b"".join([chunk async for chunk in response.content.iter_chunked(1024)])
    assert received == b'{"type":"DELETED","object":{"metadata":{},"apiVersion":"v1","kind":"Pod"}}\n' + bookmark


async def test_a_watch_after_a_new_list_starts_at_its_resource_version(tmp_path: Path) -> None:
    """Events from before a list that a slow worker still holds are not applied after the list."""
    parts = Parts()
    async with session_with(Script(answer(200, page(version=50))), parts, tmp_path) as (session, server):
        await get(session, server + PODS)
    parts.event("pods", pod("web", 49))
    assert ObjectKey("shop", "web") not in parts.informers.state.snapshot.pods


async def test_a_redirect_does_not_receive_the_credentials(tmp_path: Path) -> None:
    """Aggregated API servers could once redirect clients anywhere (CVE-2022-3172)."""
    other = Script(answer(200, page(pod("web"))))

    async def redirect(_: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": elsewhere + PODS})

    parts, script = Parts(), Script(redirect, answer(200, page(pod("api"))), redirect)
    async with served(other.answer) as elsewhere, session_with(script, parts, tmp_path) as (session, server):
        await get(session, server + PODS)
        assert names(parts) == {"api"}
        async with open_session(load_access(kubeconfig=str(tmp_path / "kubeconfig")), {}) as plain:
            with pytest.raises(aiohttp.ClientConnectionError, match="which would get our credentials"):
                await get(plain, server + PODS)
    assert other.asked == []


@pytest.mark.parametrize("error", [CredentialsError("the token file is empty"), FileNotFoundError("token")])
async def test_credentials_that_can_t_be_read_look_like_a_lost_connection(tmp_path: Path, error: Exception) -> None:
    """Kopf retries this error, but would end on an unknown one."""
    parts, script = Parts(), Script(answer(200, page(pod("web"))))
    async with session_with(script, parts, tmp_path) as (session, server):

        class Unreadable(FixedIdentity):
            def authorization(self) -> str | None:
                raise error

        access = ClusterAccess(Endpoint(server=server), Unreadable())
        informers = {informer.kind.path: informer for informer in parts.informers.all}
        async with open_session(access, informers) as unknown:
            with pytest.raises(aiohttp.ClientConnectionError, match="no credentials for the API server"):
                await get(unknown, server + PODS)
        assert script.asked == []
        await get(session, server + PODS)
    assert names(parts) == {"web"}


async def test_a_watch_with_an_expired_resource_version_looks_like_one_that_ends(tmp_path: Path) -> None:
    began = asyncio.get_running_loop().time()
    async with (
        session_with(Script(status(410, "too old resource version")), Parts(), tmp_path) as (session, server),
        session.request("get", f"{server}{PODS}?watch=true&resourceVersion=1") as response,
    ):
        assert response.status == 200
        received = b"".join([chunk async for chunk in response.content.iter_chunked(1024)])
        assert asyncio.get_running_loop().time() > began + 0.2, "the kind is not listed again and again"
    assert json.loads(received) == {"type": "ERROR", "object": {"code": 410}}


@pytest.mark.parametrize("header", ["7", "Sat, 21 Nov 2026 12:00:00 GMT", "86400", "nan"])
async def test_the_retry_after_of_a_busy_server_is_respected_up_to_a_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def busy(_: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "too many requests"}, status=429, headers={"Retry-After": header})

    async with session_with(Script(busy, answer(200, page(pod("web")))), Parts(), tmp_path) as (session, server):
        monkeypatch.setattr("respread.kube.retry.asyncio.sleep", sleep)
        await get(session, server + PODS)
        monkeypatch.undo()
    (seconds,) = waited
    assert {"7": 7, "86400": 60}.get(header, seconds) == seconds
    assert seconds <= 60


async def test_a_page_that_is_too_large_is_requested_again_in_smaller_pages(tmp_path: Path) -> None:
    parts = Parts()
    large = page({**pod("fat"), "data": "x" * (MOST_BYTES + 1)})
    script = Script(answer(200, large), answer(200, page(pod("web"))))
    async with session_with(script, parts, tmp_path) as (session, server):
        with pytest.raises(aiohttp.ClientPayloadError, match="too large"):
            await get(session, f"{server}{PODS}?limit=500")
        await get(session, f"{server}{PODS}?limit=500")
    first, second = (int(request.query["limit"]) for request in script.asked)
    assert first > 4 * second
    assert names(parts) == {"web"}


async def test_a_page_that_took_too_long_is_requested_again_in_smaller_pages(tmp_path: Path) -> None:
    """Over a slow line the same page would take too long for ever."""

    async def too_slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"items": [')
        await asyncio.sleep(0.5)
        return response

    parts = Parts()
    script = Script(too_slow, answer(200, page(pod("web"))), answer(200, page(pod("web"))))
    async with session_with(script, parts, tmp_path) as (session, server):
        with pytest.raises(TimeoutError):
            await get(session, f"{server}{PODS}?limit=500", timeout=aiohttp.ClientTimeout(total=0.2))
        await get(session, f"{server}{PODS}?limit=500")
        await get(session, f"{server}{PODS}?limit=500")
    first, *later = (int(request.query["limit"]) for request in script.asked)
    assert later == [first // 2] * 2
