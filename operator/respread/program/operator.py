"""Creates the operator and runs it until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from respread import __version__
from respread.cluster.stores import watched_kinds
from respread.controller.lease import leadership_of, own_namespace
from respread.controller.loops import COUNTED, loops_of
from respread.controller.options import OperatorOptions
from respread.controller.permissions import OPTIONAL, Permissions
from respread.controller.waking import heartbeat_of_loop
from respread.handlers.informer import Informers
from respread.handlers.operator import run_operator
from respread.kube.access import ClusterAccess, Renewal, load_access
from respread.kube.events import EventRecorder
from respread.kube.leadership import seconds_since_boot
from respread.kube.metrics_readers import MetricsReaders
from respread.kube.requests import Requests, open_requests
from respread.telemetry.health import Heartbeat, WatchHealth
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics
from respread.telemetry.server import SecureMetrics, serve_telemetry

_log: Final = get_logger(__name__)

REVISION_VARIABLE: Final = "RESPREAD_REVISION"
"""The environment variable that the image sets to the commit it was built from."""
STOP_SECONDS: Final = 20.0
"""How long a stop waits for the answers to sent requests and for the last statuses: longer than both may take, and
shorter than the 30 s that Kubernetes gives a pod."""
GOODBYE_SECONDS: Final = 0.1
SWITCH_SECONDS: Final = 0.001
"""After how long a computing thread yields to others. With Python's 0.005, the event loop, which needs the interpreter
after every system call, waits five times as long for it during a plan: half as many events are processed, and timers
are late by 0.1 s instead of 0.03 s. Plans take no longer."""


async def run(options: OperatorOptions) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        AccessError: no cluster is configured, its credentials are not available, or permissions for the Lease are
            missing.
        OSError: the listen address is in use.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    find = partial(load_access, kubeconfig=options.kubeconfig, context=options.context)
    access = await asyncio.to_thread(find)
    renewal = Renewal(access, find, monotonic)
    kinds = watched_kinds(namespaced_policies=options.namespaced_policies)
    health = WatchHealth([kind.resource for kind in kinds])
    registry = CollectorRegistry()
    metrics = Metrics(
        registry,
        version=__version__,
        revision=os.environ.get(REVISION_VARIABLE, ""),
        kinds=health.kinds,
        from_the_start=COUNTED,
        domain_pods=options.domain_metrics,
    )
    informers = Informers(kinds, health=health, metrics=metrics)
    informers.register_gauges(registry)
    heartbeat = heartbeat_of_loop(monotonic)
    process = _Process(options, _identity(), access, renewal, metrics, informers, heartbeat)
    signalled, stop = asyncio.Event(), asyncio.Event()
    _log.info("Starting", version=__version__, server=access.endpoint.server)
    async with (
        process.secure_metrics() as secure,
        serve_telemetry(
            options.listen_address,
            registry=registry,
            live=partial(health.live, heartbeat),
            ready=health.ready,
            secure=secure,
        ),
        process.permitted() as (requests, permissions),
        EventRecorder(requests, instance=process.identity).writing() as events,
    ):
        feeding = asyncio.create_task(
            run_operator(
                informers, metrics, identity=process.identity, renewal=renewal, stop=stop, signalled=signalled
            ),
            name="operator",
        )
        try:
            await process.act(requests, permissions, events, signalled, feeding)
        finally:
            stop.set()
            await feeding
            # Connections over TLS say goodbye; the event loop can't be closed before they have.
            await asyncio.sleep(GOODBYE_SECONDS)


class _Process(NamedTuple):
    """What the operator consists of, and how it acts."""

    options: OperatorOptions
    identity: str
    access: ClusterAccess
    renewal: Renewal
    metrics: Metrics
    informers: Informers
    heartbeat: Heartbeat

    @contextlib.asynccontextmanager
    async def secure_metrics(self) -> AsyncIterator[SecureMetrics | None]:
        """Ask the API server who may read the metrics while the context lasts, over a connection of its own."""
        if self.options.secure_metrics is None:
            yield None
            return
        async with open_requests(self.access, self.renewal, self.metrics.observe_request, connections=1) as requests:
            yield SecureMetrics(*self.options.secure_metrics, MetricsReaders(requests, monotonic).judge)

    @contextlib.asynccontextmanager
    async def permitted(self) -> AsyncIterator[tuple[Requests, Permissions]]:
        """Send requests, except those whose permission is known to be missing, while the context lasts."""
        async with open_requests(self.access, self.renewal, self.metrics.observe_request) as requests:
            permissions = Permissions(
                requests,
                OPTIONAL,
                seconds_since_boot,
                ask_again_seconds=self.options.permissions_seconds,
                notify=partial(self.informers.changes.notify, "permissions"),
            )
            yield requests.through(permissions), permissions

    async def act(
        self,
        requests: Requests,
        permissions: Permissions,
        events: EventRecorder,
        signalled: asyncio.Event,
        feeding: asyncio.Task[None],
    ) -> None:
        """Take part in the election, and act while this replica leads, until signalled, or something ends."""
        async with contextlib.AsyncExitStack() as acting:
            leadership = await acting.enter_async_context(
                leadership_of(
                    *(self.options.lease, self.identity, self.access, self.renewal, self.metrics, self.informers),
                    may_give_up=lambda: not loops.acting.uncertain,
                )
            )
            loops = loops_of(
                self.options,
                requests,
                self.informers,
                leadership,
                own_namespace=own_namespace(self.options.lease, self.access, self.informers),
                permissions=permissions,
                events=events,
                metrics=self.metrics,
                heartbeat=self.heartbeat,
            )
            running = loops.start()
            try:
                beside = (each() for each in loops.beside)
                await _until_first(signalled.wait(), feeding, *running, *beside, *leadership.tasks)
            finally:
                _log.info("Stopping")
                # The loops end first, after the answers to their requests and the last statuses, then the Lease, and
                # last their inputs.
                loops.stop()
                await asyncio.gather(*(_ended(each, STOP_SECONDS) for each in running))
                await acting.aclose()


async def _until_first(*works: Coroutine[Any, Any, Any] | asyncio.Task[None]) -> None:
    """Wait until one of them ends, cancel the others that started here, and raise what it raised."""
    tasks = [work if isinstance(work, asyncio.Task) else asyncio.create_task(work) for work in works]
    own = [task for task, work in zip(tasks, works, strict=True) if task is not work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)
    for task in done:
        task.result()


async def _ended(task: asyncio.Task[None], seconds: float) -> None:
    """Wait for a task to end, and cancel it if it takes too long. Its exception was raised before."""
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        _log.warning("Requests are still unanswered; stopping all the same")
        task.cancel()
        await asyncio.wait([task])


def _identity() -> str:
    """Return a unique name for this process: in a pod, its host name is the pod's name.

    No name of a user is part of it, because the users of containers have none.
    """
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"
