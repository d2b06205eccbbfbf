"""Reads the statuses and records that the last leader left, before a new leader does anything.

The watch may be behind at that moment, and no recorded data may be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from respread.api.decoding import decode_status
from respread.api.policy import API_VERSION
from respread.api.record import NOTHING, decode_record, record_of, with_former, with_record
from respread.api.recorded import Recorded
from respread.api.status import PolicyStatus
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.kube.listing import ListError, list_objects
from respread.kube.requests import NoResponseError, Requests
from respread.stores.watched_kinds import RECORDS

_PAGE_OBJECTS: Final = 20
"""A record may be almost as large as the API server allows."""
_TIMEOUT_SECONDS: Final = 10.0


class FoundStatus(NamedTuple):
    """The status of the policy with this UID, and its record."""

    uid: str
    status: PolicyStatus
    """With the contents of the record, and what an earlier version left in the status."""
    record: Recorded | None = None
    """None if there is none yet."""
    in_status: Recorded = NOTHING
    """What the status itself contains of what belongs into a record."""
    kind: str = "ClusterRebalancePolicy"
    """Of the policy."""


class FoundStatuses(NamedTuple):
    """What the last leader left."""

    policies: dict[str, FoundStatus]
    """By the policies' names."""
    without_records: frozenset[str] = frozenset()
    """The kinds of policies for whose records there is no CustomResourceDefinition."""


class _Resource(msgspec.Struct):
    name: str = ""


class _Served(msgspec.Struct):
    resources: tuple[_Resource, ...]


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


async def read_statuses(requests: Requests, kinds: Iterable[Kind]) -> FoundStatuses:
    """Return the current statuses of all policies from the API server, with their records.

    Raises:
        ListError: they could not be read.
    """
    found: dict[str, FoundStatus] = {}
    without_records = set[str]()
    for kind in kinds:
        try:
            listed = await _objects(requests, RECORDS[kind])
        except ListError:
            # Who may not list records is refused even where there is no definition of them, and so no record.
            served = await served_resources(requests)
            if kind.resource not in served or RECORDS[kind].resource in served:
                raise
            without_records.add(kind.kind)
            listed = []
        records = {_key(each): each for each in listed}
        for policy in await _objects(requests, kind):
            key, uid = _key(policy), (policy.get("metadata") or {}).get("uid") or ""
            record = records.get(ObjectKey(key.namespace, uid))
            found[str(key)] = _found(kind, uid, decode_status(policy), record)
    return FoundStatuses(found, frozenset(without_records))


async def served_resources(requests: Requests) -> frozenset[str]:
    """Return the resources of our group that the API server serves; none if it does not say."""
    try:
        response = await requests.send("GET", f"/apis/{API_VERSION}", {}, timeout_seconds=_TIMEOUT_SECONDS)
        return frozenset(each.name for each in msgspec.json.decode(response.body, type=_Served).resources)
    except (NoResponseError, msgspec.DecodeError, UnicodeDecodeError):
        return frozenset()


async def _objects(requests: Requests, kind: Kind) -> list[dict[str, Any]]:
    return await list_objects(requests, kind, _decode, page_objects=_PAGE_OBJECTS, timeout_seconds=_TIMEOUT_SECONDS)


def _key(document: dict[str, Any]) -> ObjectKey:
    metadata = document.get("metadata") or {}
    return ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")


def _found(kind: Kind, uid: str, status: PolicyStatus, stored: dict[str, Any] | None) -> FoundStatus:
    in_status = record_of(status)
    record = None if stored is None else decode_record(stored.get("record"))
    known = in_status if record is None else with_former(record, in_status)
    return FoundStatus(uid, with_record(status, known), record, in_status, kind.kind)
