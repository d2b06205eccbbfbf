"""What a new leader reads afresh before it does anything: the statuses that the one before it left.

The watch may be behind at that very moment, and what is remembered in a status must not be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from respread.api.decoding import decode_status
from respread.api.status import PolicyStatus
from respread.cluster.decode import Kind
from respread.cluster.meta import ObjectKey
from respread.eviction.answers import status_of
from respread.eviction.requests import NoResponseError, Requests
from respread.handlers.resources import POLICY_KINDS

_TIMEOUT_SECONDS: Final = 10.0
_PAGE: Final = "100"


class TakeoverError(Exception):
    """The statuses could not be read; nothing may be done until they are."""


class FoundStatus(NamedTuple):
    """The status of the policy that has this UID."""

    uid: str
    status: PolicyStatus


class _ListMetadata(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[dict[str, Any]] = []


async def read_statuses(requests: Requests, kinds: Iterable[Kind] = POLICY_KINDS) -> dict[str, FoundStatus]:
    """Return the statuses of all policies as the API server has them now, by the policies' names.

    Raises:
        TakeoverError: they could not be read.
    """
    found: dict[str, FoundStatus] = {}
    for kind in kinds:
        found.update(await _read(requests, kind))
    return found


async def _read(requests: Requests, kind: Kind) -> dict[str, FoundStatus]:
    found: dict[str, FoundStatus] = {}
    query = {"limit": _PAGE}
    while True:
        try:
            response = await requests.send("GET", kind.path, {}, query=query, timeout_seconds=_TIMEOUT_SECONDS)
            if not response.succeeded:
                words = status_of(response.body).message
                raise TakeoverError(f"{kind.resource} could not be listed: {response.status_code}, {words}")
            page = msgspec.json.decode(response.body, type=_List)
        except NoResponseError as error:
            raise TakeoverError(f"{kind.resource} could not be listed: {error.message}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TakeoverError(f"{kind.resource} could not be listed: the answer is no list: {error}") from error
        for each in page.items:
            metadata = each.get("metadata") or {}
            key = ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
            found[str(key)] = FoundStatus(metadata.get("uid") or "", decode_status(each))
        if not page.metadata.continue_:
            return found
        query["continue"] = page.metadata.continue_
