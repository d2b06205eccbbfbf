"""The telemetry server over real sockets of 127.0.0.1."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from respread.telemetry.health import Check, HealthReport
from respread.telemetry.server import ListenAddress, parse_listen_address, serve_telemetry

LOCAL = ListenAddress("127.0.0.1", 0)


class Switch:
    """A health check that a test can let fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed = True

    def __call__(self) -> HealthReport:
        return HealthReport(self.name, (Check("ping", True), Check("pods", self.passed, "silent for 400 s")))


def serve(
    use: Callable[[aiohttp.ClientSession, Switch, Switch], Awaitable[None]], registry: CollectorRegistry | None = None
) -> None:
    """Run `use` with a client of a server, without automatic decompression."""

    async def run() -> None:
        live, ready = Switch("livez"), Switch("readyz")
        async with (
            serve_telemetry(LOCAL, registry=registry or CollectorRegistry(), live=live, ready=ready) as address,
            aiohttp.ClientSession(f"http://{address}", auto_decompress=False) as client,
        ):
            await use(client, live, ready)

    asyncio.run(run())


async def get(client: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str]:
    async with client.get(path, headers={"Accept-Encoding": "identity", **headers}) as response:
        return response.status, await response.text()


def test_health_answers_ok_or_503_with_every_check() -> None:
    async def use(client: aiohttp.ClientSession, live: Switch, ready: Switch) -> None:
        assert await get(client, "/livez") == (200, "ok\n")
        assert await get(client, "/readyz") == (200, "ok\n")
        assert await get(client, "/livez?verbose") == (200, "[+]ping ok\n[+]pods ok\nlivez check passed\n")
        ready.passed = False
        failed = "[+]ping ok\n[-]pods failed: silent for 400 s\nreadyz check failed\n"
        assert await get(client, "/readyz") == (503, failed)
        assert await get(client, "/livez") == (200, "ok\n")
        live.passed = False
        assert (await get(client, "/livez"))[0] == 503

    serve(use)


def test_metrics_have_the_requested_format() -> None:
    registry = CollectorRegistry()
    Counter("seen", "Things seen.", registry=registry).inc(3)

    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        async with client.get("/metrics", headers={"Accept-Encoding": "identity"}) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "seen_total 3.0\n" in await response.text()
        accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        async with client.get("/metrics", headers={"Accept": accept, "Accept-Encoding": "identity"}) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            assert (await response.text()).endswith("# EOF\n")

    serve(use, registry)


@pytest.mark.parametrize("version", ["abc", "", "1.0.x", '"1.0.0"', "9" * 5000, "1.0.0.7", "-1", "²"])
def test_an_unknown_version_in_the_accept_header_is_answered_in_a_known_format(version: str) -> None:
    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        for kind in ("application/openmetrics-text", "text/plain"):
            headers = {"Accept": f"{kind};version={version}", "Accept-Encoding": "identity"}
            async with client.get("/metrics", headers=headers) as response:
                assert response.status == 200
                assert re.search(r"version=(0\.0\.4|1\.0\.0);", response.headers["Content-Type"])

    serve(use)


def test_metrics_are_compressed_on_request() -> None:
    registry = CollectorRegistry()
    Counter("seen", "Things seen." * 1000, registry=registry).inc(3)

    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        async with client.get("/metrics", headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            body = await response.read()
            assert len(body) < 2000
            assert b"seen_total 3.0\n" in gzip.decompress(body)

    serve(use, registry)


class SlowCollector:
    """A registry with many series."""

    def collect(self) -> list[GaugeMetricFamily]:
        time.sleep(0.5)
        return [GaugeMetricFamily("slow", "Took long.", value=1)]

    def describe(self) -> list[GaugeMetricFamily]:
        return []


def test_a_long_scrape_does_not_block_the_event_loop() -> None:
    registry = CollectorRegistry()
    registry.register(SlowCollector())

    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        scrape = asyncio.create_task(get(client, "/metrics"))
        await asyncio.sleep(0.05)
        assert await get(client, "/livez") == (200, "ok\n")
        assert not scrape.done()
        assert "slow 1.0" in (await scrape)[1]

    serve(use, registry)


def test_the_index_names_the_paths() -> None:
    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        status, text = await get(client, "/")
        assert status == 200
        for path in ("/metrics", "/livez", "/readyz"):
            assert path in text

    serve(use)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/pods", 404), ("POST", "/metrics", 405)])
def test_other_paths_and_methods_are_rejected(method: str, path: str, status: int) -> None:
    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        async with client.request(method, path) as response:
            assert response.status == status

    serve(use)


def test_responses_are_never_cached() -> None:
    async def use(client: aiohttp.ClientSession, _live: Switch, _ready: Switch) -> None:
        for path in ("/metrics", "/livez"):
            async with client.get(path) as response:
                assert response.headers["Cache-Control"] == "no-store"

    serve(use)


def test_the_port_is_free_again_afterwards() -> None:
    async def run() -> None:
        ok = Switch("x")
        async with serve_telemetry(LOCAL, registry=CollectorRegistry(), live=ok, ready=ok) as first:
            pass
        async with serve_telemetry(first, registry=CollectorRegistry(), live=ok, ready=ok) as second:
            assert second == first

    asyncio.run(run())


def test_the_error_for_a_used_port_says_what_to_do() -> None:
    async def run() -> None:
        ok = Switch("x")
        async with serve_telemetry(LOCAL, registry=CollectorRegistry(), live=ok, ready=ok) as taken:
            with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{taken.port}: .*--listen-address"):
                async with serve_telemetry(taken, registry=CollectorRegistry(), live=ok, ready=ok):
                    pass

    asyncio.run(run())


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
