"""Writes policies' statuses and records: only changes, and each policy at most every few seconds.

The record of a policy is an object of its own, named after the policy's UID, and removed with the policy. Only the
leader writes them. What a record contains is determined when it is sent, and the requests for one policy are sent one
after another. So no request arrives late and overwrites what another has recorded. If a record can't be written, the
status is: users see there why no pod is evicted.

A new leader reads the records and statuses that the last one left before it does anything, because the watch may be
behind at that moment, and no recorded data may be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from math import inf
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from immutables import Map

from respread.api.decoding import decode_status
from respread.api.policy import API_VERSION, GROUP, PLURALS, VERSION, Policy, PolicyKind
from respread.api.record import (
    MAX_RECORD_LENGTH,
    NOTHING,
    RECORD_KINDS,
    RECORD_PLURALS,
    Recorded,
    decode_record,
    encode_record,
)
from respread.api.status import PolicyStatus, Summary, encode_status
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.cluster.stores import POLICY_KINDS, RECORDS
from respread.kube.listing import list_objects
from respread.kube.requests import TIMEOUT_SECONDS, Meaning, Method, NoResponseError, Requests, Response, status_of
from respread.planning.plan import in_turns
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

LEAST_INTERVAL_SECONDS: Final = 5.0
MOST_AT_ONCE: Final = 200
"""How many are written before the control loop continues: about a second's worth."""
GATHER_SECONDS: Final = 0.03
"""How long an urgent status waits for more data to record, because moves rarely come alone."""
GATHER_SHARE: Final = 1.0
"""Where records are long, it waits so many times as long as the last one of the policy took: the API server may take as
long over a record with tens of moves as over several evictions."""
MOST_GATHER_SECONDS: Final = 0.2
_AT_ONCE: Final = 8


class Wanted(NamedTuple):
    """The status and the record that a policy should have."""

    policy: Policy
    status: PolicyStatus
    record: Recorded
    seen: PolicyStatus
    """The status last seen in the API."""


class StatusWriter:
    """Writes the statuses and records that differ from what they should be."""

    def __init__(
        self,
        requests: Requests,
        exclusive: ExclusiveRequests,
        clock: Callable[[], float],
        *,
        kinds: Iterable[Kind] = POLICY_KINDS,
        completed: Callable[[Policy, Recorded], Recorded],
    ) -> None:
        """Read by requests, and write by exclusive ones.

        `completed` returns a policy's record with what it must contain when it is sent.
        """
        self._requests = requests
        self._clock = clock
        self._kinds = tuple(kinds)
        self._exclusive = exclusive
        self._records = RecordWriter(exclusive)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._written: dict[str, PolicyStatus] = {}
        self._written_at: dict[str, float] = {}
        self._completed = completed
        self._hurried: set[str] = set()
        self._ensuring: dict[str, asyncio.Task[bool]] = {}
        """By the policies' UIDs."""
        self._along: dict[str, Wanted] = {}
        """What is due and goes along with a request that is about to be sent, by the same."""
        self._took: dict[str, float] = {}
        """How long the API server took over the last record or status, in seconds, by the same."""
        self._unconfirmed: set[str] = set()
        """The policies whose status must be written although it has not changed, because a write was not confirmed, by
        the same."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self) -> dict[str, FoundStatus]:
        """Return the current statuses of all policies from the API server, with their records, by name.

        Raises:
            ListError: they could not be read.
        """
        return await read_statuses(self._requests, self._kinds)

    def begin(self, found: Collection[FoundStatus]) -> None:
        """Start to lead with what was just read: what was written before may have been overwritten since."""
        self._records.begin(found)
        self._written = {each.uid: each.status for each in found}
        self._unconfirmed = set()

    @property
    def records(self) -> Collection[Recorded]:
        """The policies' records as last read or certainly written."""
        return self._records.all_known

    def known(self, policy: Policy, seen: PolicyStatus) -> PolicyStatus:
        """Return the status last written, or read when this replica began to lead, else the one seen in the API."""
        return self._written.get(policy.uid, seen)

    def all_known(self, policies: Map[str, Policy], seen: Mapping[str, PolicyStatus]) -> dict[str, PolicyStatus]:
        """Return the `known` status of each policy, by name; `seen` are the statuses last seen in the API."""
        return {name: self.known(policy, seen.get(name, PolicyStatus())) for name, policy in policies.items()}

    async def write(self, wanted: Iterable[Wanted], now: float) -> float:
        """Write statuses that differ and are due. Return when the next one is due, on the clock; infinity if none is.

        Of thousands, only some are written at once, so that other work need not wait; the others are due at once.
        Namespaces take turns, and in each the status written longest ago is first. `now` is when `any_due` was asked:
        what is due since then does not contain what is only then computed.
        """
        statuses = tuple(wanted)
        uids = {each.policy.uid for each in statuses}
        self._written = {uid: status for uid, status in self._written.items() if uid in uids}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in uids}
        self._took = {uid: seconds for uid, seconds in self._took.items() if uid in uids}
        self._unconfirmed &= uids
        self._records.keep(uids)
        different = [each for each in statuses if self._differs(each)]
        due = sorted(
            (each for each in different if self._due_at(each.policy) <= now), key=lambda each: self._due_at(each.policy)
        )
        due = in_turns(due, lambda each: each.policy.namespace)[:MOST_AT_ONCE]
        self._written_at.update((each.policy.uid, now) for each in due)
        self._hurried &= {each.policy.name for each in different} - {each.policy.name for each in due}
        await asyncio.gather(*(self._write_in_turn(each) for each in due))
        left = (each for each in different if self._differs(each))
        return min((self._due_at(each.policy) for each in left), default=inf)

    async def write_all(self, wanted: Iterable[Wanted]) -> None:
        """Write all statuses that differ, due or not, before this replica ends."""
        if self._ensuring:  # they wait for more to come
            await asyncio.wait(self._ensuring.values())
        await asyncio.gather(*map(self._write_in_turn, wanted))

    @property
    def uncertain(self) -> bool:
        """Whether a status or record was sent that may still be on its way."""
        return self._exclusive.uncertain

    def trouble(self, policy: Policy) -> str:
        """Return why the record of a policy could not be written last; empty if it was, or was never tried."""
        return self._records.trouble(policy)

    async def ensure(self, policies: Iterable[tuple[Policy, PolicyStatus]]) -> set[str]:
        """Write what policies' records must contain, without waiting until it is due, because a move depends on it.

        One request serves all callers that ask for a policy before it is sent. Each has the status last seen in the
        API. Returned are the names of the policies whose record is certainly written.
        """
        asked = tuple(policies)
        written = await asyncio.gather(*(self._ensured(policy, seen) for policy, seen in asked))
        return {policy.name for (policy, _), done in zip(asked, written, strict=True) if done}

    def hurry(self, policies: Iterable[str]) -> None:
        """Write the statuses of some policies, by name, the next time even if they are not due."""
        self._hurried.update(policies)

    def any_due(self, policies: Iterable[Policy], now: float) -> bool:
        """Return whether the status of any of these policies is written at a time on the clock if it differs."""
        return any(self._due_at(policy) <= now for policy in policies)

    def _differs(self, wanted: Wanted) -> bool:
        return not (
            self._is_told(wanted.policy, wanted.status, wanted.seen)
            and self._records.is_stored(wanted.policy, wanted.record)
        )

    def _is_told(self, policy: Policy, status: PolicyStatus, seen: PolicyStatus) -> bool:
        return status == self.known(policy, seen) and policy.uid not in self._unconfirmed

    def _due_at(self, policy: Policy) -> float:
        if policy.name in self._hurried:
            return -inf
        return self._written_at.get(policy.uid, -inf) + LEAST_INTERVAL_SECONDS

    def _ensured(self, policy: Policy, seen: PolicyStatus) -> Awaitable[bool]:
        """Write a record, and return whether it was written. This continues if the caller stops waiting."""
        if (task := self._ensuring.get(policy.uid)) is None:
            task = self._ensuring[policy.uid] = asyncio.create_task(self._ensure(policy, seen))
        return asyncio.shield(task)

    async def _ensure(self, policy: Policy, seen: PolicyStatus) -> bool:
        gather = GATHER_SHARE * self._took.get(policy.uid, 0.0)
        await asyncio.sleep(min(max(gather, GATHER_SECONDS), MOST_GATHER_SECONDS))
        async with self._lock(policy.uid):
            del self._ensuring[policy.uid]  # Later callers use the next request.
            if (wanted := self._along.pop(policy.uid, None)) is None:
                wanted = Wanted(policy, self.known(policy, seen), self._records.known(policy), seen)
            return await self._write(wanted, leads=True)

    async def _write_in_turn(self, wanted: Wanted) -> bool:
        if wanted.policy.uid in self._ensuring:  # the control loop need not wait for that, nor is another one needed
            self._along[wanted.policy.uid] = wanted
            return True
        async with self._lock(wanted.policy.uid):
            return await self._write(wanted)

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _write(self, wanted: Wanted, *, leads: bool = False) -> bool:
        """Write a record and a status as far as they differ, and return whether the API certainly has them.

        If this replica `leads`, the status must not stay empty: who starts without a Lease must see that somebody leads
        already.
        """
        policy, status = wanted.policy, wanted.status
        record = self._completed(policy, wanted.record)
        if leads and status == PolicyStatus():
            status = PolicyStatus(summary=Summary(in_flight=len(record.moves_in_flight)))
        if self._is_told(policy, status, wanted.seen) and self._records.is_stored(policy, record):
            self._written[policy.uid] = status
            return True
        async with self._at_once:
            sent_at = self._clock()
            recorded = await self._records.write(policy, record)
            if not recorded and self.uncertain:  # The API server does not answer.
                return False
            told = self._is_told(policy, status, wanted.seen) or await self._write_status(policy, status)
            if told:
                self._written[policy.uid] = status
                self._took[policy.uid] = self._clock() - sent_at
            return recorded and told

    async def _write_status(self, policy: Policy, status: PolicyStatus) -> bool:
        path, names = _collection(policy, PLURALS)
        path, names = f"{path}/{{name}}/status", {**names, "name": policy.object_name}
        self._unconfirmed.add(policy.uid)
        try:
            response = await self._exclusive.send(
                "PATCH", path, names, {"metadata": {"uid": policy.uid}, "status": encode_status(status)}
            )
        except NoResponseError as error:
            _log.warning("Status not written", policy=policy.name, error=error.message)
            return False
        if not response.succeeded and response.sent and response.meaning is not Meaning.ABSENT:
            message = status_of(response.body).message
            _log.warning("Status not written", policy=policy.name, status_code=response.status_code, error=message)
        if response.succeeded:
            self._unconfirmed.discard(policy.uid)
        return response.succeeded


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
            key, uid = _key(policy), policy["metadata"].get("uid", "")
            stored = records.get(ObjectKey(key.namespace, uid))
            record = None if stored is None else decode_record(stored.get("record"))
            found[str(key)] = FoundStatus(uid, decode_status(policy), record)
    return found


async def _objects(requests: Requests, kind: Kind) -> list[dict[str, Any]]:
    return await list_objects(requests, kind, _decode, page_objects=_PAGE_OBJECTS)


def _key(document: dict[str, Any]) -> ObjectKey:
    metadata = document["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


class ExclusiveRequests:
    """Sends requests while no other replica can lead, and knows whether one of them may still arrive."""

    def __init__(self, requests: Requests, clock: Callable[[], float], exclusive_seconds: Callable[[], float]) -> None:
        """Create it. `exclusive_seconds` returns for how long no other replica can lead."""
        self._requests = requests
        self._clock = clock
        self._exclusive_seconds = exclusive_seconds
        self._unanswered_at = -inf

    @property
    def uncertain(self) -> bool:
        """Whether a request may still be on its way: it was sent a short time ago, and was not answered."""
        return self._clock() - self._unanswered_at < ARRIVAL_SECONDS

    async def send(self, method: Method, path: str, names: Mapping[str, str], body: Mapping[str, Any]) -> Response:
        """Send a request once, and return the answer.

        Raises:
            NoResponseError: no answer, or not all of it, arrived, or this replica does not lead any more.
        """
        timeout_seconds = min(TIMEOUT_SECONDS, self._exclusive_seconds())
        request = await self._requests.prepare(method, path, names, body=body, timeout_seconds=timeout_seconds)
        if self._exclusive_seconds() <= 0:  # The next leader may have written its own.
            raise NoResponseError("this replica does not lead any more", sent=False)
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
            if exists and response.meaning is Meaning.ABSENT:  # somebody removed it
                self._uncertain.add(policy.uid)
                response = await self._send(policy, text, exists=False)
            elif not exists and response.meaning is Meaning.CONFLICT:
                # An attempt of ours that nobody answered has made it.
                response = await self._send(policy, text, exists=True)
        except NoResponseError as error:
            if error.sent:
                self._uncertain.add(policy.uid)
            return self._failed(policy, error.message)
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

    async def _send(self, policy: Policy, text: str, *, exists: bool) -> Response:
        path, names = _collection(policy, RECORD_PLURALS)
        if exists:
            return await self._requests.send(
                "PATCH", f"{path}/{{name}}", {**names, "name": policy.uid}, {"record": text}
            )
        new = {
            "apiVersion": API_VERSION,
            "kind": RECORD_KINDS[policy.kind],
            "metadata": {"name": policy.uid, **names, "ownerReferences": [policy.owner_reference]},
            "policy": policy.object_name,
            "record": text,
        }
        return await self._requests.send("POST", path, names, new)


def _collection(policy: Policy, plurals: Mapping[PolicyKind, str]) -> tuple[str, dict[str, str]]:
    """Return the path of the objects beside a policy, as a template, and the names in it."""
    names = {"namespace": policy.namespace} if policy.namespace else {}
    return f"/apis/{GROUP}/{VERSION}{'/namespaces/{namespace}' if names else ''}/{plurals[policy.kind]}", names
