"""Reads the statuses and records that the last leader left, before a new leader does anything.

The watch may be behind at that moment, and no recorded data may be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from respread.api.decoding import decode_status
from respread.api.record import Recorded, decode_record
from respread.api.status import PolicyStatus
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.kube.listing import list_objects
from respread.kube.requests import Requests
from respread.stores.watched_kinds import RECORDS

_PAGE_OBJECTS: Final = 20
"""A record may be almost as large as the API server allows."""
_TIMEOUT_SECONDS: Final = 10.0


class FoundStatus(NamedTuple):
    """The status of the policy with this UID, and its record."""

    uid: str
    status: PolicyStatus
    record: Recorded | None = None
    """None if there is none yet."""


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


async def read_statuses(requests: Requests, kinds: Iterable[Kind]) -> dict[str, FoundStatus]:
    """Return the current statuses of all policies from the API server, with their records, by the policies' names.

    Raises:
        ListError: they could not be read.
    """
    found: dict[str, FoundStatus] = {}
    for kind in kinds:
        records = {_key(each): each for each in await _objects(requests, RECORDS[kind])}
        for policy in await _objects(requests, kind):
            key, uid = _key(policy), (policy.get("metadata") or {}).get("uid") or ""
            stored = records.get(ObjectKey(key.namespace, uid))
            record = None if stored is None else decode_record(stored.get("record"))
            found[str(key)] = FoundStatus(uid, decode_status(policy), record)
    return found


async def _objects(requests: Requests, kind: Kind) -> list[dict[str, Any]]:
    return await list_objects(requests, kind, _decode, page_objects=_PAGE_OBJECTS, timeout_seconds=_TIMEOUT_SECONDS)


def _key(document: dict[str, Any]) -> ObjectKey:
    metadata = document.get("metadata") or {}
    return ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
