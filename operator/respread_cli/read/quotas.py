"""ResourceQuotas, as `respread simulate` uses them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
from immutables import Map

from respread.api.nesting import decoded
from respread.cluster.decode.decoder import Kind
from respread.cluster.decode.metadata import WireIdentity, nano_amounts
from respread.cluster.errors import DecodeError, FieldError
from respread.cluster.meta import ObjectKey
from respread.stores.stores import DecodedPage, decode_each

QUOTAS: Final = Kind("resourcequotas", "", "v1", "ResourceQuota", namespaced=True)


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceQuota."""

    namespace: str
    name: str
    scoped: bool
    """Whether it counts only some pods of the namespace."""
    hard: Map[str, int]
    """What may be used, in billionths of a unit."""
    used: Map[str, int]


class QuotaKindStore:
    """The ResourceQuotas that a command has read."""

    __slots__ = ("quotas",)

    def __init__(self) -> None:
        self.quotas: dict[ObjectKey, Quota] = {}

    def decode_page(self, body: bytes) -> DecodedPage:
        """Decode a page of a LIST."""
        return decode_each(QUOTAS.resource, body, self.decode_object)

    def decode_object(self, document: bytes) -> tuple[ObjectKey, Quota]:
        """Decode one ResourceQuota."""
        try:
            wire = decoded(_read_quota, document)
            hard, used = (Map(nano_amounts(each, "status")) for each in (wire.status.hard, wire.status.used))
        except (msgspec.DecodeError, UnicodeDecodeError, FieldError) as error:
            raise DecodeError(QUOTAS.resource, "", "", "", str(error)) from error
        namespace, name = wire.metadata.namespace, wire.metadata.name
        scoped = bool(wire.spec.get("scopes") or wire.spec.get("scopeSelector"))
        return ObjectKey(namespace, name), Quota(namespace=namespace, name=name, scoped=scoped, hard=hard, used=used)

    def held(self) -> Collection[ObjectKey]:
        """Return the keys of all."""
        return tuple(self.quotas)

    def holds(self, key: ObjectKey, content: Quota) -> bool:
        """Return whether exactly this one is stored."""
        return self.quotas.get(key) == content

    def apply(self, changes: Iterable[tuple[ObjectKey, Quota | None]]) -> int:
        """Store quotas, and remove those with None."""
        listed = list(changes)
        for key, quota in listed:
            if quota is None:
                self.quotas.pop(key, None)
            else:
                self.quotas[key] = quota
        return len(listed)

    def note_undecodable(self, faults: Iterable[tuple[ObjectKey, DecodeError | None]]) -> bool:
        """Leave out what can't be decoded."""
        del faults
        return False


class _WireStatus(msgspec.Struct):
    hard: dict[str, Any] = {}
    used: dict[str, Any] = {}


class _WireQuota(msgspec.Struct):
    metadata: WireIdentity = msgspec.field(default_factory=WireIdentity)
    spec: dict[str, Any] = {}
    status: _WireStatus = msgspec.field(default_factory=_WireStatus)


_read_quota: Final = msgspec.json.Decoder(_WireQuota).decode
