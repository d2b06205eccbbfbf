"""The record of a policy: an object of its own, named after the policy's UID, and removed with the policy.

A new leader reads the records and statuses that the last one left before it does anything, because the watch may be
behind at that moment, and no recorded data may be missed. Only the leader writes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Any, Final, Literal, NamedTuple

import msgspec

from respread.api.decoding import decode_status
from respread.api.policy import API_VERSION, GROUP, VERSION, Policy
from respread.api.record import (
    MAX_RECORD_LENGTH,
    NOTHING,
    RECORD_KINDS,
    RECORD_PLURALS,
    Recorded,
    decode_record,
    encode_record,
)
from respread.api.status import PolicyStatus
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.kube.api_status import Meaning
from respread.kube.listing import list_objects
from respread.kube.requests import TIMEOUT_SECONDS, Method, NoResponseError, Requests, Response
from respread.stores.watched_kinds import RECORDS
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

ARRIVAL_SECONDS: Final = 15.0
"""For how long a request that nobody answered may still arrive. It would overwrite what the next leader has written, so
that the Lease is not released meanwhile."""
_PAGE_OBJECTS: Final = 20
"""A record may be almost as large as the API server allows."""
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class FoundStatus(NamedTuple):
    """The status of the policy with this UID, and its record."""

    uid: str
    status: PolicyStatus
    record: Recorded | None = None
    """None if there is none yet."""


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
    return await list_objects(requests, kind, _decode, page_objects=_PAGE_OBJECTS)


def _key(document: dict[str, Any]) -> ObjectKey:
    metadata = document.get("metadata") or {}
    return ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")


class ExclusiveRequests:
    """Sends requests while no other replica can lead, and knows whether one of them may still arrive."""

    __slots__ = ("_clock", "_exclusive_seconds", "_requests", "_unanswered_at")

    def __init__(self, requests: Requests, clock: Callable[[], float], exclusive_seconds: Callable[[], float]) -> None:
        """Send through the API server.

        Args:
            requests: sends requests.
            clock: a monotonic clock in seconds.
            exclusive_seconds: for how long no other replica can lead.
        """
        self._requests = requests
        self._clock = clock
        self._exclusive_seconds = exclusive_seconds
        self._unanswered_at = -inf

    @property
    def uncertain(self) -> bool:
        """Whether a request may still be on its way: it was sent a short time ago, and was not answered."""
        return self._clock() - self._unanswered_at < ARRIVAL_SECONDS

    async def send(
        self, method: Method, path: str, names: Mapping[str, str], body: Mapping[str, Any]
    ) -> Response | None:
        """Send a request once, and return the answer; None if this replica does not lead any more: nothing was sent.

        Raises:
            NoResponseError: no answer, or not all of it, arrived.
        """
        timeout_seconds = min(TIMEOUT_SECONDS, self._exclusive_seconds())
        request = await self._requests.prepare(method, path, names, body=body, timeout_seconds=timeout_seconds)
        if self._exclusive_seconds() <= 0:  # The next leader may have written its own.
            return None
        try:
            return await request.send()
        except NoResponseError as error:
            if error.sent:
                self._unanswered_at = self._clock()
            raise
        except asyncio.CancelledError:
            self._unanswered_at = self._clock()
            raise


class RecordWriter:
    """Writes records that differ from what is stored. Requests for one policy must be made one after another."""

    __slots__ = ("_known", "_requests", "_troubles", "_uncertain")

    def __init__(self, requests: ExclusiveRequests) -> None:
        self._requests = requests
        self._known: dict[str, Recorded] = {}
        """What the objects certainly contained last, by the policies' UIDs. Others don't exist."""
        self._uncertain: set[str] = set()
        """Those that may contain something else, because a request was not confirmed, or be gone, by the same."""
        self._troubles: dict[str, str] = {}
        """Why the last write failed, by the same."""

    def begin(self, policies: Iterable[FoundStatus]) -> None:
        """Start to lead, with the records just read."""
        self._known = {found.uid: found.record for found in policies if found.record is not None}
        self._uncertain = set()
        self._troubles = {}

    def keep(self, uids: set[str]) -> None:
        """Forget the records of other policies than these."""
        self._known = {uid: record for uid, record in self._known.items() if uid in uids}
        self._uncertain &= uids
        self._troubles = {uid: trouble for uid, trouble in self._troubles.items() if uid in uids}

    def known(self, policy: Policy) -> Recorded:
        """Return the record last read or certainly written; an empty one if there is none."""
        return self._known.get(policy.uid, NOTHING)

    @property
    def all_known(self) -> Collection[Recorded]:
        """All records last read or certainly written."""
        return self._known.values()

    def trouble(self, policy: Policy) -> str:
        """Return why the record of a policy could not be written last; empty if it was, or was never tried."""
        return self._troubles.get(policy.uid, "")

    def is_stored(self, policy: Policy, record: Recorded) -> bool:
        """Return whether the API certainly has exactly this record of a policy; an empty one need not exist."""
        return policy.uid not in self._uncertain and self.known(policy) == record

    async def write(self, policy: Policy, record: Recorded) -> bool:
        """Write a record if it differs, and return whether the API certainly has it now."""
        if self.is_stored(policy, record):
            return True
        text = encode_record(record)
        if len(text) > MAX_RECORD_LENGTH:
            return self._failed(policy, f"it has {len(text)} characters, more than {MAX_RECORD_LENGTH}")
        exists = policy.uid in self._known
        try:
            response = await self._send(policy, text, exists=exists)
            if response is not None and exists and response.meaning is Meaning.ABSENT:  # somebody removed it
                self._uncertain.add(policy.uid)
                response = await self._send(policy, text, exists=False)
            elif response is not None and not exists and response.meaning is Meaning.CONFLICT:
                # An attempt of ours that nobody answered has made it.
                response = await self._send(policy, text, exists=True)
        except NoResponseError as error:
            if error.sent:
                self._uncertain.add(policy.uid)
            return self._failed(policy, error.message)
        if response is None:
            return self._failed(policy, "this replica does not lead any more")
        if not response.succeeded:
            if response.meaning is Meaning.UNCERTAIN:
                self._uncertain.add(policy.uid)
            return self._failed(policy, f"the API server refused it: {response.refusal}", logged=response.sent)
        self._known[policy.uid] = record
        self._uncertain.discard(policy.uid)
        self._troubles.pop(policy.uid, None)
        return True

    def _failed(self, policy: Policy, trouble: str, *, logged: bool = True) -> Literal[False]:
        self._troubles[policy.uid] = trouble
        if logged:
            _log.warning("Record not written", policy=policy.name, error=trouble)
        return False

    async def _send(self, policy: Policy, text: str, *, exists: bool) -> Response | None:
        """Return the answer; None if this replica may not lead any more."""
        in_namespace = "/namespaces/{namespace}" if policy.namespace else ""
        names = {"namespace": policy.namespace} if policy.namespace else {}
        path = f"/apis/{GROUP}/{VERSION}{in_namespace}/{RECORD_PLURALS[policy.kind]}"
        if exists:
            return await self._requests.send(
                "PATCH", f"{path}/{{name}}", {**names, "name": policy.uid}, {"record": text}
            )
        return await self._requests.send("POST", path, names, _new(policy, text))


def _new(policy: Policy, text: str) -> dict[str, Any]:
    namespace = {"namespace": policy.namespace} if policy.namespace else {}
    return {
        "apiVersion": API_VERSION,
        "kind": RECORD_KINDS[policy.kind],
        "metadata": {"name": policy.uid, **namespace, "ownerReferences": [policy.owner_reference]},
        "policy": policy.object_name,
        "record": text,
    }
