"""From what the API server says of one kind to what is kept of it.

LIST pages are collected until the last one and then replace what was kept, so that what vanished unseen is gone; events
of the watch change one object each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from immutables import Map

from respread.cluster.decode.decoder import Kind
from respread.cluster.errors import DecodeError
from respread.cluster.meta import ObjectKey
from respread.handlers.backlog import Backlog
from respread.handlers.event_buffer import Handover, LightEvent, identity_of
from respread.handlers.health import WatchHealth
from respread.handlers.versions import Versions
from respread.stores.stores import Sink
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)


class ListMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    """`metadata` of a LIST."""

    resource_version: str = ""
    continue_: str = ""


class _ListHead(msgspec.Struct):
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


class Feed:
    """The way of one kind's objects into the state; changes wake whoever waits for them.

    An object that can't be decoded never stops the others. It is logged once for as long as the fault stays the same,
    and the last version of it that could be read is kept: its labels and node are nearly always what they were, and a
    pod that is forgotten though it is there would make room where there is none. Until it can be read again, or is
    gone, it is among `undecodable`.
    """

    __slots__ = (
        "_collected",
        "_faults",
        "_handover",
        "_metrics",
        "_notify",
        "_sink",
        "_undecodable",
        "_versions",
        "backlog",
        "health",
        "kind",
    )

    def __init__(
        self, kind: Kind, sink: Sink, *, health: WatchHealth, metrics: Metrics, notify: Callable[[str], None]
    ) -> None:
        """Start empty.

        Args:
            kind: What is fed.
            sink: Where it goes.
            health: Told of everything that is heard.
            metrics: Lists after the first and objects that can't be decoded are counted there.
            notify: Called with the kind's plural name after every change, and after the first list in any case.
        """
        self.kind = kind
        self.health = health
        self.backlog = Backlog()
        self._sink = sink
        self._metrics = metrics
        self._notify = notify
        self._versions = Versions()
        self._handover = Handover(kind, sink.decode_object)
        self._undecodable: Map[ObjectKey, DecodeError] = Map()
        self._collected: dict[ObjectKey, Any] = {}
        self._faults: dict[ObjectKey, DecodeError] = {}

    @property
    def undecodable(self) -> Map[ObjectKey, DecodeError]:
        """The objects of which only an older version, or nothing, is known, and why."""
        return self._undecodable

    @property
    def count(self) -> int:
        """How many objects of the kind are kept."""
        return len(self._sink.held())

    def lag_seconds(self) -> float:
        """Return for how long the oldest event waits to be taken over, at most; readable from any thread."""
        return max(self._handover.lag_seconds(), self.backlog.lag_seconds())

    def begin_list(self) -> None:
        """Start collecting anew; pages of a list that was not finished are dropped."""
        self._collected, self._faults = {}, {}

    def take_page(self, body: bytes) -> dict[str, Any]:
        """Take over one page of a LIST; with the last one, the list replaces what was kept.

        Args:
            body: The page as JSON, asked for by the continue token of the page before.

        Returns:
            The page without its items.

        Raises:
            DecodeError: if it is not a list. The pages so far are kept; the list is best begun anew.
        """
        page = self._sink.decode_page(body)
        try:
            metadata = msgspec.json.decode(page.remainder, type=_ListHead).metadata
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise DecodeError(self.kind.resource, "", "", "metadata", str(fault)) from fault
        self.health.heard(self.kind.resource)
        self._collected.update(page.objects)
        for error in page.errors:
            self._faults[ObjectKey(error.namespace, error.name)] = error
        if not metadata.continue_:
            self._replace(metadata.resource_version)
        remainder: dict[str, Any] = msgspec.json.decode(page.remainder)
        return remainder

    def read_event(self, line: bytes) -> LightEvent | None:
        """Take the object out of a line of the watch; return the rest for Kopf, None if the line is about no object.

        It is applied when Kopf calls for it, or for an event that came later. One that changes nothing that is kept, as
        the heartbeats of nodes, is done with at once: for Kopf it is a bookmark, for which it calls nobody.

        Raises:
            ErrorEventError: if the API server says that the watch has failed.
            NotAnEventError: if the line is no event.
        """
        event = self._handover.lighten(line, self.backlog.since)
        if event is None:
            return None
        read = self._handover.only_one()
        if (
            read is None
            or read.deleted
            or isinstance(read.content, DecodeError)
            or read.identity.key in self._undecodable
            or not self._sink.holds(read.identity.key, read.content)
        ):
            return event
        self._handover.clear()
        self._versions.is_news(read.identity.key, read.identity.version)
        return event.bookmark()

    def take_event(self, document: Mapping[str, Any], *, deleted: bool) -> int:
        """Take over all objects as the events of the watch say they are now, up to one event.

        Events that are older than what is known of their object are ignored.

        Args:
            document: What Kopf has of the last one's object: its identity.
            deleted: Whether that was deleted.

        Returns:
            How many events these were.
        """
        events = self._handover.call_for(identity_of(document), deleted=deleted)
        changes: list[tuple[ObjectKey, Any]] = []
        noted = False
        for identity, gone, content, _ in events:
            key = identity.key
            if not self._versions.is_news(key, identity.version, deleted=gone):
                continue
            if isinstance(content, DecodeError):
                self._sink.apply(changes)  # what is kept of such an object follows from what is known of it
                changes.clear()
                self._report(key, content)
                self._undecodable = self._undecodable.set(key, content.with_traceback(None))
                self._sink.note_undecodable([(key, content)])
                noted = True
                continue
            if key in self._undecodable:
                self._undecodable = self._undecodable.delete(key)
                noted |= self._sink.note_undecodable([(key, None)])
            changes.append((key, content))
        if self._sink.apply(changes) or noted:
            self._notify(self.kind.resource)
        return len(events)

    def forget(self) -> None:
        """Drop everything that is kept: the kind itself is no longer served."""
        self._sink.note_undecodable((key, None) for key in self._undecodable)
        self._undecodable = Map()
        if self._sink.apply([(key, None) for key in self._sink.held()]):
            self._notify(self.kind.resource)

    def _replace(self, version: str) -> None:
        listed, faults = self._collected, self._faults
        self.begin_list()
        gone = [(key, None) for key in self._sink.held() if key not in listed and key not in faults]
        changed = self._sink.apply([*gone, *listed.items()])
        for key, fault in faults.items():
            self._report(key, fault)
        noted = self._sink.note_undecodable([*((key, None) for key in self._undecodable), *faults.items()])
        self._undecodable = Map(faults)
        self._versions.restart(version)
        self._handover.clear()
        is_first = not self.health.has_synced(self.kind.resource)
        self.health.listed(self.kind.resource)
        if not is_first:
            self._metrics.count_relist(self.kind.resource)
        if changed or noted or is_first:
            self._notify(self.kind.resource)
        _log.info(
            "Listed", kind=self.kind.resource, objects=len(listed), changed=changed, gone=len(gone), again=not is_first
        )

    def _report(self, key: ObjectKey, fault: DecodeError) -> None:
        known = self._undecodable.get(key)
        if known is None or str(known) != str(fault):
            self._metrics.count_decode_error(self.kind.resource)
            _log.error("An object can't be decoded; the last version of it that could be read counts", fault=str(fault))
