"""Reads the statuses that the last leader left, before a new leader does anything.

The watch may be behind at that moment, and no recorded data may be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from respread.api.decoding import decode_status
from respread.api.status import PolicyStatus
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.kube.listing import list_objects
from respread.kube.requests import Requests
from respread.stores.watched_kinds import POLICY_KINDS

_PAGE_OBJECTS: Final = 20
"""A status may be as large as the API server allows."""
_TIMEOUT_SECONDS: Final = 10.0


class FoundStatus(NamedTuple):
    """The status of the policy with this UID."""

    uid: str
    status: PolicyStatus


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


async def read_statuses(requests: Requests, kinds: Iterable[Kind] = POLICY_KINDS) -> dict[str, FoundStatus]:
    """Return the current statuses of all policies from the API server, by the policies' names.

    Raises:
        ListError: they could not be read.
    """
    found: dict[str, FoundStatus] = {}
    for kind in kinds:
        for policy in await list_objects(
            requests, kind, _decode, page_objects=_PAGE_OBJECTS, timeout_seconds=_TIMEOUT_SECONDS
        ):
            metadata = policy.get("metadata") or {}
            key = ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
            found[str(key)] = FoundStatus(metadata.get("uid") or "", decode_status(policy))
    return found
