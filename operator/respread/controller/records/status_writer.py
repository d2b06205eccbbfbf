"""Writes policies' statuses and records: only changes, and each policy at most every few seconds.

Here, a status also contains what belongs into the policy's record, which is an object of its own. What it records for
the next leader is determined when it is sent, and the requests for one policy are sent one after another. So no request
arrives late and overwrites what another has recorded.

Where the API server has no definition of records, and where an option says so, the status itself contains all this in
the API too, as with versions that had no records. If the definition is deleted while this replica leads, it moves into
the status, and when it comes again, back.

If a record can't be written, the status is: users see there why no pod is evicted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from math import inf
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from immutables import Map

from respread.api.policy import GROUP, PLURALS, VERSION, Policy
from respread.api.record import NOTHING, record_of, with_record
from respread.api.status import PolicyStatus, Summary, encode_shown, encode_status
from respread.cluster.decode.decoder import Kind
from respread.controller.records.exclusive_requests import ExclusiveRequests
from respread.controller.records.record_writer import RecordWriter
from respread.controller.records.status_reader import FoundStatuses, read_statuses, served_resources
from respread.kube.api_status import status_of
from respread.kube.requests import NoResponseError, Requests
from respread.planning.turns import in_turns
from respread.stores.watched_kinds import POLICY_KINDS, RECORDS, full_name
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
LOOK_AGAIN_SECONDS: Final = 30.0
"""How often it looks for the definitions of records while there are none. It looks at once if a record is refused."""
_AT_ONCE: Final = 8


class Wanted(NamedTuple):
    """The status that a policy should have."""

    policy: Policy
    status: PolicyStatus
    seen: PolicyStatus
    """The status last seen in the API."""


class StatusWriter:
    """Writes the statuses that differ from what they should be."""

    def __init__(
        self,
        requests: Requests,
        exclusive: ExclusiveRequests,
        clock: Callable[[], float],
        *,
        kinds: Iterable[Kind] = POLICY_KINDS,
        remembering: Callable[[Policy, PolicyStatus], PolicyStatus],
        records_in_status: bool = False,
    ) -> None:
        """Write through the API server.

        Args:
            requests: sends requests that read.
            exclusive: sends those that write.
            clock: a monotonic clock in seconds.
            kinds: the kinds of policies that are used.
            remembering: returns a policy's status with what it must record when it is sent.
            records_in_status: whether statuses contain what belongs into records, for versions that have no records.
        """
        self._requests = requests
        self._clock = clock
        self._kinds = tuple(kinds)
        self._exclusive = exclusive
        self._records = RecordWriter(exclusive)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._written: dict[str, PolicyStatus] = {}
        self._written_at: dict[str, float] = {}
        self._remembering = remembering
        self._hurried: set[str] = set()
        self._ensuring: dict[str, asyncio.Task[bool]] = {}
        """By the policies' UIDs."""
        self._along: dict[str, PolicyStatus] = {}
        """Statuses that are due and go along with a request that is about to be sent, by the same."""
        self._took: dict[str, float] = {}
        """How long the API server took over the last record or status, in seconds, by the same."""
        self._to_rewrite: set[str] = set()
        """The policies of which something must be written although nothing has changed, by the same: a write was not
        confirmed, or what belongs into the record is still in the status, or the other way round."""
        self._records_in_status = records_in_status
        self._without_records: frozenset[str] = frozenset()
        """The kinds of policies for whose records there was no definition when it was last looked for."""
        self._unrecorded = False
        """Whether a record was refused since its definition was last looked for."""
        self._looked_at = -inf
        """When the definitions of records were last looked for."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self) -> FoundStatuses:
        """Return the current statuses of all policies from the API server, with their records.

        Raises:
            ListError: they could not be read.
        """
        return await read_statuses(self._requests, self._kinds)

    def begin(self, found: FoundStatuses) -> None:
        """Start to lead: what was written before may have been overwritten since.

        Args:
            found: what was just read. The watch may be behind it.
        """
        policies = found.policies.values()
        self._records.begin(policies)
        self._written = {each.uid: each.status for each in policies}
        self._without_records = found.without_records
        self._unrecorded = False
        self._looked_at = self._clock() if found.without_records else -inf
        self._warn_of(found.without_records)
        self._to_rewrite = {
            each.uid
            for each in policies
            if each.in_status != (record_of(each.status) if self._is_in_status(each.kind) else NOTHING)
        }

    def known(self, policy: Policy, seen: PolicyStatus) -> PolicyStatus:
        """Return the status last written, or read when this replica began to lead, else the one seen in the API."""
        return self._written.get(policy.uid, seen)

    def all_known(self, policies: Map[str, Policy], seen: Mapping[str, PolicyStatus]) -> dict[str, PolicyStatus]:
        """Return the `known` status of each policy, by name; `seen` are the statuses last seen in the API."""
        return {name: self.known(policy, seen.get(name, PolicyStatus())) for name, policy in policies.items()}

    async def write(self, wanted: Iterable[Wanted]) -> float | None:
        """Write statuses that differ and are due. Return when the next one is due, on the clock.

        Of thousands, only some are written at once, so that other work need not wait; the others are due at once.
        Namespaces take turns, and in each the status written longest ago is first.
        """
        now = self._clock()
        statuses = tuple(wanted)
        uids = {each.policy.uid for each in statuses}
        self._written = {uid: status for uid, status in self._written.items() if uid in uids}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in uids}
        self._took = {uid: seconds for uid, seconds in self._took.items() if uid in uids}
        self._to_rewrite &= uids
        self._records.keep(uids)
        again_seconds = LEAST_INTERVAL_SECONDS if self._unrecorded else LOOK_AGAIN_SECONDS
        if (self._without_records or self._unrecorded) and now >= self._looked_at + again_seconds:
            await self._look_for_records([each.policy for each in statuses])
        different = [each for each in statuses if self._differs(each)]
        due = self._first_of([each for each in different if self._due_at(each.policy) <= now])
        self._written_at.update((each.policy.uid, now) for each in due)
        self._hurried &= {each.policy.name for each in different} - {each.policy.name for each in due}
        await asyncio.gather(*(self._write_in_turn(each) for each in due))
        left = (each for each in different if self._differs(each))
        return min((self._due_at(each.policy) for each in left), default=None)

    async def write_all(self, wanted: Iterable[Wanted]) -> None:
        """Write all statuses that differ, due or not, before this replica ends."""
        await asyncio.gather(*self._ensuring.values(), return_exceptions=True)  # they wait for more to come
        await asyncio.gather(*(self._write_in_turn(each) for each in wanted if self._differs(each)))

    @property
    def uncertain(self) -> bool:
        """Whether a status or record was sent that may still be on its way."""
        return self._exclusive.uncertain

    def trouble(self, policy: Policy) -> str:
        """Return why the record of a policy could not be written last; empty if it was, or was never tried."""
        return self._records.trouble(policy)

    async def ensure(self, policies: Iterable[tuple[Policy, PolicyStatus]]) -> set[str]:
        """Write what policies' records must contain, without waiting until it is due, because a move depends on it.

        One request serves all callers that ask for a policy before it is sent.

        Args:
            policies: each with the status last seen in the API.

        Returns:
            The names of the policies whose record is certainly written.
        """
        asked = tuple(policies)
        written = await asyncio.gather(*(self._ensured(policy, seen) for policy, seen in asked))
        return {policy.name for (policy, _), done in zip(asked, written, strict=True) if done}

    def hurry(self, policies: Iterable[str]) -> None:
        """Write the statuses of some policies, by name, the next time even if they are not due."""
        self._hurried.update(policies)

    def _differs(self, wanted: Wanted) -> bool:
        return wanted.status != self.known(wanted.policy, wanted.seen) or wanted.policy.uid in self._to_rewrite

    def _first_of(self, due: Iterable[Wanted]) -> list[Wanted]:
        by_age = sorted(due, key=lambda each: self._due_at(each.policy))
        return in_turns(by_age, lambda each: each.policy.namespace)[:MOST_AT_ONCE]

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
            known = self.known(policy, seen)
            status = self._remembering(policy, self._along.pop(policy.uid, known))
            if with_record(status, NOTHING) == PolicyStatus() and not self._is_in_status(policy.kind):
                # Who starts without a Lease must see in the status that somebody leads already.
                summary = Summary(in_flight=len(status.moves_in_flight))
                status = msgspec.structs.replace(status, summary=summary)
            return await self._write(policy, status, known)

    async def _write_in_turn(self, wanted: Wanted) -> bool:
        if wanted.policy.uid in self._ensuring:  # the control loop need not wait for that, nor is another one needed
            self._along[wanted.policy.uid] = wanted.status
            return True
        async with self._lock(wanted.policy.uid):
            known = self.known(wanted.policy, wanted.seen)
            return await self._write(wanted.policy, self._remembering(wanted.policy, wanted.status), known)

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    def _is_in_status(self, kind: str) -> bool:
        """Return whether statuses of a kind of policy contain what belongs into the record."""
        return self._records_in_status or kind in self._without_records

    async def _look_for_records(self, policies: Collection[Policy]) -> None:
        """Use records from now on for the kinds of policies for which there is a definition of them."""
        self._looked_at = self._clock()
        self._unrecorded = False
        served = await served_resources(self._requests)
        came = {kind.kind for kind in self._kinds if RECORDS[kind].resource in served} & self._without_records
        missing = {
            kind.kind for kind in self._kinds if kind.resource in served and RECORDS[kind].resource not in served
        }
        gone = missing - self._without_records
        self._without_records = (self._without_records - came) | gone
        if self._records_in_status:
            return
        if came:
            _log.info("Kept in records from now on: what the next leader must know", kinds=sorted(came))
        self._warn_of(gone)
        self._records.gone(policy.uid for policy in policies if policy.kind in gone)
        self._to_rewrite.update(policy.uid for policy in policies if policy.kind in came | gone)

    def _warn_of(self, without_records: Collection[str]) -> None:
        for kind in self._kinds:
            if kind.kind in without_records:
                _log.warning(
                    "Kept in the statuses of policies, as before: what the next leader must know",
                    error=f"the CustomResourceDefinition {full_name(RECORDS[kind])} is not installed",
                    action="kubectl apply --server-side --force-conflicts -k crds",
                )

    async def _write(self, policy: Policy, status: PolicyStatus, known: PolicyStatus) -> bool:
        """Write a policy's record and status as far as they differ, and return whether the API certainly has them."""
        in_status, uid = self._is_in_status(policy.kind), policy.uid
        told = known if in_status else with_record(known, record_of(status))
        is_told = status == told and uid not in self._to_rewrite
        if is_told and (in_status or self._records.is_stored(policy, record_of(status))):
            self._written[uid] = status
            return True
        async with self._at_once:
            sent_at = self._clock()
            # The record is first: what an earlier version recorded in the status stays there until the record has it.
            if not in_status and not await self._records.write(policy, record_of(status)):
                self._to_rewrite.add(uid)
                if not self.uncertain:  # The API server answers.
                    self._unrecorded = True
                    await self._show(policy, status, known)
                return False
            self._written[uid] = told
            if not is_told and not await self._write_status(policy, encode_status(status, with_record=in_status)):
                self._to_rewrite.add(uid)
                return False
            self._took[uid] = self._clock() - sent_at
        self._written[uid] = status
        if in_status == self._is_in_status(policy.kind):
            self._to_rewrite.discard(uid)
        return True

    async def _show(self, policy: Policy, status: PolicyStatus, known: PolicyStatus) -> None:
        """Write what users see of a status whose record was refused, so that they see that too."""
        shown = with_record(status, record_of(known))
        if shown != known and await self._write_status(policy, encode_shown(status)):
            self._written[policy.uid] = shown

    async def _write_status(self, policy: Policy, status: dict[str, Any]) -> bool:
        in_namespace = "/namespaces/{namespace}" if policy.namespace else ""
        names = {"name": policy.object_name} | ({"namespace": policy.namespace} if policy.namespace else {})
        path = f"/apis/{GROUP}/{VERSION}{in_namespace}/{PLURALS[policy.kind]}/{{name}}/status"
        try:
            response = await self._exclusive.send(
                "PATCH", path, names, {"metadata": {"uid": policy.uid}, "status": status}
            )
        except NoResponseError as error:
            _log.warning("Status not written", policy=policy.name, error=error.message)
            return False
        if response is None:
            _log.warning("Status not written", policy=policy.name, error="this replica does not lead any more")
            return False
        if not response.succeeded and response.sent and response.status_code != HTTPStatus.NOT_FOUND:
            message = status_of(response.body).message
            _log.warning("Status not written", policy=policy.name, status_code=response.status_code, error=message)
        return response.succeeded
