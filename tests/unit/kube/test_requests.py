"""A request without an answer counts as sent, unless it is certain that it was not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from respread.kube import requests as module
from respread.kube.access import ClusterAccess
from respread.kube.credentials import Endpoint, FixedIdentity, Pem
from respread.kube.requests import NoResponseError, Requests, open_requests
from tests.integration.stub_api_server import Answering, StubApiServer, dropping, hanging, nobody_at, truncating
from tests.integration.tls_front import Authority


async def was_sent(requests: Requests, timeout_seconds: float = 60.0) -> bool:
    with pytest.raises(NoResponseError) as raised:
        await requests.send("POST", "/api/v1/pods", {}, timeout_seconds=timeout_seconds)
    return raised.value.sent


@pytest.mark.parametrize(("answer", "seconds"), [(hanging, 0.3), (dropping, 60.0), (truncating, 60.0)])
async def test_a_request_that_reached_the_server_may_have_been_carried_out(answer: Answering, seconds: float) -> None:
    stub = StubApiServer()
    stub.on("POST", "/pods", answer)
    async with stub.running() as requests:
        assert await was_sent(requests, seconds)
    assert len(stub.requests) == 1


async def test_a_request_without_a_server_was_not_sent() -> None:
    async with open_requests(nobody_at("http://127.0.0.1:1")) as requests:
        assert not await was_sent(requests)


async def test_certificate_authorities_are_read_again_at_once_if_the_api_server_has_another_one(tmp_path: Path) -> None:
    """For example because both were replaced together; otherwise they are looked at every minute."""
    old, new = (Authority.create(tmp_path, name) for name in ("old", "new"))
    shown, known = new.server("IP:127.0.0.1"), tmp_path / "known.crt"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    known.write_text(old.own.text, encoding="utf-8")
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint(server=f"https://127.0.0.1:{port}", certificate_authority=Pem(path=str(known)))
        async with open_requests(ClusterAccess(endpoint, FixedIdentity())) as requests:
            assert not await was_sent(requests)
            known.write_text(new.own.text, encoding="utf-8")
            assert await was_sent(requests)


async def test_a_request_that_gets_no_connection_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_SECONDS", 0.1)
    stub = StubApiServer()
    stub.on("GET", "", hanging)
    async with stub.running(connections=1) as requests:
        first = asyncio.create_task(requests.send("GET", "/api", {}, timeout_seconds=60))
        while not stub.requests:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        assert not await was_sent(requests)
        first.cancel()
    assert stub.requests == [("GET", "/api")]


async def test_a_request_whose_time_is_over_is_not_sent() -> None:
    """The process was frozen after it had prepared the request."""
    stub = StubApiServer()
    async with stub.running() as requests:
        prepared = await requests.prepare("POST", "/api/v1/pods", {}, timeout_seconds=0.1)
        await asyncio.sleep(0.2)
        with pytest.raises(NoResponseError, match="its time was over") as raised:
            await prepared.send()
        assert not raised.value.sent
    assert stub.requests == []
