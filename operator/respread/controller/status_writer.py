"""Writing policies' statuses: only what changed, and of one policy not more often than every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from math import inf
from typing import Final, NamedTuple

from respread.api.policy import GROUP, PLURALS, VERSION, Policy
from respread.api.status import PolicyStatus, encode_status
from respread.cluster.decode.decoder import Kind
from respread.controller.status_reader import FoundStatus, read_statuses
from respread.kube.api_status import status_of
from respread.kube.requests import NoResponseError, Requests
from respread.planning.turns import in_turns
from respread.stores.watched_kinds import POLICY_KINDS
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

LEAST_INTERVAL_SECONDS: Final = 5.0
MOST_AT_ONCE: Final = 200
"""How many are written before the control loop goes on: a second's worth."""
_TIMEOUT_SECONDS: Final = 10.0
_AT_ONCE: Final = 8


class Wanted(NamedTuple):
    """The status that a policy should have."""

    policy: Policy
    status: PolicyStatus
    seen: PolicyStatus
    """The one last seen in the API."""


class StatusWriter:
    """Brings the statuses in the API to what they should be."""

    __slots__ = (
        "_at_once",
        "_clock",
        "_exclusive_seconds",
        "_hurried",
        "_kinds",
        "_requests",
        "_written",
        "_written_at",
    )

    def __init__(
        self,
        requests: Requests,
        clock: Callable[[], float],
        *,
        kinds: Iterable[Kind] = POLICY_KINDS,
        exclusive_seconds: Callable[[], float] = lambda: _TIMEOUT_SECONDS,
    ) -> None:
        """Write through the API server.

        Args:
            requests: how to ask it.
            clock: seconds that never go back.
            kinds: of the policies that count.
            exclusive_seconds: for how long nobody else can lead, and write statuses.
        """
        self._requests = requests
        self._clock = clock
        self._kinds = tuple(kinds)
        self._exclusive_seconds = exclusive_seconds
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._written: dict[str, PolicyStatus] = {}
        self._written_at: dict[str, float] = {}
        self._hurried: set[str] = set()

    async def read(self) -> dict[str, FoundStatus]:
        """Return the statuses of all policies as the API server has them now, by the policies' names.

        Raises:
            ListError: they could not be read.
        """
        return await read_statuses(self._requests, self._kinds)

    def begin(self, statuses: Mapping[str, FoundStatus]) -> None:
        """Begin to lead: whatever was written before may have been written over since.

        Args:
            statuses: what was just read; the watch may be behind it.
        """
        self._written = {found.uid: found.status for found in statuses.values()}

    def known(self, policy: Policy, seen: PolicyStatus) -> PolicyStatus:
        """Return the status last written, or read when this replica began to lead; else the one seen in the API."""
        return self._written.get(policy.uid, seen)

    async def write(self, wanted: Iterable[Wanted]) -> float | None:
        """Write statuses that differ and are due; return when the next one is, on the clock.

        Of thousands only so many are written at once that what else is to be done need not wait; the others are due
        already. Namespaces take turns, and in each the one that was written longest ago is first.
        """
        now = self._clock()
        statuses = tuple(wanted)
        uids = {each.policy.uid for each in statuses}
        self._written = {uid: status for uid, status in self._written.items() if uid in uids}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in uids}
        different = [each for each in statuses if each.status != self.known(each.policy, each.seen)]
        due = self._first_of([each for each in different if self._due_at(each.policy) <= now])
        self._written_at.update((each.policy.uid, now) for each in due)
        self._hurried &= {each.policy.name for each in different} - {each.policy.name for each in due}
        await asyncio.gather(*(self._write(each) for each in due))
        left = (each for each in different if each.status != self.known(each.policy, each.seen))
        return min((self._due_at(each.policy) for each in left), default=None)

    async def ensure(self, wanted: Iterable[Wanted]) -> set[str]:
        """Write statuses without waiting until they are due: something depends on them.

        Returns:
            The names of the policies that have theirs for certain.
        """
        statuses = tuple(wanted)
        different = [each for each in statuses if each.status != self.known(each.policy, each.seen)]
        written = await asyncio.gather(*(self._write(each) for each in different))
        missing = {each.policy.name for each, done in zip(different, written, strict=True) if not done}
        return {each.policy.name for each in statuses} - missing

    def hurry(self, policies: Iterable[str]) -> None:
        """Let the statuses of some policies, by name, be written the next time even if they are not due."""
        self._hurried.update(policies)

    def _first_of(self, due: Iterable[Wanted]) -> list[Wanted]:
        by_age = sorted(due, key=lambda each: self._due_at(each.policy))
        return in_turns(by_age, lambda each: each.policy.namespace)[:MOST_AT_ONCE]

    def _due_at(self, policy: Policy) -> float:
        if policy.name in self._hurried:
            return -inf
        return self._written_at.get(policy.uid, -inf) + LEAST_INTERVAL_SECONDS

    def _last_look(self) -> None:
        """Keep a leader that was frozen from writing over what the next one remembers."""
        if self._exclusive_seconds() <= 0:
            raise NoResponseError("this replica does not lead any more", sent=False)

    async def _write(self, wanted: Wanted) -> bool:
        """Write a status, and return whether it was."""
        policy, status, _ = wanted
        in_namespace = "/namespaces/{namespace}" if policy.namespace else ""
        names = {"name": policy.object_name} | ({"namespace": policy.namespace} if policy.namespace else {})
        async with self._at_once:
            try:
                response = await self._requests.send(
                    "PATCH",
                    f"/apis/{GROUP}/{VERSION}{in_namespace}/{PLURALS[policy.kind]}/{{name}}/status",
                    names,
                    body={"metadata": {"uid": policy.uid}, "status": encode_status(status)},
                    timeout_seconds=min(_TIMEOUT_SECONDS, self._exclusive_seconds()),
                    last_look=self._last_look,
                )
            except NoResponseError as error:
                _log.warning("Status not written", policy=policy.name, error=error.message)
                return False
        if response.succeeded:
            self._written[policy.uid] = status
            return True
        if response.status_code != HTTPStatus.NOT_FOUND:
            message = status_of(response.body).message
            _log.warning("Status not written", policy=policy.name, status_code=response.status_code, error=message)
        return False
