"""Rejected credentials are read again by the first request that notices."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from respread.api.reasons import Held, Reason
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import EvictionApi
from respread.handlers.session import open_session
from respread.kube.access import LEAST_INTERVAL_SECONDS, ClusterAccess, Renewal, load_access
from respread.kube.credentials import Endpoint
from respread.kube.requests import NoResponseError, Requests, open_requests
from tests.evicting import evict
from tests.eviction_moves import SPEC
from tests.integration.stub_api_server import Answering, served, write_kubeconfig
from tests.worlds import pod


class Renewed:
    """Credentials that every request reads again, like those of a plugin."""

    is_current = False

    def __init__(self, renew: Callable[[], str]) -> None:
        self.authorization = renew


class Server:
    """Accepts one token at a time."""

    def __init__(self) -> None:
        self.token = "old"  # noqa: S105  # no secret

    async def answer(self, request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == f"Bearer {self.token}"
        return web.json_response({}, status=200 if known else 401)


async def test_the_next_request_has_the_current_token(tmp_path: Path) -> None:
    file, server, seconds, looked = tmp_path / "kubeconfig", Server(), [0.0], [0]

    async def look(requests: Requests, address: str) -> None:
        async def ask() -> int:
            return (await requests.send("GET", "/api", {}, timeout_seconds=60)).status_code

        seconds[0] += LEAST_INTERVAL_SECONDS
        assert (await ask(), looked[0]) == (200, 1)  # no read while they are good
        server.token = "new"  # noqa: S105  # no secret
        assert [await ask(), await ask()] == [401, 401]
        assert looked[0] == 2  # fewer reads than requests
        write_kubeconfig(file, address, "new")
        seconds[0] += LEAST_INTERVAL_SECONDS
        assert [await ask(), await ask()] == [401, 200]
        server.token = "newer"  # noqa: S105  # no secret
        file.unlink()
        seconds[0] += LEAST_INTERVAL_SECONDS
        assert [await ask(), await ask()] == [401, 401]  # no other error

    async with served(server.answer) as address:
        write_kubeconfig(file, address, "old")

        def find() -> ClusterAccess:
            looked[0] += 1
            return load_access(kubeconfig=str(file))

        access = find()
        async with open_requests(access, Renewal(access, find, lambda: seconds[0])) as requests:
            await look(requests, address)


def recording(asked: list[str]) -> Answering:
    """Return the answers of an API server with one pod, which records the requests."""

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.query_string}".strip())
        pod = {"metadata": {"name": "a", "uid": POD.uid}}
        return web.json_response(pod, status=201 if request.method == "POST" else 200)

    return answer


POD = pod("a", "node-1", SPEC)
LOST = Held(Reason.NOT_LEADING, "this replica does not lead")


@pytest.mark.parametrize("lost", [False, True])
async def test_a_lease_lost_while_credentials_are_read_stops_the_eviction(*, lost: bool) -> None:
    """The renewal may take any time. Leadership is checked after it, and nothing is awaited in between."""
    asked: list[str] = []
    order: list[str] = []

    def renew() -> str:
        time.sleep(0.05)  # a long renewal before the eviction
        order.append("renewed")
        return "Bearer any"

    def gate() -> Held | None:
        order.append("asked")
        return LOST if lost and order.count("renewed") == 2 else None

    async with (
        served(recording(asked)) as server,
        open_requests(ClusterAccess(Endpoint(server=server), Renewed(renew))) as sender,
    ):
        answer = await evict(EvictionApi(sender), POD, gate)
    assert order == ["renewed", "renewed", "asked"]  # for the read of the pod and for the eviction, and then the check
    if lost:
        assert answer == LOST
        assert asked == ["GET"]
    else:
        assert isinstance(answer, Answer)
        assert answer.result is EvictionResult.EVICTED
        assert asked == ["GET", "POST"]


async def test_a_client_certificate_needs_no_token(tmp_path: Path) -> None:
    """The kubeconfigs of kind, minikube and kubeadm use client certificates."""
    asked: list[str] = []
    async with served(recording(asked)) as server:
        file = tmp_path / "kubeconfig"
        write_kubeconfig(file, server, "")
        async with open_requests(load_access(kubeconfig=str(file))) as requests:
            answer = await requests.send("GET", "/api", {}, timeout_seconds=5)
    assert answer.succeeded
    assert asked == ["GET"]


async def test_a_netrc_entry_is_not_sent_to_the_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With trust_env, aiohttp reads a netrc for every request, and then rejects our Authorization header."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    asked: list[str] = []
    async with served(recording(asked)) as server:
        file = tmp_path / "kubeconfig"
        write_kubeconfig(file, server, "ours")
        access = load_access(kubeconfig=str(file))
        async with open_requests(access) as requests, open_session(access, {}) as session:
            answer = await requests.send("GET", "/api", {}, timeout_seconds=5)
            assert answer.succeeded
            async with session.get(f"{access.endpoint.server}/api") as response:
                assert response.ok
    assert asked == ["GET", "GET"]


async def test_a_hanging_credential_plugin_takes_no_longer_than_the_request_timeout_and_runs_once() -> None:
    asked: list[str] = []
    may_end, runs = threading.Event(), [0]

    def renew() -> str:
        runs[0] += 1
        may_end.wait(60)
        return f"Bearer {runs[0]}"

    async with served(recording(asked)) as server:
        access = ClusterAccess(Endpoint(server=server), Renewed(renew))
        async with open_requests(access) as requests:
            for _ in range(2):
                with pytest.raises(NoResponseError, match="there are no credentials") as raised:
                    await requests.send("GET", "/api", {}, timeout_seconds=0.1)
                assert not raised.value.sent
        may_end.set()
        assert [await access.authorization() for _ in range(2)] == ["Bearer 1", "Bearer 2"]
    assert asked == []


async def test_rejected_requests_share_one_renewal_of_the_credentials(tmp_path: Path) -> None:
    """A hanging plugin is not started for each request."""
    file = tmp_path / "kubeconfig"
    write_kubeconfig(file, "http://127.0.0.1:9", "any")
    begun, may_end, looked, seconds = threading.Event(), threading.Event(), [0], [0.0]

    def find() -> ClusterAccess:
        looked[0] += 1
        begun.set()
        may_end.wait(60)
        return load_access(kubeconfig=str(file))

    renewal = Renewal(load_access(kubeconfig=str(file)), find, lambda: seconds[0])
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await renewal()
        seconds[0] += LEAST_INTERVAL_SECONDS
    assert await asyncio.to_thread(begun.wait, 60)
    assert looked == [1]
    may_end.set()
    await renewal()
    assert looked == [1]
