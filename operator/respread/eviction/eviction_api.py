"""Evicts one pod through the API server: policy/v1 Eviction, for exactly the planned pod."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from respread.api.json_documents import decoded
from respread.cluster.pod import Pod
from respread.eviction.answers import Answer, EvictionResult, answer_of
from respread.eviction.owners.reading import read_pod
from respread.kube.requests import Meaning, NoResponseError, PreparedRequest, Requests, Response

TIMEOUT_SECONDS: Final = 12.0
"""The API server waits 10 s for an admission webhook by default, and then answers that nothing has happened."""
_LEAST_GRACE_PERIOD_SECONDS: Final = 1
"""With 0, the API server deletes a pod before its node has stopped it, and a StatefulSet may start it a second time."""

_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_EVICTION: Final = f"{_POD}/eviction"


async def send_eviction(request: PreparedRequest) -> Answer:
    """Send an eviction once, and return the API server's answer, `Unknown` if none came."""
    try:
        return _answer(await request.send())
    except NoResponseError as error:
        return _unanswered(error)


class EvictionApi:
    """The Eviction API of one cluster: read the pod, prepare its eviction, take a last look, send."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def prepare(
        self,
        pod: Pod,
        *,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> PreparedRequest | Answer:
        """Return the request of a pod's eviction, including credentials, or an answer if there are none.

        A later pod of the same name is left alone. Without a grace period, the pod has its own, but at least a second.
        In a dry run, the API server only says what it would do: it checks budgets and changes nothing. The timeout is
        at most `TIMEOUT_SECONDS`.
        """
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace_period_seconds is None and pod.spec.stops_without_grace:
            grace_period_seconds = _LEAST_GRACE_PERIOD_SECONDS
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if dry_run:
            options["dryRun"] = ["All"]
        try:
            return await self._requests.prepare(
                "POST",
                _EVICTION,
                pod.key._asdict(),
                query={"dryRun": "All"} if dry_run else None,
                body={
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"namespace": pod.namespace, "name": pod.name},
                    "deleteOptions": options,
                },
                timeout_seconds=min(TIMEOUT_SECONDS, timeout_seconds),
            )
        except NoResponseError as error:
            return _unanswered(error)

    async def read(self, pod: Pod) -> Answer | None:
        """Return why evicting a pod would be useless, or None if the pod exists.

        With a wrong UID, the API server takes a disruption from the budget before it finds the difference, and returns
        it only after two minutes.
        """
        try:
            response = await self._read(pod)
        except NoResponseError as error:
            return Answer(result=EvictionResult.UNREACHABLE, message=error.message)
        if not response.succeeded:
            answer = _answer(response)
            if answer.may_have_evicted:  # Reading a pod evicts nothing, however it fails.
                return msgspec.structs.replace(answer, result=EvictionResult.UNREACHABLE)
            return answer
        return _answer_about(response.body, pod)

    async def is_untouched(self, pod: Pod) -> bool | None:
        """Return whether a pod exists and neither is being deleted nor about to be; None if that can't be read."""
        try:
            response = await self._read(pod)
            if response.meaning is Meaning.ABSENT:
                return False
            found = decoded(read_pod, response.body) if response.succeeded else None
        except (NoResponseError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return None if found is None else found.metadata.uid == pod.uid and not found.is_going

    async def _read(self, pod: Pod) -> Response:
        return await self._requests.send("GET", _POD, pod.key._asdict(), timeout_seconds=TIMEOUT_SECONDS)


def _answer_about(body: bytes, planned: Pod) -> Answer | None:
    try:
        found = decoded(read_pod, body).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Answer(result=EvictionResult.UNREACHABLE, message=f"the API server's answer is not a pod: {error}")
    if found.uid != planned.uid:
        return Answer(
            result=EvictionResult.CHANGED,
            message=f"the pod of that name is another one now (UID {found.uid} instead of {planned.uid})",
        )
    if found.deletion_timestamp is not None:
        return Answer(result=EvictionResult.GONE, message=f"it has been terminating since {found.deletion_timestamp}")
    return None


def _answer(response: Response) -> Answer:
    return answer_of(response.status_code, response.body, response.retry_after_seconds)


def _unanswered(error: NoResponseError) -> Answer:
    result = EvictionResult.UNKNOWN if error.sent else EvictionResult.UNREACHABLE
    return Answer(result=result, message=error.message)
