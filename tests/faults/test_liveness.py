"""A stalled watch or control loop is reported, each watch separately."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest

from respread.handlers.health import WatchHealth
from respread.handlers.informers import Informers
from respread.handlers.operator import run_operator
from respread.kube.access import load_access
from respread.kube.renewal import Renewal
from respread.stores.watched_kinds import watched_kinds
from respread.telemetry.metrics import Metrics
from respread_sandbox import Sandbox
from tests.faults.proxy import FaultProxy

KINDS = watched_kinds()
FASTER = 150
"""The factor by which the clock of health runs faster: 180 s of silence take little more than a second."""


@pytest.fixture
def proxy(installed_sandbox: Sandbox) -> Iterator[FaultProxy]:
    with FaultProxy(installed_sandbox) as running:
        running.bookmark_seconds = 0.2
        yield running


def test_the_silence_of_each_watch_is_reported_until_it_delivers_again(
    installed_sandbox: Sandbox, proxy: FaultProxy, tmp_path: Path
) -> None:
    start = time.monotonic()
    # The clock runs faster only after the first lists, so that no kind counts as stuck on a slow machine.
    running_since: list[float] = []

    def clock() -> float:
        return start if not running_since else start + (time.monotonic() - running_since[0]) * FASTER

    kubeconfig = proxy.kubeconfig(installed_sandbox.kubeconfig, tmp_path / "kubeconfig")
    health = WatchHealth([kind.resource for kind in KINDS], clock)
    metrics = Metrics.create(prometheus_client.CollectorRegistry(), version="test")
    informers = Informers(KINDS, health=health, metrics=metrics)

    def failing() -> set[str]:
        return {check.name for check in health.watch_checks() if not check.passed}

    async def until(names: set[str]) -> None:
        async with asyncio.timeout(90):
            while failing() != names:
                await asyncio.sleep(0.02)

    async def scenario() -> None:
        access, stop = load_access(kubeconfig=str(kubeconfig)), asyncio.Event()
        running = asyncio.create_task(
            run_operator(informers, metrics, renewal=Renewal(access, lambda: access, time.monotonic), stop=stop)
        )
        async with asyncio.timeout(90):
            while not health.synced or {each.path for each in proxy.asked if each.is_watch} < {
                kind.path for kind in KINDS
            }:
                await asyncio.sleep(0.05)
        running_since.append(time.monotonic())
        for kind in KINDS:
            await until(set())
            proxy.silent = {kind.path}
            await until({f"watch-{kind.resource}"})
            proxy.silent = set()
        await until(set())
        stop.set()
        await running

    asyncio.run(scenario())
