"""The operator's watches, running in the test's own event loop against a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import prometheus_client

from respread.cluster.stores import watched_kinds
from respread.handlers.informer import Informers
from respread.handlers.operator import run_operator
from respread.kube.access import Renewal, load_access
from respread.telemetry.health import WatchHealth
from respread.telemetry.metrics import Metrics
from respread_sandbox import Sandbox

PATIENCE_SECONDS = 120


class Watches:
    """The informers of the operator and their stores."""

    def __init__(self, kubeconfig: Path) -> None:
        kinds = watched_kinds()
        self.registry = prometheus_client.CollectorRegistry()
        self.metrics = Metrics(self.registry, version="test", kinds=[kind.resource for kind in kinds])
        self.health = WatchHealth([kind.resource for kind in kinds])
        self.informers = Informers(kinds, health=self.health, metrics=self.metrics)
        self.stop, self.signalled = asyncio.Event(), asyncio.Event()
        self.load = functools.partial(load_access, kubeconfig=str(kubeconfig))

    async def run(self) -> None:
        """Run until `stop` is set."""
        await run_operator(
            self.informers,
            self.metrics,
            identity="test",
            renewal=Renewal(self.load(), self.load, time.monotonic),
            stop=self.stop,
            signalled=self.signalled,
        )

    def pods(self, namespace: str) -> set[str]:
        """Return the names of a namespace's pods."""
        return {key.name for key in self.informers.state.snapshot.pods if key.namespace == namespace}

    def problems(self) -> dict[str, str]:
        """Return the obstacles to readiness, by kind."""
        return {each.name.removeprefix("sync-"): each.message for each in self.health.sync_checks() if not each.passed}

    def relists(self, resource: str) -> float:
        """Return how often a kind has been listed after the first time."""
        return self.registry.get_sample_value("respread_watch_relists_total", {"kind": resource}) or 0

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - what is waited for may be anything
                await asyncio.sleep(0.02)

    async def synced(self) -> None:
        """Wait until every kind is known."""
        await self.until(lambda: self.health.synced)


@contextlib.asynccontextmanager
async def running_watches(kubeconfig: Path, *, synced: bool = True) -> AsyncIterator[Watches]:
    """Run the watches, stop them at the end, and raise their exception if they failed."""
    watches = Watches(kubeconfig)
    running = asyncio.create_task(watches.run())
    try:
        if synced:
            waiting = asyncio.create_task(watches.synced())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        yield watches
    finally:
        watches.stop.set()
        await running


async def request(sandbox: Sandbox, method: str, path: str, body: Any = None) -> Any:
    """Send a request as the administrator, without blocking the loop."""
    return await asyncio.to_thread(sandbox.api.request, method, path, body)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that is bound to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "web"}], **spec},
    }
