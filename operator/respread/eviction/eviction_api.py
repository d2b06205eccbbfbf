"""Asking the API server to evict one pod: policy/v1 Eviction, for the very pod that was planned and no other."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from respread.cluster.pod import Pod
from respread.eviction.answers import Answer, EvictionResult, answer_of
from respread.kube.requests import NoResponseError, Requests, Response
from respread.planning.held import Held

Gate = Callable[[], Held | None]
"""What is asked once more, right before an eviction is sent; what it returns stands in the way."""

TIMEOUT_SECONDS: Final = 10.0
_LEAST_GRACE_PERIOD_SECONDS: Final = 1
"""With 0 the API server deletes a pod before its node has stopped it, and a StatefulSet may start it a second time."""

_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_EVICTION: Final = f"{_POD}/eviction"


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _HeldError(Exception):
    def __init__(self, held: Held) -> None:
        super().__init__(held.message)
        self.held = held


class EvictionApi:
    """The Eviction API of one cluster."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def evict(
        self,
        pod: Pod,
        *,
        gate: Gate,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        time_left: Callable[[], float] = lambda: TIMEOUT_SECONDS,
    ) -> Answer | Held:
        """Ask once for a pod's eviction.

        The pod is read first, since the API server takes a disruption off the budget before it finds that the UID is
        another's, and gives it back only after two minutes.

        Args:
            pod: the pod that was planned; a namesake that came after it is left alone.
            gate: asked right before the eviction is written, when even the credentials are in it. What it holds is not
                sent.
            grace_period_seconds: what the pod is given to stop; None: what it asks for itself, but at least a second.
            dry_run: whether the API server is only to say what it would do. It evaluates budgets and changes nothing.
            time_left: asked before the eviction is made ready: within so many seconds it has to have been answered.

        Returns:
            The API server's answer, `Unknown` where none came to the eviction itself; or what the gate holds it for.
        """
        if (answer := await self._read(pod)) is not None:
            return answer
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace_period_seconds is None and pod.spec.stops_without_grace:
            grace_period_seconds = _LEAST_GRACE_PERIOD_SECONDS
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if dry_run:
            options["dryRun"] = ["All"]

        def last_look() -> None:
            if (held := gate()) is not None:
                raise _HeldError(held)

        try:
            response = await self._requests.send(
                "POST",
                _EVICTION,
                _names(pod),
                query={"dryRun": "All"} if dry_run else None,
                body={
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"namespace": pod.namespace, "name": pod.name},
                    "deleteOptions": options,
                },
                timeout_seconds=min(TIMEOUT_SECONDS, time_left()),
                last_look=last_look,
            )
        except _HeldError as error:
            return error.held
        except NoResponseError as error:
            result = EvictionResult.UNKNOWN if error.sent else EvictionResult.UNREACHABLE
            return Answer(result=result, message=error.message)
        return _answer(response)

    async def _read(self, pod: Pod) -> Answer | None:
        """Return why there is no point in asking, or None if the pod is there."""
        try:
            response = await self._requests.send("GET", _POD, _names(pod), timeout_seconds=TIMEOUT_SECONDS)
        except NoResponseError as error:
            return Answer(result=EvictionResult.UNREACHABLE, message=error.message)
        if response.status_code != HTTPStatus.OK:
            answer = _answer(response)
            if answer.may_have_evicted:  # reading a pod evicts nothing, however it fails
                return msgspec.structs.replace(answer, result=EvictionResult.UNREACHABLE)
            return answer
        return _answer_about(response.body, pod)


def _answer_about(body: bytes, planned: Pod) -> Answer | None:
    try:
        found = msgspec.json.decode(body, type=_Pod).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Answer(result=EvictionResult.UNREACHABLE, message=f"the API server's answer is no pod: {error}")
    if found.uid != planned.uid:
        return Answer(
            result=EvictionResult.CHANGED,
            message=f"the pod of that name is another one now (UID {found.uid} instead of {planned.uid})",
        )
    if found.deletion_timestamp is not None:
        return Answer(result=EvictionResult.GONE, message=f"it is being deleted since {found.deletion_timestamp}")
    return None


def _answer(response: Response) -> Answer:
    return answer_of(response.status_code, response.body, response.retry_after_seconds)


def _names(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.namespace, "name": pod.name}
