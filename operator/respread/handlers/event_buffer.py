"""Events of a watch, taken apart: the object is read here, and only the identity of some goes through Kopf.

Kopf would make thousands of small objects of each event's JSON, of which nothing is needed, and keep as many in its
queues as there are events; and for every object that changes it runs a worker. So objects are read as they come past,
and wait until Kopf calls the handler. Of events that come together Kopf gets the last one, and with it all that came
before are handed over, in their order: however Kopf's workers take turns, nothing is lost and nothing overtakes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from respread.cluster.decode.decoder import Kind
from respread.cluster.errors import DecodeError
from respread.cluster.meta import ObjectKey

_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})
_DELETED: Final = "DELETED"
_ERROR: Final = "ERROR"
_BOOKMARK: Final = "BOOKMARK"


class NotAnEventError(ValueError):
    """A line of a watch that is no event."""


class ErrorEventError(ValueError):
    """A line by which the API server says that the watch has failed."""


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    api_version: str = ""
    kind: str = ""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class LightEvent(msgspec.Struct):
    """An event with nothing but its object's identity."""

    type: str
    object: _Head

    @property
    def is_bookmark(self) -> bool:
        """Whether it says nothing but how far the watch has come."""
        return self.type == _BOOKMARK

    def bookmark(self) -> LightEvent:
        """Return what only says that the watch has come this far."""
        version = _Metadata(resource_version=self.object.metadata.resource_version)
        return LightEvent(_BOOKMARK, _Head(version, self.object.api_version, self.object.kind))

    def encode(self) -> bytes:
        """Return the line of the watch."""
        return msgspec.json.encode(self)


_read_event: Final = msgspec.json.Decoder(_Event).decode
_read_head: Final = msgspec.json.Decoder(_Head).decode


class EventIdentity(NamedTuple):
    """Which version of which object an event is about."""

    key: ObjectKey
    uid: str
    version: str


class Read(NamedTuple):
    """An event as it was read."""

    identity: EventIdentity
    deleted: bool
    content: Any
    """The object, or the DecodeError; None if it was deleted."""
    since: float
    """When it came at the earliest, on the clock."""


class Handover:
    """Events of one kind that were read off a watch and wait to be called for."""

    __slots__ = ("_clock", "_decode", "_kind", "_waiting")

    def __init__(
        self,
        kind: Kind,
        decode: Callable[[bytes], tuple[ObjectKey, Any]],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start with none.

        Args:
            kind: What is watched.
            decode: Reads an object, or raises a DecodeError.
            clock: Seconds that never go back.
        """
        self._kind = kind
        self._decode = decode
        self._clock = clock
        self._waiting: OrderedDict[tuple[EventIdentity, bool], Read] = OrderedDict()
        """By identity and whether it was deleted, the oldest first."""

    def lighten(self, line: bytes, since: float | None = None) -> LightEvent | None:
        """Keep an event, and return it with nothing but the object's identity; None if it is about no object.

        Args:
            line: Of the watch.
            since: When it came at the earliest, on the clock; None: just now.

        Raises:
            ErrorEventError: if the API server says that the watch has failed.
            NotAnEventError: if the line is no event.
        """
        try:
            event = _read_event(line)
            if event.type == _ERROR:
                raise ErrorEventError
            head = _read_head(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotAnEventError(f"it is no event of {self._kind.resource}: {error}") from error
        deleted = event.type == _DELETED
        if not deleted and event.type not in _CHANGES:
            return None
        metadata = head.metadata
        identity = EventIdentity(ObjectKey(metadata.namespace, metadata.name), metadata.uid, metadata.resource_version)
        content: Any = None
        if not deleted:
            try:
                _, content = self._decode(bytes(event.object))
            except DecodeError as error:
                content = error
        self._waiting[identity, deleted] = Read(identity, deleted, content, self._clock() if since is None else since)
        # Objects of a watch say what they are; Kopf's log lines use it.
        head.api_version, head.kind = self._kind.api_version, self._kind.kind
        return LightEvent(event.type, head)

    def call_for(self, identity: EventIdentity, *, deleted: bool) -> list[Read]:
        """Return the events up to one, in the order in which they came; none if that one is no longer wanted.

        It is not if it was handed over before, or if a newer list has made it void.
        """
        if (identity, deleted) not in self._waiting:
            return []
        found: list[Read] = []
        while not found or (found[-1].identity, found[-1].deleted) != (identity, deleted):
            found.append(self._waiting.popitem(last=False)[1])
        return found

    def only_one(self) -> Read | None:
        """Return the event that waits if it is the only one."""
        return next(iter(self._waiting.values())) if len(self._waiting) == 1 else None

    def lag_seconds(self) -> float:
        """Return for how long the oldest one waits, at most; readable from any thread."""
        try:
            oldest = next(iter(self._waiting.values()), None)
        except RuntimeError:  # one has come or gone this very moment, so they do come and go
            return 0.0
        return 0.0 if oldest is None else self._clock() - oldest.since

    def clear(self) -> None:
        """Drop what waits: a complete list has said all that it could say."""
        self._waiting.clear()


def identity_of(document: Mapping[str, Any]) -> EventIdentity:
    """Return the identity from what Kopf hands over."""
    metadata = document.get("metadata") or {}
    key = ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
    return EventIdentity(key, metadata.get("uid") or "", metadata.get("resourceVersion") or "")
