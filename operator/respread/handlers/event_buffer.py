"""Holds the objects of watch events until Kopf calls the handler. Kopf only sees the identities of some objects.

Kopf would create thousands of small objects from each event's JSON, of which nothing is needed, and keep as many in its
queues as there are events. It also runs a worker for every object that changes. So the objects are decoded before, and
wait until Kopf calls the handler. If several events arrive together, Kopf gets the last one, and the handler takes all
earlier ones too, in their order. So no event is lost or overtakes another, in whatever order Kopf's workers run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from respread.api.json_documents import decoded
from respread.cluster.decode.decoder import Kind
from respread.cluster.decode.metadata import WireIdentity
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import DecodeError

_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})
_DELETED: Final = "DELETED"
_ERROR: Final = "ERROR"
_BOOKMARK: Final = "BOOKMARK"


class NotAnEventError(ValueError):
    """A line of a watch that is not an event."""


class ErrorEventError(ValueError):
    """A line with which the API server reports that the watch has failed."""


class _Head(msgspec.Struct, rename="camel"):
    metadata: WireIdentity
    api_version: str = ""
    kind: str = ""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class LightEvent(msgspec.Struct):
    """An event with only its object's identity."""

    type: str
    object: _Head

    @property
    def is_bookmark(self) -> bool:
        """Whether it only reports the progress of the watch."""
        return self.type == _BOOKMARK

    def bookmark(self) -> LightEvent:
        """Return a bookmark with the progress of this event."""
        version = WireIdentity(resource_version=self.object.metadata.resource_version)
        return LightEvent(_BOOKMARK, _Head(version, self.object.api_version, self.object.kind))

    def encode(self) -> bytes:
        """Return it as a line of the watch."""
        return msgspec.json.encode(self)


_read_event: Final = msgspec.json.Decoder(_Event).decode
_read_head: Final = msgspec.json.Decoder(_Head).decode


class EventIdentity(NamedTuple):
    """The object and version of an event."""

    key: ObjectKey
    uid: str
    version: str


class Read(NamedTuple):
    """A decoded event."""

    identity: EventIdentity
    deleted: bool
    content: Any
    """The object, or the DecodeError; None if it was deleted."""
    since: float
    """The earliest time at which it can have arrived, on the clock."""


class EventBuffer:
    """Decoded events of one kind that wait for the handler."""

    def __init__(
        self, kind: Kind, decode: Callable[[bytes], tuple[ObjectKey, Any]], *, clock: Callable[[], float] = monotonic
    ) -> None:
        """Start without events. `decode` may raise a DecodeError."""
        self._kind = kind
        self._decode = decode
        self._clock = clock
        self._waiting: OrderedDict[tuple[EventIdentity, bool], Read] = OrderedDict()
        """By identity and whether it was deleted, the oldest first."""

    def lighten(self, line: bytes, since: float | None = None) -> LightEvent | None:
        """Keep an event, and return it with only the object's identity; None if it has no object.

        `since` is the earliest time at which it can have arrived, on the clock; None: just now.

        Raises:
            ErrorEventError: if the API server reports that the watch has failed.
            NotAnEventError: if the line is not an event.
        """
        try:
            event = decoded(_read_event, line)
            if event.type == _ERROR:
                raise ErrorEventError
            head = decoded(_read_head, event.object)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotAnEventError(f"it is not an event of {self._kind.resource}: {error}") from error
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
        # Objects of a watch contain their kind. Kopf's log lines use it.
        head.api_version, head.kind = self._kind.api_version, self._kind.kind
        return LightEvent(event.type, head)

    def call_for(self, identity: EventIdentity, *, deleted: bool) -> list[Read]:
        """Return the events up to one, in their order of arrival; none if that one is no longer needed.

        It is not needed if it was already taken, or if a newer list has replaced it.
        """
        if (identity, deleted) not in self._waiting:
            return []
        found: list[Read] = []
        while not found or (found[-1].identity, found[-1].deleted) != (identity, deleted):
            found.append(self._waiting.popitem(last=False)[1])
        return found

    def only_one(self) -> Read | None:
        """Return the waiting event if it is the only one."""
        return next(iter(self._waiting.values())) if len(self._waiting) == 1 else None

    def lag_seconds(self) -> float:
        """Return how long the oldest one has been waiting at most. Any thread may call this."""
        try:
            oldest = next(iter(self._waiting.values()), None)
        except RuntimeError:  # One has come or gone just now, so events are being processed.
            return 0.0
        return 0.0 if oldest is None else self._clock() - oldest.since

    def clear(self) -> None:
        """Drop all waiting events: a complete list has replaced them."""
        self._waiting.clear()


def identity_of(document: Mapping[str, Any]) -> EventIdentity:
    """Return the identity from what Kopf passes to the handler."""
    metadata = document.get("metadata") or {}
    key = ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
    return EventIdentity(key, metadata.get("uid") or "", metadata.get("resourceVersion") or "")
