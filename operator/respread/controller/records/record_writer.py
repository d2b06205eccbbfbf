"""Writes the record of a policy: an object of its own, named after the policy's UID, and removed with the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

from respread.api.owner_reference import owner_reference
from respread.api.policy import API_VERSION, GROUP, VERSION, Policy
from respread.api.record import MAX_RECORD_LENGTH, NOTHING, RECORD_KINDS, RECORD_PLURALS, encode_record
from respread.api.recorded import Recorded
from respread.controller.records.status_reader import FoundStatus
from respread.kube.api_status import status_of
from respread.kube.requests import Method, NoResponseError, Requests, Response
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)


class RecordWriter:
    """Writes records that differ from what is stored. Requests for one policy must be made one after another."""

    __slots__ = ("_exclusive_seconds", "_requests", "_stored", "_timeout_seconds")

    def __init__(self, requests: Requests, *, exclusive_seconds: Callable[[], float], timeout_seconds: float) -> None:
        """Write through the API server.

        Args:
            requests: sends requests.
            exclusive_seconds: for how long no other replica can lead and write records.
            timeout_seconds: the limit for each request.
        """
        self._requests = requests
        self._exclusive_seconds = exclusive_seconds
        self._timeout_seconds = timeout_seconds
        self._stored: dict[str, Recorded | None] = {}
        """What the objects contain, by the policies' UIDs; None if that is not known. Others don't exist."""

    def begin(self, policies: Iterable[FoundStatus]) -> None:
        """Start to lead, with the records just read."""
        self._stored = {found.uid: found.record for found in policies if found.record is not None}

    def keep(self, uids: set[str]) -> None:
        """Forget the records of other policies than these."""
        self._stored = {uid: record for uid, record in self._stored.items() if uid in uids}

    def is_stored(self, policy: Policy, record: Recorded) -> bool:
        """Return whether the API certainly has exactly this record of a policy; an empty one need not exist."""
        return self._stored.get(policy.uid, NOTHING) == record

    async def write(self, policy: Policy, record: Recorded) -> bool:
        """Write a record if it differs, and return whether the API certainly has it now."""
        if self.is_stored(policy, record):
            return True
        text = encode_record(record)
        if len(text) > MAX_RECORD_LENGTH:
            _log.warning("Record not written", policy=policy.name, error=f"it has {len(text)} characters")
            return False
        exists = policy.uid in self._stored
        try:
            response = await self._send(policy, text, exists=exists)
            if response is not None and exists and response.status_code == HTTPStatus.NOT_FOUND:  # somebody removed it
                del self._stored[policy.uid]
                response = await self._send(policy, text, exists=False)
            elif response is not None and not exists and response.status_code == HTTPStatus.CONFLICT:
                # An attempt of ours that nobody answered has made it.
                response = await self._send(policy, text, exists=True)
        except NoResponseError as error:
            if error.sent:
                self._stored[policy.uid] = None
            _log.warning("Record not written", policy=policy.name, error=error.message)
            return False
        if response is None:
            _log.warning("Record not written", policy=policy.name, error="this replica does not lead any more")
            return False
        if response.succeeded:
            self._stored[policy.uid] = record
            return True
        message = status_of(response.body).message
        _log.warning("Record not written", policy=policy.name, status_code=response.status_code, error=message)
        return False

    async def _send(self, policy: Policy, text: str, *, exists: bool) -> Response | None:
        """Return the answer; None if this replica may not lead any more."""
        in_namespace = "/namespaces/{namespace}" if policy.namespace else ""
        names = {"namespace": policy.namespace} if policy.namespace else {}
        path = f"/apis/{GROUP}/{VERSION}{in_namespace}/{RECORD_PLURALS[policy.kind]}"
        method: Method = "PATCH" if exists else "POST"
        request = await self._requests.prepare(
            method,
            f"{path}/{{name}}" if exists else path,
            {**names, "name": policy.uid} if exists else names,
            body={"record": text} if exists else _new(policy, text),
            timeout_seconds=min(self._timeout_seconds, self._exclusive_seconds()),
        )
        if self._exclusive_seconds() <= 0:  # The next leader may have written its own.
            return None
        return await request.send()


def _new(policy: Policy, text: str) -> dict[str, Any]:
    namespace = {"namespace": policy.namespace} if policy.namespace else {}
    return {
        "apiVersion": API_VERSION,
        "kind": RECORD_KINDS[policy.kind],
        "metadata": {"name": policy.uid, **namespace, "ownerReferences": [owner_reference(policy)]},
        "policy": policy.object_name,
        "record": text,
    }
