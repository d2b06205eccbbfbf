"""The telemetry server over real sockets of 127.0.0.1."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from respread.telemetry import tls
from respread.telemetry.health import Check, HealthReport
from respread.telemetry.server import ListenAddress, parse_listen_address, serve_telemetry
from respread.telemetry.tls import HANDSHAKE_SECONDS, ServedCertificate, accept_over_tls, listening_socket
from tests.integration.tls_front import Authority

LOCAL = ListenAddress("127.0.0.1", 0)


class Switch:
    """A health check that a test can let fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed = True

    def __call__(self) -> HealthReport:
        return HealthReport(self.name, (Check("ping", True), Check("pods", self.passed, "silent for 400 s")))


@asynccontextmanager
async def serving(
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[tuple[aiohttp.ClientSession, Switch, Switch]]:
    """Run a server, and yield a client of it without automatic decompression, and its health checks."""
    live, ready = Switch("livez"), Switch("readyz")
    async with (
        serve_telemetry(LOCAL, registry=registry or CollectorRegistry(), live=live, ready=ready) as address,
        aiohttp.ClientSession(f"http://{address}", auto_decompress=False) as client,
    ):
        yield client, live, ready


async def get(client: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str]:
    async with client.get(path, headers={"Accept-Encoding": "identity", **headers}) as response:
        return response.status, await response.text()


async def test_health_answers_ok_or_503_with_every_check() -> None:
    async with serving() as (client, live, ready):
        assert await get(client, "/livez") == (200, "ok\n")
        assert await get(client, "/readyz") == (200, "ok\n")
        assert await get(client, "/livez?verbose") == (200, "[+]ping ok\n[+]pods ok\nlivez check passed\n")
        ready.passed = False
        failed = "[+]ping ok\n[-]pods failed: silent for 400 s\nreadyz check failed\n"
        assert await get(client, "/readyz") == (503, failed)
        assert await get(client, "/livez") == (200, "ok\n")
        live.passed = False
        assert (await get(client, "/livez"))[0] == 503


async def test_metrics_have_the_requested_format() -> None:
    registry = CollectorRegistry()
    Counter("seen", "Things seen.", registry=registry).inc(3)
    async with serving(registry) as (client, _, _):
        async with client.get("/metrics", headers={"Accept-Encoding": "identity"}) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "seen_total 3.0\n" in await response.text()
        accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        async with client.get("/metrics", headers={"Accept": accept, "Accept-Encoding": "identity"}) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            assert (await response.text()).endswith("# EOF\n")


@pytest.mark.parametrize("version", ["abc", "", "1.0.x", '"1.0.0"', "9" * 5000, "1.0.0.7", "-1", "²"])
async def test_an_unknown_version_in_the_accept_header_is_answered_in_a_known_format(version: str) -> None:
    async with serving() as (client, _, _):
        for kind in ("application/openmetrics-text", "text/plain"):
            headers = {"Accept": f"{kind};version={version}", "Accept-Encoding": "identity"}
            async with client.get("/metrics", headers=headers) as response:
                assert response.status == 200
                assert re.search(r"version=(0\.0\.4|1\.0\.0);", response.headers["Content-Type"])


async def test_metrics_are_compressed_on_request() -> None:
    registry = CollectorRegistry()
    Counter("seen", "Things seen." * 1000, registry=registry).inc(3)
    async with (
        serving(registry) as (client, _, _),
        client.get("/metrics", headers={"Accept-Encoding": "gzip"}) as response,
    ):
        assert response.headers["Content-Encoding"] == "gzip"
        body = await response.read()
        assert len(body) < 2000
        assert b"seen_total 3.0\n" in gzip.decompress(body)


class SlowCollector:
    """A registry with many series."""

    def collect(self) -> list[GaugeMetricFamily]:
        time.sleep(0.5)
        return [GaugeMetricFamily("slow", "Took long.", value=1)]

    def describe(self) -> list[GaugeMetricFamily]:
        return []


async def test_a_long_scrape_does_not_block_the_event_loop() -> None:
    registry = CollectorRegistry()
    registry.register(SlowCollector())
    async with serving(registry) as (client, _, _):
        scrape = asyncio.create_task(get(client, "/metrics"))
        await asyncio.sleep(0.05)
        assert await get(client, "/livez") == (200, "ok\n")
        assert not scrape.done()
        assert "slow 1.0" in (await scrape)[1]


async def test_the_index_names_the_paths() -> None:
    async with serving() as (client, _, _):
        status, text = await get(client, "/")
        assert status == 200
        for path in ("/metrics", "/livez", "/readyz"):
            assert path in text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/pods", 404), ("POST", "/metrics", 405)])
async def test_other_paths_and_methods_are_rejected(method: str, path: str, status: int) -> None:
    async with serving() as (client, _, _), client.request(method, path) as response:
        assert response.status == status


async def test_responses_are_never_cached() -> None:
    async with serving() as (client, _, _):
        for path in ("/metrics", "/livez"):
            async with client.get(path) as response:
                assert response.headers["Cache-Control"] == "no-store"


async def test_the_port_is_free_again_afterwards() -> None:
    ok = Switch("x")
    async with serve_telemetry(LOCAL, registry=CollectorRegistry(), live=ok, ready=ok) as first:
        pass
    async with serve_telemetry(first, registry=CollectorRegistry(), live=ok, ready=ok) as second:
        assert second == first


async def test_the_error_for_a_used_port_says_what_to_do() -> None:
    ok = Switch("x")
    async with serve_telemetry(LOCAL, registry=CollectorRegistry(), live=ok, ready=ok) as taken:
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{taken.port}: .*--listen-address"):
            async with serve_telemetry(taken, registry=CollectorRegistry(), live=ok, ready=ok):
                pass


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8080", "", 8080),
        ("10.0.0.1:8080", "10.0.0.1", 8080),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:8080", "::1", 8080),
        ("[::]:8080", "::", 8080),
        ("[fe80::1%eth0]:8080", "fe80::1%eth0", 8080),
    ],
)
def test_listen_addresses_are_parsed_and_printed(text: str, host: str, port: int) -> None:
    address = parse_listen_address(text)
    assert address == ListenAddress(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "8080", "host", "::1:8080", ":65536", ":-1", "host:http", "http://x:80", "a b:1", ":٣"]
)
def test_an_invalid_listen_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a listen address: expected host:port"):
        parse_listen_address(text)


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"GET /livez HTTP/9\r\n\r\n", b"\x16\x03\x01\0"]
)
def test_a_request_that_is_not_http_leaves_no_error_in_the_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody who reaches the port could fill the log with tracebacks."""

    async def run() -> bytes:
        async with serve_telemetry(
            LOCAL, registry=CollectorRegistry(), live=Switch("livez"), ready=Switch("readyz")
        ) as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n" + sent + b"\r\n\r\n")
            answers = await reader.read()
            writer.close()
            return answers

    assert b" 400 Bad Request" in asyncio.run(run())
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def certificates(folder: Path) -> tuple[Authority, Path]:
    """Return an authority, and the folder with a certificate of it as in a Secret."""
    authority = Authority.create(folder)
    (served := folder / "served").mkdir()
    put(authority, served)
    return authority, served


def put(authority: Authority, served: Path) -> None:
    """Replace the certificate as the kubelet does: by other files."""
    issued = authority.server("IP:127.0.0.1", name="next")
    for made, name in ((issued.certificate, "tls.crt"), (issued.key, "tls.key")):
        shutil.copy(made, served / f"{name}.new")
        (served / f"{name}.new").rename(served / name)


def test_a_certificate_is_read_again_only_when_it_was_replaced(tmp_path: Path) -> None:
    authority, served = certificates(tmp_path)
    certificate = ServedCertificate(served)
    first = certificate.context()
    assert certificate.context() is first
    put(authority, served)
    second = certificate.context()
    assert second is not first
    assert certificate.context() is second


@pytest.mark.parametrize("changed", ["st_ino", "st_mtime_ns"])
def test_a_replaced_certificate_is_noticed_by_its_file_or_its_time(tmp_path: Path, changed: str) -> None:
    _, served = certificates(tmp_path)
    certificate, first = ServedCertificate(served), served / "tls.crt"
    before = first.stat()
    known = certificate.context()
    if changed == "st_ino":  # another file of the same time
        shutil.copy(first, served / "copy")
        os.utime(served / "copy", ns=(before.st_atime_ns, before.st_mtime_ns))
        (served / "copy").rename(first)
    else:
        os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert certificate.context() is not known


def test_the_last_certificate_is_served_until_the_next_can_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, served = certificates(tmp_path)
    certificate = ServedCertificate(served)
    first = certificate.context()
    (served / "tls.key").unlink()
    assert certificate.context() is first
    assert caplog.text == ""  # it is being replaced
    (served / "tls.key").write_text("no key", encoding="utf-8")
    for _ in range(2):
        assert certificate.context() is first
    assert caplog.text.count("Serving the last certificate, the new one can't be read") == 1
    put(authority, served)
    assert certificate.context() is not first


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [None, "nothing"])
def test_a_folder_without_a_certificate_and_its_key_is_an_error(
    tmp_path: Path, broken: str, content: str | None
) -> None:
    _, served = certificates(tmp_path)
    (served / broken).unlink()
    if content is not None:
        (served / broken).write_text(content, encoding="utf-8")
    message = rf"no certificate can be served from {re.escape(str(served))}/tls\.crt and tls\.key: .+"
    with pytest.raises(ValueError, match=message):
        ServedCertificate(served)


@pytest.mark.parametrize(
    ("host", "reached"), [("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"]), ("", ["127.0.0.1", "::1"])]
)
def test_a_socket_listens_where_it_is_told_to(host: str, reached: list[str]) -> None:
    with listening_socket(host, 0) as listening:
        port = listening.getsockname()[1]
        assert not listening.getblocking()
        for each in ("127.0.0.1", "::1"):
            if each in reached:
                socket.create_connection((each, port), 60).close()
            else:
                with pytest.raises(OSError, match="refused"):
                    socket.create_connection((each, port), 60)


class Greeting(asyncio.Protocol):
    """Greets each client, and closes the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")
        transport.close()


@asynccontextmanager
async def over_tls(folder: Path, most_handshakes: int = 10) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """Run a server that greets over TLS, and yield its port and what trusts it."""
    authority, served = certificates(folder)
    with listening_socket("127.0.0.1", 0) as listening:
        certificate = ServedCertificate(served)
        serving = asyncio.create_task(
            accept_over_tls(listening, certificate, Greeting, most_handshakes=most_handshakes)
        )
        try:
            yield listening.getsockname()[1], ssl.create_default_context(cafile=str(authority.own.certificate))
            assert not serving.done()
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


async def greeting(port: int, trusting: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    try:
        return await reader.read()
    finally:
        writer.close()


async def silent(port: int) -> asyncio.Task[bytes]:
    """Connect without a handshake. The task ends when the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def end() -> bytes:
        try:
            with suppress(ConnectionError):
                return await reader.read()
            return b""
        finally:
            writer.close()

    return asyncio.create_task(end())


async def test_the_oldest_handshakes_are_given_up_if_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HANDSHAKE_SECONDS == 5.0
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 600.0)
    async with over_tls(tmp_path, most_handshakes=3) as (port, trusting):
        ends = []
        for _ in range(3):
            ends.append(await silent(port))
            await asyncio.sleep(0.1)
        assert await greeting(port, trusting) == b"hello"
        await asyncio.wait_for(ends[0], 30)
        assert [each.done() for each in ends] == [True, False, False]
        ends.append(await silent(port))  # has the place of the first one
        await asyncio.sleep(0.1)
        assert await greeting(port, trusting) == b"hello"
        await asyncio.wait_for(ends[1], 30)
        assert [each.done() for each in ends] == [True, True, False, False]


async def test_a_handshake_takes_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.2)
    async with over_tls(tmp_path) as (port, _):
        await asyncio.wait_for(await silent(port), 30)


async def test_clients_that_speak_no_tls_lose_their_connections_and_others_are_served(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (port, trusting):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), HANDSHAKE_SECONDS)
        writer.close()
        assert await greeting(port, trusting) == b"hello"


async def test_handshakes_under_way_end_with_the_server(tmp_path: Path) -> None:
    _, served = certificates(tmp_path)
    with listening_socket("127.0.0.1", 0) as listening:
        serving = asyncio.create_task(
            accept_over_tls(listening, ServedCertificate(served), Greeting, most_handshakes=5)
        )
        end = await silent(listening.getsockname()[1])
        await asyncio.sleep(0.1)
        started = time.monotonic()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await asyncio.wait_for(end, 20 * HANDSHAKE_SECONDS)
        assert time.monotonic() - started < HANDSHAKE_SECONDS / 2


class Exhausted(socket.socket):
    """A listening socket of a process that has no file to open left, for a second."""

    refused = 0
    until = 0.0

    def accept(self) -> tuple[socket.socket, object]:
        if time.monotonic() < self.until:
            Exhausted.refused += 1
            raise OSError(24, "Too many open files")
        return super().accept()


async def test_connections_are_accepted_again_after_too_many_open_files(tmp_path: Path) -> None:
    authority, served = certificates(tmp_path)
    with listening_socket("127.0.0.1", 0) as real, Exhausted(fileno=os.dup(real.fileno())) as listening:
        listening.setblocking(False)
        Exhausted.until = time.monotonic() + 1.0
        serving = asyncio.create_task(
            accept_over_tls(listening, ServedCertificate(served), Greeting, most_handshakes=5)
        )
        trusting = ssl.create_default_context(cafile=str(authority.own.certificate))
        assert await greeting(real.getsockname()[1], trusting) == b"hello"
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    assert 1 <= Exhausted.refused <= 11, "it waits a tenth of a second each time"
