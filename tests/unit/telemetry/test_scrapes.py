"""Many concurrent scrapes delay neither the Lease nor probes, and share one collection of metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from respread.cluster.meta import ObjectKey
from respread.kube.access import load_access
from respread.kube.leadership import Elector, LeaseTimes
from respread.kube.requests import open_requests
from respread.telemetry.health import Check, HealthReport
from respread.telemetry.server import BusyError, ClientBounds, Exposition, ListenAddress, SecureMetrics, serve_telemetry
from respread.telemetry.tls import ServedCertificate
from tests.integration.stub_api_server import served
from tests.integration.tls_front import Authority
from tests.unit.kube.test_access import write_kubeconfig
from tests.unit.kube.test_leadership import LeaseServer

TIMES = LeaseTimes(12)  # the Lease must be renewed within eight seconds
SCRAPERS = 200
COLLECT_SECONDS = 0.5
PROBE_SECONDS = 5.0
"""`timeoutSeconds` of the probes in manifests/base/deployment.yaml."""


class SlowCollector:
    """A slow collector that counts its calls."""

    def __init__(self, series: int = 5_000) -> None:
        self.collected = 0
        self._series = series

    def collect(self) -> list[GaugeMetricFamily]:
        self.collected += 1
        time.sleep(COLLECT_SECONDS)
        family = GaugeMetricFamily("slow", "Took long.", labels=["number"])
        for number in range(self._series):
            family.add_metric([str(number)], self.collected)
        return [family]

    def describe(self) -> list[GaugeMetricFamily]:
        return []


class LargeCollector:
    """Collects more than the buffers of two sockets hold."""

    def collect(self) -> list[GaugeMetricFamily]:
        family = GaugeMetricFamily("large", "Has long labels.", labels=["long"])
        for number in range(2_000):
            family.add_metric([f"{number:010000}"], 1)
        return [family]

    def describe(self) -> list[GaugeMetricFamily]:
        return []


def with_plugin(folder: Path, server: str) -> Path:
    """Return a kubeconfig whose credentials come from a plugin, so that a thread requests them."""
    plugin = folder / "plugin"
    credentials = {"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": credentials}
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(answer)!r})\n", encoding="utf-8")
    plugin.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    path = write_kubeconfig(folder / "config", {"exec": command})
    document = json.loads(path.read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"]["server"] = server
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


async def test_many_scrapers_delay_neither_the_lease_nor_probes(tmp_path: Path) -> None:
    changes: list[bool] = []
    probes: list[float] = []
    statuses: set[int] = set()
    registry = CollectorRegistry()
    registry.register(SlowCollector())

    async def scrape(client: aiohttp.ClientSession) -> None:
        while True:
            async with client.get("/metrics") as response:
                await response.read()
                statuses.add(response.status)
            await asyncio.sleep(0.4)

    got = asyncio.Event()

    def on_change(leading: bool) -> None:
        changes.append(leading)
        got.set()

    passed = lambda: HealthReport("livez", (Check("ping", True),))  # noqa: E731 - a report is a function
    async with (
        served(LeaseServer().answer) as server,
        serve_telemetry(ListenAddress("127.0.0.1", 0), registry=registry, live=passed, ready=passed) as address,
        aiohttp.ClientSession(f"http://{address}", connector=aiohttp.TCPConnector(limit=0)) as client,
        open_requests(await asyncio.to_thread(load_access, kubeconfig=str(with_plugin(tmp_path, server)))) as requests,
    ):
        elector = Elector(requests, ObjectKey("respread", "respread"), "me", times=TIMES, on_change=on_change)
        running = asyncio.create_task(elector.run())
        async with asyncio.timeout(60):
            await got.wait()
        scraping = [asyncio.create_task(scrape(client)) for _ in range(SCRAPERS)]
        ends = time.monotonic() + 1.5 * TIMES.renew_deadline_seconds
        while time.monotonic() < ends:
            started = time.monotonic()
            async with client.get("/livez") as response:
                assert response.status == 200
            probes.append(time.monotonic() - started)
            await asyncio.sleep(0.2)
        assert changes == [True]  # acquired and never lost
        for task in (running, *scraping):
            task.cancel()
        await asyncio.gather(running, *scraping, return_exceptions=True)
    assert max(probes) < PROBE_SECONDS
    assert 200 in statuses


def expose(collector: SlowCollector, **options: Any) -> Exposition:
    registry = CollectorRegistry()
    registry.register(collector)
    return Exposition(registry, **options)


async def test_scrapers_that_wait_for_the_same_collection_get_the_same_text() -> None:
    collector = SlowCollector(series=1)
    with expose(collector) as exposition:
        first = asyncio.create_task(exposition.text("", compressed=False))
        await asyncio.sleep(COLLECT_SECONDS / 2)
        others = await asyncio.gather(*(exposition.text("", compressed=False) for _ in range(50)))
        bodies = [(await first).body, *(each.body for each in others)]
    assert collector.collected == 2
    assert b'slow{number="0"} 1.0' in bodies[0]
    assert set(bodies[1:]) == {bodies[1]}
    assert b'slow{number="0"} 2.0' in bodies[1]  # not the collection that began before their requests


async def test_scrapers_that_name_many_versions_share_a_collection() -> None:
    collector = SlowCollector(series=1)
    accept = "application/openmetrics-text; version=1.0."
    with expose(collector) as exposition:
        texts = (exposition.text(f"{accept}{number}", compressed=False) for number in range(50))
        await asyncio.gather(*texts)
    assert collector.collected == 1


async def test_a_scrape_that_waits_too_long_fails_and_the_next_one_succeeds() -> None:
    with (
        expose(SlowCollector(series=1), wait_seconds=COLLECT_SECONDS / 5) as exposition,
        pytest.raises(BusyError, match=r"could not be collected within 0\.1 s"),
    ):
        await exposition.text("", compressed=False)
    with expose(SlowCollector(series=1)) as exposition:
        assert b"slow" in (await exposition.text("", compressed=False)).body


async def test_surplus_scrapers_get_503_with_retry_after() -> None:
    registry = CollectorRegistry()
    registry.register(SlowCollector(series=1))

    async def scrape(client: aiohttp.ClientSession) -> tuple[int, bool]:
        async with client.get("/metrics") as response:
            return response.status, "Retry-After" in response.headers

    passed = lambda: HealthReport("livez", ())  # noqa: E731 - a report is a function
    async with (
        serve_telemetry(ListenAddress("127.0.0.1", 0), registry=registry, live=passed, ready=passed) as address,
        aiohttp.ClientSession(f"http://{address}", connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        answers = await asyncio.gather(*(scrape(client) for _ in range(SCRAPERS)))
    assert set(answers) == {(200, False), (503, True)}


async def connect(address: ListenAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(address.host, address.port)


async def to_its_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read until the server closes the connection."""
    try:
        with contextlib.suppress(ConnectionError):
            await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_connections_that_send_nothing_more_are_closed_if_there_are_too_many(sent: bytes) -> None:
    """A process may have a limited number of files open, and the Lease needs a connection too."""
    most, more = 20, 30
    passed = lambda: HealthReport("livez", (Check("ping", True),))  # noqa: E731 - a report is a function
    async with serve_telemetry(
        ListenAddress("127.0.0.1", 0),
        registry=CollectorRegistry(),
        live=passed,
        ready=passed,
        bounds=ClientBounds(connections=most),
    ) as address:
        ends = []
        for _ in range(more):
            reader, writer = await connect(address)
            writer.write(sent)
            ends.append(asyncio.create_task(to_its_end(reader, writer)))
        async with asyncio.timeout(60):
            while sum(not end.done() for end in ends) >= most:  # the probe's connection counts too
                async with aiohttp.ClientSession(f"http://{address}") as client, client.get("/livez") as response:
                    assert response.status == 200
                await asyncio.sleep(0.1)
        closed = [end.done() for end in ends]
        assert closed == sorted(closed, reverse=True), "the oldest are closed"
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def test_clients_that_begin_no_handshake_lose_their_connections_if_there_are_too_many(tmp_path: Path) -> None:
    most, more = 20, 30
    authority = Authority.create(tmp_path)
    issued = authority.server("IP:127.0.0.1", name="tls")  # tls.crt and tls.key
    passed = lambda: HealthReport("livez", (Check("ping", True),))  # noqa: E731 - a report is a function

    async def judge(given: str) -> HTTPStatus:
        return HTTPStatus.OK if given == "known" else HTTPStatus.UNAUTHORIZED

    with socket.create_server(("127.0.0.1", 0)) as free:
        at = ListenAddress("127.0.0.1", free.getsockname()[1])
    async with serve_telemetry(
        ListenAddress("127.0.0.1", 0),
        registry=CollectorRegistry(),
        live=passed,
        ready=passed,
        secure=SecureMetrics(at, ServedCertificate(issued.key.parent), judge),
        bounds=ClientBounds(handshakes=most),
    ):
        ends = [asyncio.create_task(to_its_end(*await connect(at))) for _ in range(more)]
        trusting = ssl.create_default_context(cafile=str(authority.own.certificate))
        async with aiohttp.ClientSession(f"https://{at}") as client:
            for token, status in (("known", 200), ("unknown", 401)):
                headers = {"Authorization": f"Bearer {token}"}
                async with client.get("/metrics", headers=headers, ssl=trusting) as response:
                    assert response.status == status
        async with asyncio.timeout(60):
            await asyncio.gather(*ends)


async def test_scrapers_that_never_read_delay_no_probe_and_lose_their_connections() -> None:
    registry = CollectorRegistry()
    registry.register(LargeCollector())
    scrape = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    probes = []
    passed = lambda: HealthReport("livez", (Check("ping", True),))  # noqa: E731 - a report is a function
    async with (
        asyncio.timeout(120),
        serve_telemetry(
            ListenAddress("127.0.0.1", 0),
            registry=registry,
            live=passed,
            ready=passed,
            bounds=ClientBounds(scrapes=3, send_seconds=2.0),
        ) as address,
        aiohttp.ClientSession(f"http://{address}") as client,
    ):
        greedy = [await connect(address) for _ in range(3)]
        for _, writer in greedy:
            writer.write(scrape * 100)
        for awaited in (503, 200):  # they have all places, until they are given up on
            found = 0
            while found != awaited:
                started = time.monotonic()
                async with client.head("/livez") as probe:
                    assert probe.status == 200
                probes.append(time.monotonic() - started)
                async with client.head("/metrics") as answer:
                    found = answer.status
                await asyncio.sleep(0.2)
        for _, writer in greedy:
            writer.close()
    assert max(probes) < PROBE_SECONDS
