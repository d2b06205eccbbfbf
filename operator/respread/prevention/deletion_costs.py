"""Sets or removes the deletion cost of one pod by server-side apply.

The field manager `respread` only owns what it applies. If somebody else wrote a cost, the API server answers with a
conflict, and the cost is not overwritten unless the policy says so. Applying nothing removes only what Respread owns.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from respread.api.nesting import decoded
from respread.cluster.annotations import POD_DELETION_COST
from respread.cluster.decode.field_ownership import FIELD_MANAGER, owner_of_annotation
from respread.cluster.pod import Pod
from respread.kube.api_status import Meaning, Status, status_of
from respread.kube.requests import TIMEOUT_SECONDS, NoResponseError, Requests, Response
from respread.planning.victims.protection import read_deletion_cost
from respread.prevention.ranks import HeldCost

_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_APPLY: Final = "application/apply-patch+yaml"


class PatchResult(StrEnum):
    """The API server's answer to a patch. The value is the label in the metrics."""

    APPLIED = "Applied"
    ALREADY = "Already"
    """The pod has another cost than Respread knew, and nothing was sent."""
    FOREIGN = "Foreign"
    """Somebody else wrote a cost."""
    GONE = "Gone"
    """The pod does not exist any more, or is being deleted."""
    FORBIDDEN = "Forbidden"
    NOT_PERMITTED = "NotPermitted"
    """The permission is missing, and nothing was sent."""
    THROTTLED = "Throttled"
    UNREACHABLE = "Unreachable"
    """The patch was not sent."""
    UNKNOWN = "Unknown"
    """The patch was sent, and may or may not have been applied."""
    SERVER_ERROR = "ServerError"
    """The patch may have been applied, but won't be any more."""
    INVALID = "Invalid"


class PatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and the message."""

    result: PatchResult
    message: str = ""
    cost: HeldCost | None = None
    """The pod's cost, if it was read."""
    retry_after_seconds: float | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    managed_fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Pod(msgspec.Struct):
    metadata: _Metadata


_read_pod: Final = msgspec.json.Decoder(_Pod).decode


class DeletionCosts:
    """The pod deletion costs of a cluster."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def set(
        self,
        pod: Pod,
        cost: int | None,
        *,
        known: HeldCost | None,
        careful: bool = False,
        replacing: bool = False,
        may_send: Callable[[], bool] = lambda: True,
        time_left: Callable[[], float] = lambda: TIMEOUT_SECONDS,
    ) -> PatchAnswer | None:
        """Request once that a pod's cost is set, or removed if it is None.

        Args:
            pod: exactly this pod. A later pod of the same name is left alone.
            cost: the new cost.
            known: the cost that Respread believes it has.
            careful: read the pod first, and send nothing if it has another cost.
            replacing: replace a cost that somebody else wrote.
            may_send: called right before the patch is written, after its credentials have been added.
            time_left: called before the patch is prepared: the answer must arrive within this many seconds.

        Returns:
            The answer; None if the patch may not be sent any more.
        """
        if (refusal := await self._requests.refusal("PATCH", _POD, _names(pod))) is not None:
            return _answer(refusal)
        if careful and (found := await self.read(pod, known)) is not None:
            return found

        annotations = {} if cost is None else {"annotations": {POD_DELETION_COST: str(cost)}}
        metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, **annotations}
        try:
            request = await self._requests.prepare(
                "PATCH",
                _POD,
                _names(pod),
                query={"fieldManager": FIELD_MANAGER, **({"force": "true"} if replacing else {})},
                body={"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
                content_type=_APPLY,
                timeout_seconds=min(TIMEOUT_SECONDS, time_left()),
            )
            if not may_send():
                return None
            return _answer(await request.send())
        except NoResponseError as error:
            result = PatchResult.UNKNOWN if error.sent else PatchResult.UNREACHABLE
            return PatchAnswer(result=result, message=error.message)

    async def read(self, pod: Pod, known: HeldCost | None) -> PatchAnswer | None:
        """Read a pod, and return what differs from what is known, or why that can't be told; None if nothing does."""
        try:
            response = await self._requests.send("GET", _POD, _names(pod))
            if not response.succeeded:
                return _answer(response)
            metadata = decoded(_read_pod, response.body).metadata
        except NoResponseError as error:
            return PatchAnswer(result=PatchResult.UNREACHABLE, message=error.message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return PatchAnswer(result=PatchResult.SERVER_ERROR, message=f"the answer is not a pod: {error}")
        if metadata.uid != pod.uid or metadata.deletion_timestamp is not None:
            return PatchAnswer(result=PatchResult.GONE)
        found = _cost(metadata)
        if found == known:
            return None
        foreign = found is not None and not found.ours
        return PatchAnswer(result=PatchResult.FOREIGN if foreign else PatchResult.ALREADY, cost=found)


def _cost(metadata: _Metadata) -> HeldCost | None:
    text = (metadata.annotations or {}).get(POD_DELETION_COST)
    if text is None:
        return None
    return HeldCost(read_deletion_cost(text), owner_of_annotation(metadata.managed_fields, POD_DELETION_COST).ours)


def _names(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.namespace, "name": pod.name}


def _answer(response: Response) -> PatchAnswer:
    if response.succeeded:
        return PatchAnswer(result=PatchResult.APPLIED)
    status = status_of(response.body)
    return PatchAnswer(
        result=_result(response.meaning, status) if response.sent else PatchResult.NOT_PERMITTED,
        message=status.message or f"the API server answered {response.status_code} without a message",
        retry_after_seconds=response.retry_after_seconds,
    )


_RESULTS: Final = {
    Meaning.ABSENT: PatchResult.GONE,
    Meaning.FORBIDDEN: PatchResult.FORBIDDEN,
    Meaning.THROTTLED: PatchResult.THROTTLED,
    Meaning.REFUSED: PatchResult.INVALID,
}


def _result(meaning: Meaning, status: Status) -> PatchResult:
    if meaning is Meaning.CONFLICT:
        # The other kind says that the pod has another UID or does not exist.
        return PatchResult.FOREIGN if status.has_cause("FieldManagerConflict") else PatchResult.GONE
    return _RESULTS.get(meaning, PatchResult.SERVER_ERROR)
