"""Applies the lists and watch events of each kind to its store.

The pages of a list are collected and then replace the content of the store, so that objects which vanished unnoticed
are gone. Each watch event changes one object.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from time import monotonic, time
from typing import Any, Final

import msgspec
from immutables import Map
from prometheus_client import CollectorRegistry

from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import DecodeError
from respread.cluster.stores import KindStore, Stores
from respread.handlers.event_buffer import EventBuffer, LightEvent, identity_of
from respread.kube.listing import ListMetadata
from respread.telemetry.gauges import DECISION_LAG, LAST_EVENT, OBJECTS, WATCH_LAG, Gauges, Samples
from respread.telemetry.health import WatchHealth
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import DECODE_ERRORS, RELISTS, Metrics

_EVENTS_PER_GENERATION = 20_000


class Versions:
    """The known versions of the objects of one resource, which distinguish old events from new ones.

    Kopf passes the events of one object to its handler in order, but a slow worker may still hold an event from before
    a list, and a proxy or a restored connection may repeat a watch. If such an event were applied after the list, it
    would bring back a deleted pod for good.

    Resource versions of one resource are comparable as integers (KEP-5504; this was always so in practice). If one is
    not an integer, nothing is known and everything counts as new.

    Memory is bounded: versions are stored in two generations. When the younger is full, the older is dropped, and
    everything not newer than the dropped versions counts as old. The process handles far fewer events at once than a
    generation.
    """

    def __init__(self, events_per_generation: int = _EVENTS_PER_GENERATION) -> None:
        self._events_per_generation = events_per_generation
        self._floor = 0
        self._older: dict[ObjectKey, int] = {}
        self._younger: dict[ObjectKey, int] = {}

    def restart(self, list_version: str) -> None:
        """Start again from a complete list, whose version applies to all objects in it and to all absent ones."""
        self._floor = _as_number(list_version) or 0
        self._older, self._younger = {}, {}

    def is_news(self, key: ObjectKey, version: str, *, deleted: bool = False) -> bool:
        """Return whether this version of the object is newer than all known ones, and store it.

        A deletion has a version of its own in etcd, but the API only reports the object's last version. So it is new if
        it is not older.
        """
        number = _as_number(version)
        if number is None:
            return True
        seen = self._younger.get(key) or self._older.get(key) or self._floor
        if number < seen or (number == seen and not deleted):
            return False
        self._younger[key] = number
        if len(self._younger) >= self._events_per_generation:
            self._floor = max(self._floor, max(self._older.values(), default=0))
            self._older, self._younger = self._younger, {}
        return True


def _as_number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdigit() else None


if sys.platform != "win32":
    import fcntl
    import termios


class Backlog:
    """Since when there has always been something to read.

    An event does not say when it was sent. But when everything that had arrived has been read, nothing older remains.
    So what is unread now, here or at the API server, came after that.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.since: float | None = None
        """Since when; None if everything that arrived was read."""

    def came(self) -> float:
        """Record that something has arrived, and return the time on the clock."""
        now = self._clock()
        if self.since is None:
            self.since = now
        return now

    def emptied(self, by: float | None = None) -> None:
        """Record that everything was read that had arrived by a time on the clock; None: by now."""
        self.since = by

    def lag_seconds(self) -> float:
        """Return the maximum age of the oldest unread data; 0 if there is none. Any thread may call this."""
        since = self.since
        return 0.0 if since is None else self._clock() - since


def unread_bytes(transport: asyncio.BaseTransport | None) -> int:
    """Return the number of unread bytes that the system holds for a connection; 0 if it does not report it."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or sys.platform == "win32":
        return 0
    try:
        answer = fcntl.ioctl(socket.fileno(), termios.FIONREAD, bytes(4))
    except (OSError, ValueError):  # It was closed just now.
        return 0
    return int.from_bytes(answer, sys.byteorder)


_log: Final = get_logger(__name__)


class _ListHead(msgspec.Struct):
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


class Informer:
    """Applies the objects of one kind to their store, and notifies about changes.

    An object that can't be decoded never stops the others. Its fault is logged once while it stays the same, and the
    last version that could be decoded is kept: its labels and node are nearly always unchanged, and without it a node
    would seem to have room that it does not have. It is in `undecodable` until it can be decoded or is gone.
    """

    def __init__(
        self, kind: Kind, store: KindStore, *, health: WatchHealth, metrics: Metrics, notify: Callable[[str], None]
    ) -> None:
        """Start empty.

        `notify` is called with the kind's plural name after every change, and always after the first list.
        """
        self.kind = kind
        self.health = health
        self.backlog = Backlog()
        self._store = store
        self._metrics = metrics
        self._notify = notify
        self._versions = Versions()
        self._event_buffer = EventBuffer(kind, store.decode_object)
        self._collected: dict[ObjectKey, Any] = {}
        self._faults: dict[ObjectKey, DecodeError] = {}

    @property
    def undecodable(self) -> Map[ObjectKey, DecodeError]:
        """The objects of which only an older version, or nothing, is known, and why."""
        return self._store.undecodable

    @property
    def count(self) -> int:
        """The number of stored objects of the kind."""
        return len(self._store.held())

    def lag_seconds(self) -> float:
        """Return how long the oldest event has been waiting at most. Any thread may call this."""
        return max(self._event_buffer.lag_seconds(), self.backlog.lag_seconds())

    def begin_list(self) -> None:
        """Start a new list. Pages of an unfinished list are dropped."""
        self._collected, self._faults = {}, {}

    def take_page(self, body: bytes) -> dict[str, Any]:
        """Add one page of a list. With the last one, the list replaces the content of the store.

        It was requested with the continue token of the page before, and is returned without its items.

        Raises:
            DecodeError: if it is not a list. The earlier pages are kept; the list should be started again.
        """
        page = self._store.decode_page(body)
        try:
            metadata = msgspec.json.decode(page.remainder, type=_ListHead).metadata
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise DecodeError(self.kind.resource, "", "", "metadata", str(fault)) from fault
        self.health.heard(self.kind.resource)
        self._collected.update(page.items)
        for error in page.errors:
            self._faults[error.key] = error
        if not metadata.continue_:
            self._replace(metadata.resource_version)
        remainder: dict[str, Any] = msgspec.json.decode(page.remainder)
        return remainder

    def read_event(self, line: bytes) -> LightEvent | None:
        """Take the object out of a line of the watch, and return the rest for Kopf; None if the line has no object.

        The object is applied when Kopf calls the handler for it or for a later event. An event that changes nothing in
        the store, such as a node's heartbeat, is complete at once: Kopf gets a bookmark, for which it calls no handler.

        Raises:
            ErrorEventError: if the API server reports that the watch has failed.
            NotAnEventError: if the line is not an event.
        """
        event = self._event_buffer.lighten(line, self.backlog.since)
        if event is None:
            return None
        read = self._event_buffer.only_one()
        if (
            read is None
            or read.deleted
            or read.identity.key in self.undecodable
            or not self._store.holds(read.identity.key, read.content)
        ):
            return event
        self._event_buffer.clear()
        self._versions.is_news(read.identity.key, read.identity.version)
        return event.bookmark()

    def take_event(self, document: Mapping[str, Any], *, deleted: bool) -> int:
        """Apply all waiting events up to one.

        Events that are older than the stored object are ignored. The document has the identity of the last one's
        object, from Kopf. The number of these events is returned.
        """
        events = self._event_buffer.call_for(identity_of(document), deleted=deleted)
        changes: list[tuple[ObjectKey, Any]] = []
        noted = False
        for identity, gone, content, _ in events:
            key = identity.key
            if not self._versions.is_news(key, identity.version, deleted=gone):
                continue
            if isinstance(content, DecodeError):
                self._store.apply(changes)  # What is stored of such an object is derived from its known parts.
                changes.clear()
                self._report(key, content)
                self._store.note_undecodable([(key, content)])
                noted = True
                continue
            if key in self.undecodable:
                noted |= self._store.note_undecodable([(key, None)])
            changes.append((key, content))
        if self._store.apply(changes) or noted:
            self._notify(self.kind.resource)
        return len(events)

    def forget(self) -> None:
        """Drop everything: the kind is no longer served."""
        if self._store.replace({}, {}).changed:
            self._notify(self.kind.resource)

    def _replace(self, version: str) -> None:
        listed, faults = self._collected, self._faults
        self.begin_list()
        for key, fault in faults.items():
            self._report(key, fault)
        changed, gone, noted = self._store.replace(listed, faults)
        self._versions.restart(version)
        self._event_buffer.clear()
        is_first = not self.health.has_synced(self.kind.resource)
        self.health.listed(self.kind.resource)
        if not is_first:
            self._metrics.count(RELISTS, kind=self.kind.resource)
        if changed or noted or is_first:
            self._notify(self.kind.resource)
        _log.info(
            "Listed", kind=self.kind.resource, objects=len(listed), changed=changed, gone=gone, again=not is_first
        )

    def _report(self, key: ObjectKey, fault: DecodeError) -> None:
        known = self.undecodable.get(key)
        if known is None or str(known) != str(fault):
            self._metrics.count(DECODE_ERRORS, kind=self.kind.resource)
            _log.error("An object can't be decoded; the last version of it that could be read counts", fault=str(fault))


class Informers(Stores):
    """The stores, with an informer for each watched kind.

    It belongs to one event loop: the stores only change between awaits of their readers.
    """

    def __init__(self, kinds: Iterable[Kind], *, health: WatchHealth, metrics: Metrics) -> None:
        super().__init__()
        self.health = health
        self.changes = ChangeSignal()
        self.all: tuple[Informer, ...] = tuple(
            Informer(kind, self.by_kind[kind], health=health, metrics=metrics, notify=self.changes.notify)
            for kind in kinds
        )

    def register_gauges(self, registry: CollectorRegistry) -> None:
        """Register the gauges of the watches, which are computed at each scrape."""
        registry.register(Gauges((LAST_EVENT, OBJECTS, WATCH_LAG, DECISION_LAG), self._samples))

    def _samples(self) -> Mapping[str, Samples]:
        now = time()
        return {
            LAST_EVENT.name: {(kind,): now - age for kind, age in self.health.ages_seconds().items()},
            OBJECTS.name: {(kind,): count for kind, count in self.object_counts().items()},
            WATCH_LAG.name: {(each.kind.resource,): each.lag_seconds() for each in self.all},
            DECISION_LAG.name: {(): self.changes.lag_seconds()},
        }

    def object_counts(self) -> dict[str, int]:
        """Return the number of stored objects of each watched kind."""
        return {informer.kind.resource: informer.count for informer in self.all}


class ChangeSignal:
    """What has changed since the last look: a level, not a queue.

    If a resource changes several times before the control loop waits, it is reported once. Changes during a reconcile
    are reported at the next wait.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed: set[str] = set()
        self._since: float | None = None
        self._being_decided_since: float | None = None
        self._wakeup = asyncio.Event()

    def notify(self, resource: str) -> None:
        """Report that objects of a resource (its plural name) have changed, and wake the waiting task."""
        if not self._changed:
            self._since = self._clock()
        self._changed.add(resource)
        self._wakeup.set()

    async def wait(self) -> frozenset[str]:
        """Wait until something has changed since the last call, and return the changed resources."""
        await self._wakeup.wait()
        return self.take()

    def take(self) -> frozenset[str]:
        """Return the resources that have changed since the last call, or none, without waiting."""
        self._wakeup.clear()
        changed = frozenset(self._changed)
        self._changed.clear()
        self._being_decided_since, self._since = _earliest(self._being_decided_since, self._since), None
        return changed

    def decided(self) -> None:
        """Record that everything taken so far has been processed."""
        self._being_decided_since = None

    def lag_seconds(self) -> float:
        """Return the age of the oldest unprocessed change. Any thread may call this."""
        since = _earliest(self._being_decided_since, self._since)
        return 0.0 if since is None else max(0.0, self._clock() - since)


def _earliest(*times: float | None) -> float | None:
    return min((each for each in times if each is not None), default=None)
