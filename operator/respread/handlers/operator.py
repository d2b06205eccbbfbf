"""Runs Kopf, from the first request to a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

import kopf

from respread.gc_tuning import relax_garbage_collection
from respread.handlers.informers import Informers
from respread.handlers.installed import wait_until_installed
from respread.handlers.registry import make_registry
from respread.handlers.settings import make_settings, quieten_kopf
from respread.kube.renewal import Renewal
from respread.stores.watched_kinds import POLICY_KINDS
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)


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
    everything else first, then set `stop`.

    Args:
        informers: The informers with their stores.
        metrics: Receive the duration of events.
        identity: A unique name for this process. Without one, Kopf asks for the name of the user, and a pod's has none.
        renewal: Knows the API server, and loads credentials again when they are no longer accepted.
        stop: Set it to stop, which takes well under a second.
        signalled: Set when SIGTERM or SIGINT arrives; `stop` itself by default.

    Raises:
        Exception: if Kopf can't continue. Problems of the cluster are waited out, so this is an error in the program.
    """
    on_signal = (stop if signalled is None else signalled).set
    _listen_for_signals(on_signal)
    quieten_kopf()
    relax_garbage_collection()
    policies = [informer.kind for informer in informers.all if informer.kind in POLICY_KINDS]
    if not await _before(stop, wait_until_installed(policies, renewal.access, informers.health)):
        return
    started = asyncio.Event()
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
