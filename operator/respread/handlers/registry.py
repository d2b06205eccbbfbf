"""The Kopf handlers: one for the events of each kind, and the login."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import kopf

from respread.handlers.informer import Informer
from respread.handlers.session import open_session
from respread.kube.access import AccessError
from respread.kube.renewal import Renewal
from respread.kube.retry import Retry
from respread.telemetry.metrics import Metrics

_SETTLED_SECONDS: Final = 60.0
"""Credentials that worked for this long were valid. A later problem has another cause."""


def make_registry(informers: Iterable[Informer], metrics: Metrics, renewal: Renewal) -> kopf.OperatorRegistry:
    """Return a registry with all handlers. Nothing is registered globally.

    Args:
        informers: One for each watched kind.
        metrics: Receive the duration of each event.
        renewal: Knows the API server, and loads credentials again when it no longer accepts the initial ones.
    """
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
            server=current.server,
            aiohttp_session=open_session(current, by_path),
            default_namespace=current.namespace,
        )

    return login
