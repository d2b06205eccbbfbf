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
from typing import Any, Final

from prometheus_client import CollectorRegistry

from respread import __version__
from respread.controller.acting import put_together
from respread.controller.announcements import Announcements
from respread.controller.control_loop import ControlLoop
from respread.controller.lease import leadership_of, own_namespace
from respread.controller.options import OperatorOptions
from respread.controller.permits.permission_needs import OPTIONAL, PermissionNeeds
from respread.controller.permits.permissions import Permissions
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.evictor_names import others_by_name
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.waiting import heartbeat_of_loop
from respread.eviction.answers import EvictionResult
from respread.handlers.health import WatchHealth
from respread.handlers.informers import Informers
from respread.handlers.operator import run_operator
from respread.kube.access import ClusterAccess, Renewal, load_access
from respread.kube.events import record_events
from respread.kube.leadership import seconds_since_boot
from respread.kube.requests import Requests, open_requests
from respread.moves.entry import Outcome
from respread.provisioning.room_loop import RoomLoop
from respread.provisioning.room_objects import Buffers, Placeholders
from respread.provisioning.term import RoomEnd
from respread.stores.watched_kinds import POLICY_KINDS, watched_kinds
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import CountedFromTheStart, Metrics
from respread.telemetry.server import serve_telemetry

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
    policy_kinds = [kind for kind in kinds if kind in POLICY_KINDS]
    health = WatchHealth([kind.resource for kind in kinds])
    registry = CollectorRegistry()
    metrics = Metrics.create(
        registry,
        version=__version__,
        revision=os.environ.get(REVISION_VARIABLE, ""),
        kinds=health.kinds,
        from_the_start=CountedFromTheStart(
            results=(EvictionResult.EVICTED,), outcomes=tuple(Outcome), room_results=tuple(RoomEnd)
        ),
        domain_pods=options.domain_metrics,
    )
    informers = Informers(kinds, health=health, metrics=metrics)
    informers.register_gauges(registry)
    heartbeat = heartbeat_of_loop(monotonic)
    signalled, stop = asyncio.Event(), asyncio.Event()
    identity = _identity()
    _log.info("Starting", version=__version__, server=access.server)
    async with (
        serve_telemetry(
            options.listen_address,
            registry=registry,
            live=partial(health.live, heartbeat),
            ready=health.ready,
        ),
        _permitted(options, access, renewal, metrics, informers) as (requests, permissions),
        record_events(requests, instance=identity) as events,
        contextlib.AsyncExitStack() as acting,
    ):
        feeding = asyncio.create_task(
            run_operator(informers, metrics, identity=identity, renewal=renewal, stop=stop, signalled=signalled),
            name="operator",
        )
        try:
            leadership = await acting.enter_async_context(
                leadership_of(
                    *(options, identity, access, renewal, metrics, informers),
                    may_give_up=lambda: not (actors.journal.ledger.uncertain or actors.statuses.uncertain),
                )
            )
            actors = put_together(
                requests,
                informers,
                leadership.leading,
                announcements=Announcements(events.record, informers.policies.current),
                metrics=metrics,
                clock=seconds_since_boot,
                policy_kinds=policy_kinds,
                exclusive_seconds=leadership.exclusive_seconds,
            )
            prevention = PreventionLoop(
                requests,
                leads=leadership.leading.leads,
                exclusive_seconds=leadership.exclusive_seconds,
                metrics=metrics,
                notify=partial(informers.changes.notify, "costs"),
                clock=seconds_since_boot,
            )
            others, evictor_names = others_by_name(requests, metrics)
            room = RoomLoop(
                Placeholders(requests, options.placeholder_image),
                Buffers(requests, options.placeholder_image),
                namespace=own_namespace(options, access, informers),
                leads=leadership.leading.leads,
                may_evict=lambda policy: actors.permission.of_policy(policy, policy.name) is None,
                metrics=metrics,
                notify=partial(informers.changes.notify, "room"),
                clock=seconds_since_boot,
            )
            scheduler = SchedulerModel.of_cluster(
                options.scheduler_configuration, requests, informers, seconds_since_boot
            )
            loop = ControlLoop(
                informers,
                actors,
                leading=leadership.leading,
                prevention=prevention,
                room=room,
                needs=PermissionNeeds(
                    permissions,
                    own_namespace=own_namespace(options, access, informers),
                    announce=actors.announcements.permissions,
                    helm_release=options.helm_release,
                ),
                metrics=metrics,
                heartbeat=heartbeat,
                others=others,
                scheduler=scheduler,
                clock=seconds_since_boot,
            )
            looping = asyncio.create_task(loop.run(), name="control-loop")
            preventing = asyncio.create_task(prevention.run(), name="prevention")
            provisioning = asyncio.create_task(room.run(), name="room")
            try:
                await _until_first(
                    signalled.wait(),
                    feeding,
                    looping,
                    preventing,
                    provisioning,
                    scheduler.run(),
                    permissions.run(),
                    evictor_names.run(),
                    *leadership.tasks,
                )
            finally:
                _log.info("Stopping")
                # The acting tasks end first, after the answers to their requests and the last statuses, then the Lease,
                # and last their inputs.
                loop.stop()
                prevention.stop()
                room.stop()
                await asyncio.gather(*(_ended(each, STOP_SECONDS) for each in (looping, preventing, provisioning)))
                await acting.aclose()
        finally:
            stop.set()
            await feeding
            # Connections over TLS say goodbye; the event loop can't be closed before they have.
            await asyncio.sleep(GOODBYE_SECONDS)


@contextlib.asynccontextmanager
async def _permitted(
    options: OperatorOptions, access: ClusterAccess, renewal: Renewal, metrics: Metrics, informers: Informers
) -> AsyncIterator[tuple[Requests, Permissions]]:
    """Send requests, except those whose permission is known to be missing, while the context lasts."""
    async with open_requests(access, renewal, metrics.observe_request) as requests:
        permissions = Permissions(
            requests,
            OPTIONAL,
            seconds_since_boot,
            ask_again_seconds=options.permissions_seconds,
            notify=partial(informers.changes.notify, "permissions"),
        )
        yield requests.through(permissions), permissions


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
