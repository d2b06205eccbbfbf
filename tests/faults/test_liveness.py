"""A stalled watch or control loop is reported, each watch separately."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import prometheus_client
import pytest

from respread.cluster.stores import watched_kinds
from respread.handlers.informer import Informers
from respread.handlers.operator import run_operator
from respread.kube.access import Renewal, load_access
from respread.telemetry.health import WatchHealth
from respread.telemetry.metrics import Metrics
from respread_sandbox import Sandbox
from tests.faults.proxy import FaultProxy

KINDS = watched_kinds()
FASTER = 150
"""The factor by which the clock of health runs faster: 180 s of silence take little more than a second."""


@pytest.fixture
def proxy(installed_sandbox: Sandbox, tmp_path: Path) -> Iterator[FaultProxy]:
    with FaultProxy(installed_sandbox) as running:
        running.kubeconfig(installed_sandbox.kubeconfig, tmp_path / "kubeconfig")
        yield running


@contextlib.asynccontextmanager
async def watching(proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[WatchHealth]:
    """Run the watches through the proxy, and yield their health when all have begun."""
    start = time.monotonic()
    # The clock runs faster only after the first lists, so that no kind counts as stuck on a slow machine.
    running_since: list[float] = []

    def clock() -> float:
        return start if not running_since else start + (time.monotonic() - running_since[0]) * FASTER

    health = WatchHealth([kind.resource for kind in KINDS], clock)
    metrics = Metrics(prometheus_client.CollectorRegistry(), version="test")
    informers = Informers(KINDS, health=health, metrics=metrics)
    access, stop = load_access(kubeconfig=str(tmp_path / "kubeconfig")), asyncio.Event()
    running = asyncio.create_task(
        run_operator(
            informers, metrics, identity="test", renewal=Renewal(access, lambda: access, time.monotonic), stop=stop
        )
    )
    watched = {kind.path for kind in KINDS}
    await until(lambda: health.synced and {each.path for each in proxy.asked if each.is_watch} >= watched)
    running_since.append(time.monotonic())
    yield health
    stop.set()
    await running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.02)


async def test_the_silence_of_each_watch_is_reported_until_it_delivers_again(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.bookmark_seconds = 0.2
    async with watching(proxy, tmp_path) as health:

        def failing() -> set[str]:
            return {check.name for check in health.watch_checks() if not check.passed}

        for kind in KINDS:
            await until(lambda: not failing())
            proxy.silent = {kind.path}
            await until(lambda kind=kind: failing() == {f"watch-{kind.resource}"})  # type: ignore[misc]  # no types for defaults
            proxy.silent = set()
        await until(lambda: not failing())


async def test_kinds_are_listed_again_if_their_idle_watches_are_cut_before_a_bookmark(
    proxy: FaultProxy, tmp_path: Path
) -> None:
    """A load balancer may cut connections after 35 s, and the API server sends a bookmark every minute."""
    proxy.idle_seconds = 0.2

    def lists() -> Counter[str]:
        return Counter(each.path for each in proxy.asked if not each.is_watch and each.method == "GET")

    async with watching(proxy, tmp_path):
        before = lists()
        await until(lambda: all(lists()[kind.path] >= before[kind.path] + 2 for kind in KINDS))
