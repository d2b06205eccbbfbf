"""What the API server may answer to an eviction, and what each answer means.

Read in `EvictionREST.Create` of Kubernetes 1.36 and in what stands before it (authentication, authorization, priority
and fairness, admission). The answer that matters most is none at all: whoever does not know whether a pod was evicted
has to go on as if it had been, or the same skew is cured twice.
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Final

import msgspec

from respread.api.reasons import Reason
from respread.kube.api_status import Status, status_of
from respread.planning.held import Held

_DISRUPTION_BUDGET: Final = "DisruptionBudget"
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
_OVERLAPPING: Final = "more than one PodDisruptionBudget"


class EvictionResult(StrEnum):
    """The result of one eviction, as the metric's label says it."""

    EVICTED = "Evicted"
    GONE = "Gone"
    """The pod was not there any more, or being deleted already."""
    CHANGED = "Changed"
    """There is another pod of that name, or this one changed under the API server's hands."""
    HELD_BY_BUDGET = "HeldByBudget"
    BUDGET_OUT_OF_DATE = "BudgetOutOfDate"
    """The budget's status is being worked on: the answer may be another in some seconds."""
    OVERLAPPING_BUDGETS = "OverlappingBudgets"
    BUDGET_REFUSED = "BudgetRefused"
    """The budget's status makes no sense to the API server, as with more than 2,000 disruptedPods."""
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    THROTTLED = "Throttled"
    """The API server has too much to do."""
    FORBIDDEN = "Forbidden"
    """Our rights, or an admission webhook or policy."""
    UNAUTHORIZED = "Unauthorized"
    INVALID = "Invalid"
    """The API server did not understand the request: a bug of ours, or a server without policy/v1."""
    SERVER_ERROR = "ServerError"
    UNREACHABLE = "Unreachable"
    """The request never left: nothing happened."""
    UNKNOWN = "Unknown"
    """The request was sent and no answer came."""


_UNCERTAIN: Final = frozenset({EvictionResult.SERVER_ERROR, EvictionResult.UNKNOWN})
_REASONS: Final = {
    EvictionResult.CHANGED: Reason.IN_MOTION,
    EvictionResult.HELD_BY_BUDGET: Reason.HELD_BY_BUDGET,
    EvictionResult.BUDGET_OUT_OF_DATE: Reason.BUDGET_OUT_OF_DATE,
    EvictionResult.OVERLAPPING_BUDGETS: Reason.OVERLAPPING_BUDGETS,
    EvictionResult.BUDGET_REFUSED: Reason.HELD_BY_BUDGET,
    EvictionResult.NAMESPACE_TERMINATING: Reason.NAMESPACE_TERMINATING,
    EvictionResult.THROTTLED: Reason.API_UNAVAILABLE,
    EvictionResult.FORBIDDEN: Reason.EVICTION_REFUSED,
    EvictionResult.UNAUTHORIZED: Reason.EVICTION_REFUSED,
    EvictionResult.INVALID: Reason.EVICTION_REFUSED,
    EvictionResult.SERVER_ERROR: Reason.API_UNAVAILABLE,
    EvictionResult.UNREACHABLE: Reason.API_UNAVAILABLE,
    EvictionResult.UNKNOWN: Reason.API_UNAVAILABLE,
}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking for an eviction."""

    result: EvictionResult
    message: str = ""
    """The API server's words, or what went wrong on the way to it."""
    retry_after_seconds: float | None = None
    """How long the API server asks to be left alone; None where it does not say."""

    @property
    def evicted(self) -> bool:
        """Whether the API server has accepted the eviction."""
        return self.result is EvictionResult.EVICTED

    @property
    def may_have_evicted(self) -> bool:
        """Whether the pod may be going by this request: it has to be treated as if it were, until it is seen not to."""
        return self.evicted or self.result in _UNCERTAIN

    @property
    def held(self) -> Held | None:
        """Why the pod was not evicted; None where it was or had gone by itself."""
        reason = _REASONS.get(self.result)
        return None if reason is None else Held(reason, self.message)


def answer_of(status_code: int, body: bytes = b"", retry_after_seconds: float | None = None) -> Answer:
    """Read what the API server answered to an eviction.

    Args:
        status_code: of the HTTP response.
        body: of the HTTP response.
        retry_after_seconds: its Retry-After header; None if it has none.
    """
    status = status_of(body)
    result = _result(status_code, status, retry_after_seconds)
    return Answer(
        result=result,
        message="" if result is EvictionResult.EVICTED else _message(status_code, status),
        retry_after_seconds=retry_after_seconds,
    )


def _result(status_code: int, status: Status, retry_after_seconds: float | None) -> EvictionResult:  # noqa: PLR0911 - a table
    match status_code:
        case HTTPStatus.OK | HTTPStatus.CREATED:
            return EvictionResult.EVICTED
        case HTTPStatus.NOT_FOUND:
            gone = status.is_about("pods") or status.is_about("namespaces")
            return EvictionResult.GONE if gone else EvictionResult.INVALID
        case HTTPStatus.CONFLICT:
            return EvictionResult.CHANGED
        case HTTPStatus.TOO_MANY_REQUESTS:
            return _too_many_requests(status, retry_after_seconds)
        case HTTPStatus.FORBIDDEN:
            return _forbidden(status)
        case HTTPStatus.UNAUTHORIZED:
            return EvictionResult.UNAUTHORIZED
        case HTTPStatus.INTERNAL_SERVER_ERROR if _OVERLAPPING in status.message:
            return EvictionResult.OVERLAPPING_BUDGETS
        case HTTPStatus.REQUEST_TIMEOUT:
            return EvictionResult.SERVER_ERROR
        case _ if HTTPStatus.BAD_REQUEST <= status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return EvictionResult.INVALID
        case _:
            return EvictionResult.SERVER_ERROR


def _too_many_requests(status: Status, retry_after_seconds: float | None) -> EvictionResult:
    if not status.has_cause(_DISRUPTION_BUDGET):
        return EvictionResult.THROTTLED
    return EvictionResult.BUDGET_OUT_OF_DATE if retry_after_seconds else EvictionResult.HELD_BY_BUDGET


def _forbidden(status: Status) -> EvictionResult:
    if status.has_cause(_NAMESPACE_TERMINATING):
        return EvictionResult.NAMESPACE_TERMINATING
    # `checkAndDecrement` names the resource in the singular; a right that is missing names the pods
    if status.is_about("poddisruptionbudget"):
        return EvictionResult.BUDGET_REFUSED
    return EvictionResult.FORBIDDEN


def _message(status_code: int, status: Status) -> str:
    causes = () if status.details is None else status.details.causes
    words = " ".join(each for each in (status.message, *(cause.message for cause in causes)) if each)
    return words or f"the API server answered {status_code} without a word"
