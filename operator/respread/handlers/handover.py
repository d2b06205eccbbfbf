"""Events of a watch, taken apart: the object is read here, and only its identity goes through Kopf.

Kopf would make thousands of small objects of each event's JSON, of which nothing is needed, and keep as many in its
queues as there are events: a third of the CPU that an event takes, and many times its memory. So the object is read
as it comes past, and waits until Kopf calls the handler with the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from respread.cluster.decode import Kind
from respread.cluster.errors import DecodeError
from respread.cluster.meta import ObjectKey

_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})
_DELETED: Final = "DELETED"
_ERROR: Final = "ERROR"


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


class _LightEvent(msgspec.Struct):
    type: str
    object: _Head


_read_event: Final = msgspec.json.Decoder(_Event).decode
_read_head: Final = msgspec.json.Decoder(_Head).decode


class Identity(NamedTuple):
    """Which version of which object an event is about."""

    key: ObjectKey
    uid: str
    version: str


class Handover:
    """Objects of one kind that were read off a watch and wait to be called for."""

    __slots__ = ("_clock", "_decode", "_kind", "_since", "_waiting")

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
        self._waiting: dict[tuple[str, str], Any] = {}
        self._since: dict[tuple[str, str], float] = {}
        """When each of those came, oldest first."""

    def lighten(self, line: bytes) -> bytes:
        """Keep the object of an event, and return the event with nothing but the object's identity; bookmarks stay.

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
        if event.type != _DELETED and event.type not in _CHANGES:
            return line
        if event.type != _DELETED:
            metadata = head.metadata
            try:
                _, kept = self._decode(bytes(event.object))
            except DecodeError as error:
                kept = error
            self._waiting[metadata.uid, metadata.resource_version] = kept
            self._since[metadata.uid, metadata.resource_version] = self._clock()
        # Objects of a watch say what they are; Kopf's log lines use it.
        head.api_version, head.kind = self._kind.api_version, self._kind.kind
        return msgspec.json.encode(_LightEvent(event.type, head))

    def call_for(self, identity: Identity) -> Any:
        """Return the object as it was read, or the DecodeError; None if it is no longer wanted.

        It is not if it was called for before, or if a newer list has made it void.
        """
        self._since.pop((identity.uid, identity.version), None)
        return self._waiting.pop((identity.uid, identity.version), None)

    def lag_seconds(self) -> float:
        """Return for how long the oldest one waits; readable from any thread."""
        try:
            since = next(iter(self._since.values()), None)
        except RuntimeError:  # one has come or gone this very moment, so they do come and go
            return 0.0
        return 0.0 if since is None else self._clock() - since

    def clear(self) -> None:
        """Drop what waits: a complete list has said all that it could say."""
        self._waiting.clear()
        self._since.clear()


def identity_of(document: Mapping[str, Any]) -> Identity:
    """Return the identity from what Kopf hands over."""
    metadata = document.get("metadata") or {}
    key = ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
    return Identity(key, metadata.get("uid") or "", metadata.get("resourceVersion") or "")
