"""Runs Kopf, from the first request to a clean stop.

It is configured so that it handles a large cluster and changes no object. There is one handler for the events of each
kind, and the login.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import kopf

from respread.api.policy import API_VERSION
from respread.cluster.decode.decoder import Kind
from respread.cluster.stores import PODS, POLICY_KINDS, RECORDS, UNFINISHED_PODS, full_name
from respread.handlers.informer import Informer, Informers
from respread.handlers.session import open_session
from respread.kube.access import AccessError, ClusterAccess, Renewal
from respread.kube.retry import Retry
from respread.lean_process import prepare_for_long
from respread.telemetry.health import SILENT_SECONDS, WatchHealth
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_PAGE_OBJECTS: Final = 500
_WATCH_SECONDS: Final = 300


def make_settings() -> kopf.OperatorSettings:
    """Return the settings of the operator."""
    settings = kopf.OperatorSettings()
    settings.watching.chunk_size = _PAGE_OBJECTS
    settings.watching.field_selectors[PODS.group, PODS.version, PODS.resource] = UNFINISHED_PODS
    # A stream that breaks during the initial objects loses some without an error.
    settings.watching.initial_streaming = False
    settings.watching.server_timeout = _WATCH_SECONDS
    settings.watching.client_timeout = _WATCH_SECONDS + 30
    settings.watching.inactivity_timeout = SILENT_SECONDS
    settings.watching.connect_timeout = 10
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = Retry()
    # The worker of each object that changed lives on for this long.
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 1
    settings.posting.enabled = False
    # Otherwise another operator's peering object would pause us.
    settings.peering.standalone = True
    # Only resources that exist at the start are watched, so the permission to list CustomResourceDefinitions is not
    # needed.
    settings.scanning.disabled = True
    # No handler of ours needs a finalizer, but Kopf removes any finalizer with this name, so it must be nobody else's.
    settings.persistence.finalizer = "respread.dev/never-set"
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    # Kopf would kill the whole process some time after its own end.
    settings.process.ultimate_exiting_timeout = None
    return settings


def quieten_kopf() -> None:
    """Keep Kopf from logging a line for each handled event. Errors are still logged."""
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Compares nothing: handlers of plain events need no diffs, for which Kopf would copy every object."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        del body
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class _NoProgress(kopf.ProgressStorage):
    """Stores nothing: handlers of plain events are never resumed."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        del key, body
        return None

    def store(self, *, key: kopf.HandlerId, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is stored."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Touch nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


_SETTLED_SECONDS: Final = 60.0
"""Credentials that worked for this long were valid. A later problem has another cause."""


def make_registry(informers: Iterable[Informer], metrics: Metrics, renewal: Renewal) -> kopf.OperatorRegistry:
    """Return a registry with all handlers. Nothing is registered globally."""
    informers = tuple(informers)
    registry = kopf.OperatorRegistry()
    kopf.on.login(id="login", registry=registry)(_login(informers, renewal))
    for informer in informers:
        kind = informer.kind
        kopf.on.event(kind.group, kind.version, kind.resource, id=kind.resource, registry=registry)(
            _on_event(informer, metrics)
        )
    return registry


def _on_event(informer: Informer, metrics: Metrics) -> Callable[..., Awaitable[None]]:
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        start = time.perf_counter()
        events = informer.take_event(event["object"], deleted=event["type"] == "DELETED")
        metrics.observe_event_apply(time.perf_counter() - start, events)

    return on_event


def _login(informers: tuple[Informer, ...], renewal: Renewal) -> Callable[..., Awaitable[kopf.AiohttpSession]]:
    by_path = {informer.kind.path: informer for informer in informers}
    known = [renewal.access]
    retry = Retry()
    last_login_seconds = -_SETTLED_SECONDS

    async def login(**_: Any) -> kopf.AiohttpSession:
        nonlocal last_login_seconds
        if time.monotonic() - last_login_seconds >= _SETTLED_SECONDS:
            retry.succeeded()
        else:  # Kopf would ask again at once, and again
            await asyncio.sleep(retry.failed())
        try:
            current = known.pop() if known else await asyncio.to_thread(renewal.load)
        except AccessError as error:
            raise kopf.TemporaryError(str(error), delay=retry.failed()) from error
        last_login_seconds = time.monotonic()
        return kopf.AiohttpSession(
            server=current.endpoint.server,
            aiohttp_session=open_session(current, by_path),
            default_namespace=current.endpoint.namespace,
        )

    return login


_log: Final = get_logger(__name__)

_REQUEST_SECONDS: Final = 10


async def wait_until_installed(policies: Iterable[Kind], access: ClusterAccess, health: WatchHealth) -> None:
    """Wait until the API server serves these kinds of policies and those of their records.

    Kopf determines the resources to watch once, at its start, and nobody may evict without a record of it. The
    CustomResourceDefinitions may be applied shortly after the operator, together with it, or by a user who has read the
    log.

    The obstacle is logged whenever it changes, and readiness reports it meanwhile.
    """
    watched = tuple(policies)
    kinds = (*watched, *(RECORDS[each] for each in watched))
    retry = Retry(greatest_seconds=5.0)
    last_problem = ""
    async with open_session(access, {}) as session:
        while True:
            problem = await _problem(session, access.endpoint.server, kinds)
            if not problem:
                return
            for kind in watched:
                health.asked(kind.resource)
                health.hindered(kind.resource, problem)
            if problem != last_problem:
                _log.error("Waiting for the cluster before anything can be watched", problem=problem)
                last_problem = problem
            await asyncio.sleep(retry.failed())


async def _problem(session: aiohttp.ClientSession, server: str, kinds: tuple[Kind, ...]) -> str:
    """Return why these kinds are not available, or an empty string if they are."""
    try:
        async with session.get(
            f"{server}/apis/{API_VERSION}", timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
        ) as response:
            if response.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
                return f"the API server answers {response.status} {response.reason} to who asks for {API_VERSION}"
            document = await response.json(content_type=None) if response.status == HTTPStatus.OK else {}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return f"the API server at {server} can't be reached: {str(error) or type(error).__name__}"
    served = {resource.get("name") for resource in document.get("resources", ())}
    missing = [full_name(kind) for kind in kinds if kind.resource not in served]
    if not missing:
        return ""
    return (
        f"the CustomResourceDefinitions {', '.join(missing)} are not installed in version {API_VERSION}: "
        "kubectl apply -f crds/"
    )


async def run_operator(
    informers: Informers,
    metrics: Metrics,
    *,
    identity: str,
    renewal: Renewal,
    stop: asyncio.Event,
    signalled: asyncio.Event | None = None,
) -> None:
    """Fill the stores from the cluster until stopped.

    Kopf treats every task that was started after it as its own, and waits seconds for it before it stops. So end
    everything else first, then set `stop`. Set `stop` to stop, which takes well under a second. `signalled` is set when
    SIGTERM or SIGINT arrives; by default, that is `stop` itself. The identity is unique for this process: without one,
    Kopf asks for the name of the user, and a pod's has none.

    Raises:
        Exception: if Kopf can't continue. Problems of the cluster are waited out, so this is an error in the program.
    """
    on_signal = (stop if signalled is None else signalled).set
    _listen_for_signals(on_signal)
    quieten_kopf()
    prepare_for_long()
    policies = [informer.kind for informer in informers.all if informer.kind in POLICY_KINDS]
    if not await _before(stop, wait_until_installed(policies, renewal.access, informers.health)):
        return
    started = asyncio.Event()
    ending = asyncio.create_task(_end_watchers())  # Before Kopf, which waits for tasks that begin later.
    running = asyncio.create_task(
        kopf.operator(
            registry=make_registry(informers.all, metrics, renewal),
            settings=make_settings(),
            identity=identity,  # type: ignore[arg-type]  # a NewType of str that Kopf does not export
            clusterwide=True,
            standalone=True,
            stop_flag=stop,
            ready_flag=started,
        ),
        name="kopf",
    )
    try:
        await _before(started, asyncio.shield(running))
        _listen_for_signals(on_signal)  # Kopf has installed its own, which stop only Kopf.
        await running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        ending.cancel()


_CANCELLED_SECONDS: Final = 2.0
"""How long after its cancellation a watcher is cancelled again: it ends within one round of the event loop."""


async def _end_watchers() -> None:
    """Cancel Kopf's watchers again that go on although they were cancelled. It runs until it is cancelled.

    Kopf cancels each only once, at its end, and then waits for it without a limit. Between two watches, a watcher
    cancels a task of its own and awaits it, and takes a cancellation that arrives meanwhile for that one's
    (`streaming_block` in Kopf's `watching.py`).
    """
    before: set[asyncio.Task[Any]] = set()
    while True:
        await asyncio.sleep(_CANCELLED_SECONDS)
        cancelled = {
            each for each in asyncio.all_tasks() if each.get_name().startswith("watcher for ") and each.cancelling()
        }
        for task in cancelled & before:
            task.cancel()
        before = cancelled


async def _before(event: asyncio.Event, work: Coroutine[Any, Any, object] | asyncio.Future[Any]) -> bool:
    """Await the work, but not after the event is set. Return whether it is complete."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        for each in (working, waiting):
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await each


def _listen_for_signals(on_signal: Callable[[], None]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # Only the main thread receives signals.
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
