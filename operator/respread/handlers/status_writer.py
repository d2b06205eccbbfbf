"""Writing policies' statuses: only what changed, and of one policy not more often than every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from math import inf
from typing import Final, NamedTuple

from respread.api.policy import GROUP, PLURALS, VERSION, Policy
from respread.api.status import PolicyStatus, encode_status
from respread.eviction.answers import status_of
from respread.eviction.requests import NoResponseError, Requests
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

LEAST_INTERVAL_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0


class Wanted(NamedTuple):
    """The status that a policy should have."""

    policy: Policy
    status: PolicyStatus
    seen: PolicyStatus
    """The one last seen in the API."""


class StatusWriter:
    """Brings the statuses in the API to what they should be."""

    __slots__ = ("_clock", "_requests", "_written", "_written_at")

    def __init__(self, requests: Requests, clock: Callable[[], float]) -> None:
        """Write through the API server.

        Args:
            requests: how to ask it.
            clock: seconds that never go back.
        """
        self._requests = requests
        self._clock = clock
        self._written: dict[str, PolicyStatus] = {}
        self._written_at: dict[str, float] = {}

    def known(self, policy: Policy, seen: PolicyStatus) -> PolicyStatus:
        """Return the status last written, or, where none was, the one seen in the API."""
        return self._written.get(policy.uid, seen)

    async def write(self, wanted: Iterable[Wanted]) -> float | None:
        """Write the statuses of all policies that differ and are due; return when the next one is, on the clock."""
        now = self._clock()
        statuses = tuple(wanted)
        uids = {each.policy.uid for each in statuses}
        self._written = {uid: status for uid, status in self._written.items() if uid in uids}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in uids}
        different = [each for each in statuses if each.status != self.known(each.policy, each.seen)]
        due = {
            each.policy.uid: self._written_at.get(each.policy.uid, -inf) + LEAST_INTERVAL_SECONDS for each in different
        }
        await asyncio.gather(
            *(self._write(each.policy, each.status) for each in different if due[each.policy.uid] <= now)
        )
        return min((at for at in due.values() if at > now), default=None)

    async def _write(self, policy: Policy, status: PolicyStatus) -> None:
        self._written_at[policy.uid] = self._clock()
        in_namespace = "/namespaces/{namespace}" if policy.namespace else ""
        names = {"name": policy.object_name} | ({"namespace": policy.namespace} if policy.namespace else {})
        try:
            response = await self._requests.send(
                "PATCH",
                f"/apis/{GROUP}/{VERSION}{in_namespace}/{PLURALS[policy.kind]}/{{name}}/status",
                names,
                body={"metadata": {"uid": policy.uid}, "status": encode_status(status)},
                timeout_seconds=_TIMEOUT_SECONDS,
            )
        except NoResponseError as error:
            _log.warning("Status not written", policy=policy.name, error=error.message)
            return
        if response.succeeded:
            self._written[policy.uid] = status
        elif response.status_code != HTTPStatus.NOT_FOUND:
            message = status_of(response.body).message
            _log.warning("Status not written", policy=policy.name, status_code=response.status_code, error=message)
