"""Asking the API server to set or remove one pod's deletion cost, by server-side apply.

The field manager `respread` owns what it applies and nothing else: a cost that somebody else wrote is answered with a
conflict, never overwritten, and applying nothing removes only what we own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Final

import msgspec

from respread.cluster.annotations import POD_DELETION_COST
from respread.cluster.decode.field_ownership import FIELD_MANAGER, annotation_is_applied
from respread.cluster.pod import Pod
from respread.kube.api_status import Status, status_of
from respread.kube.requests import NoResponseError, Requests, Response
from respread.planning.victims.protection import read_deletion_cost
from respread.prevention.ranks import HeldCost

TIMEOUT_SECONDS: Final = 10.0

_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_APPLY: Final = "application/apply-patch+yaml"


class PatchResult(StrEnum):
    """What the API server made of a patch; the value is the metrics' label."""

    APPLIED = "Applied"
    ALREADY = "Already"
    """Another cost than was known stands there, and nothing was sent."""
    FOREIGN = "Foreign"
    """Somebody else wrote a cost."""
    GONE = "Gone"
    """There is no such pod any more, or it is being deleted."""
    FORBIDDEN = "Forbidden"
    THROTTLED = "Throttled"
    UNREACHABLE = "Unreachable"
    """It was not sent."""
    UNKNOWN = "Unknown"
    """It was sent, and may or may not have been carried out."""
    SERVER_ERROR = "ServerError"
    """It may have been carried out all the same, but is not any more."""
    INVALID = "Invalid"


class PatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and what was said."""

    result: PatchResult
    message: str = ""
    cost: HeldCost | None = None
    """What the pod has, where that was read."""
    retry_after_seconds: float | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    managed_fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Pod(msgspec.Struct):
    metadata: _Metadata


class DeletionCosts:
    """The pod deletion costs of one cluster."""

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
        may_send: Callable[[], bool] = lambda: True,
        time_left: Callable[[], float] = lambda: TIMEOUT_SECONDS,
    ) -> PatchAnswer | None:
        """Ask once for a pod's cost to be set, or removed if it is None.

        Args:
            pod: the very pod; a namesake that came after it is left alone.
            cost: what it is to have.
            known: what it is believed to have.
            careful: read the pod first, and send nothing if it has something else than was believed.
            may_send: asked right before the patch is written, when even the credentials are in it.
            time_left: asked before the patch is made ready: within so many seconds it has to have been answered.

        Returns:
            The answer; None if it may not be sent any more.
        """
        if careful and (found := await self._read(pod, known)) is not None:
            return found

        annotations = {} if cost is None else {"annotations": {POD_DELETION_COST: str(cost)}}
        metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, **annotations}
        try:
            request = await self._requests.prepare(
                "PATCH",
                _POD,
                _names(pod),
                query={"fieldManager": FIELD_MANAGER},
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

    async def _read(self, pod: Pod, known: HeldCost | None) -> PatchAnswer | None:
        """Return why there is no point in a patch, or None if the pod is as it is believed to be."""
        try:
            response = await self._requests.send("GET", _POD, _names(pod), timeout_seconds=TIMEOUT_SECONDS)
            if not response.succeeded:
                return _answer(response)
            metadata = msgspec.json.decode(response.body, type=_Pod).metadata
        except NoResponseError as error:
            return PatchAnswer(result=PatchResult.UNREACHABLE, message=error.message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return PatchAnswer(result=PatchResult.SERVER_ERROR, message=f"the answer is no pod: {error}")
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
    return HeldCost(read_deletion_cost(text), annotation_is_applied(metadata.managed_fields, POD_DELETION_COST))


def _names(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.namespace, "name": pod.name}


def _answer(response: Response) -> PatchAnswer:
    if response.succeeded:
        return PatchAnswer(result=PatchResult.APPLIED)
    status = status_of(response.body)
    return PatchAnswer(
        result=_result(response.status_code, status),
        message=status.message or f"the API server answered {response.status_code} without a word",
        retry_after_seconds=response.retry_after_seconds,
    )


def _result(status_code: int, status: Status) -> PatchResult:  # noqa: PLR0911 - a table
    match status_code:
        case HTTPStatus.NOT_FOUND:
            return PatchResult.GONE
        case HTTPStatus.CONFLICT:
            # The other kind says that the UID is not that of the pod there is, or that there is none.
            return PatchResult.FOREIGN if status.has_cause("FieldManagerConflict") else PatchResult.GONE
        case HTTPStatus.FORBIDDEN:
            return PatchResult.FORBIDDEN
        case HTTPStatus.TOO_MANY_REQUESTS:
            return PatchResult.THROTTLED
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.REQUEST_TIMEOUT:
            return PatchResult.SERVER_ERROR
        case _ if HTTPStatus.BAD_REQUEST <= status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return PatchResult.INVALID
        case _:
            return PatchResult.SERVER_ERROR
