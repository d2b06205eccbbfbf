"""Writes the record of a policy: an object of its own, named after the policy's UID, and removed with the policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Literal

from respread.api.owner_reference import owner_reference
from respread.api.policy import API_VERSION, GROUP, VERSION, Policy
from respread.api.record import MAX_RECORD_LENGTH, NOTHING, RECORD_KINDS, RECORD_PLURALS, Recorded, encode_record
from respread.controller.records.exclusive_requests import ExclusiveRequests
from respread.controller.records.status_reader import FoundStatus
from respread.kube.api_status import Meaning
from respread.kube.requests import NoResponseError, Response
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)


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
        "metadata": {"name": policy.uid, **namespace, "ownerReferences": [owner_reference(policy)]},
        "policy": policy.object_name,
        "record": text,
    }
