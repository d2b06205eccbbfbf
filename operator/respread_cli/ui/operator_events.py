"""The operator's Events, read on request with the user's own permissions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Final

import msgspec

from respread.kube.events import REPORTING_CONTROLLER
from respread.program.command_line import CommandError
from respread_cli.read.live import ApiReader

MOST_EVENTS: Final = 2_000
"""The most Events of one namespace. Events are not listed by time, and an API server keeps them for an hour by default.
"""
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"


class EventSubject(msgspec.Struct, frozen=True):
    """An object that an Event concerns."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class OperatorEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An Event of the operator."""

    time: datetime
    """When it was last seen."""
    warning: bool
    reason: str
    note: str
    count: int
    """How often it was seen."""
    regarding: EventSubject
    related: EventSubject


class ReadEvents(msgspec.Struct, frozen=True):
    """The Events that were read."""

    events: tuple[OperatorEvent, ...] = ()
    """Newest first."""
    unreadable: str | None = None
    """Why not all could be read, as a sentence; None if all were."""


def read_operator_events(reader: ApiReader, namespaces: Iterable[str]) -> ReadEvents:
    """Return the operator's Events in some namespaces. Those on cluster-scoped objects are in `default`."""
    events: list[OperatorEvent] = []
    unreadable: list[str] = []
    for namespace in namespaces:
        try:
            events += _read(reader, namespace)
        except CommandError as error:
            unreadable.append(error.message)
    events.sort(key=lambda event: event.time, reverse=True)
    return ReadEvents(tuple(events), " ".join(unreadable) or None)


def _read(reader: ApiReader, namespace: str) -> Iterable[OperatorEvent]:
    selector = f"reportingController={REPORTING_CONTROLLER}"
    response = reader.get(_EVENTS.format(namespace=namespace), {"fieldSelector": selector, "limit": MOST_EVENTS})
    if response.status_code == HTTPStatus.FORBIDDEN:
        raise CommandError(f"You are not allowed to list Events in namespace {namespace}, so they are not shown.")
    if not response.ok:
        raise CommandError(f"Events in namespace {namespace} can't be read: {response.status_code} {response.reason}.")
    try:
        items = msgspec.json.decode(response.content, type=_Events).items or ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"Events in namespace {namespace} can't be read: {error}.") from error
    return [_event(item, time) for item in items if (time := item.last_time) is not None]


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    event_time: datetime | None = None
    series: _Series | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: EventSubject | None = None
    related: EventSubject | None = None

    @property
    def last_time(self) -> datetime | None:
        """Return when it was last seen; None if it has no time."""
        observed = None if self.series is None else self.series.last_observed_time
        return observed or self.event_time or self.metadata.creation_timestamp


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


def _event(item: _Event, time: datetime) -> OperatorEvent:
    return OperatorEvent(
        time=time,
        warning=item.type == "Warning",
        reason=item.reason,
        note=item.note,
        count=1 if item.series is None else item.series.count,
        regarding=item.regarding or EventSubject(),
        related=item.related or EventSubject(),
    )
