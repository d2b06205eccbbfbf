"""The API server's possible answers to an eviction, and what each means.

Based on `EvictionREST.Create` of Kubernetes 1.36 and what comes before it (authentication, authorization, priority and
fairness, admission). The most important case is no answer at all: if it is unknown whether a pod was evicted, Respread
must continue as if it had been, or it would restore the same skew twice.
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Final

import msgspec

from respread.api.reasons import Held, Reason
from respread.kube.requests import Meaning, Status, meaning_of, status_of

_DISRUPTION_BUDGET: Final = "DisruptionBudget"
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
_OVERLAPPING: Final = "more than one PodDisruptionBudget"


class EvictionResult(StrEnum):
    """The result of one eviction. The value is the label in the metrics."""

    EVICTED = "Evicted"
    GONE = "Gone"
    """The pod no longer existed, or was already being deleted."""
    CHANGED = "Changed"
    """The pod has another UID, or changed while the API server handled the request."""
    HELD_BY_BUDGET = "HeldByBudget"
    BUDGET_OUT_OF_DATE = "BudgetOutOfDate"
    """The budget's status is being updated: the answer may be different in some seconds."""
    OVERLAPPING_BUDGETS = "OverlappingBudgets"
    BUDGET_REFUSED = "BudgetRefused"
    """The API server rejects the budget's status, for example with more than 2,000 disruptedPods."""
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    THROTTLED = "Throttled"
    """The API server is overloaded."""
    FORBIDDEN = "Forbidden"
    """Our permissions, or an admission webhook or policy."""
    UNAUTHORIZED = "Unauthorized"
    INVALID = "Invalid"
    """The API server rejected the request: a bug in Respread, or a server without policy/v1."""
    SERVER_ERROR = "ServerError"
    UNREACHABLE = "Unreachable"
    """The request was never sent: nothing happened."""
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
    """The outcome of a request for an eviction."""

    result: EvictionResult
    message: str = ""
    """The API server's message, or what prevented the request."""
    retry_after_seconds: float | None = None
    """How long the API server asks to wait; None if it does not say."""

    @property
    def evicted(self) -> bool:
        """Whether the API server has accepted the eviction."""
        return self.result is EvictionResult.EVICTED

    @property
    def made(self) -> bool | None:
        """The same; None if the request may have evicted the pod."""
        return None if self.result in _UNCERTAIN else self.evicted

    @property
    def may_have_evicted(self) -> bool:
        """Whether this request may have evicted the pod. Then it counts as evicted until the opposite is seen."""
        return self.made is not False

    @property
    def held(self) -> Held | None:
        """Why the pod was not evicted; None if it was, or was already gone."""
        reason = _REASONS.get(self.result)
        return None if reason is None else Held(reason, self.message)


def answer_of(status_code: int, body: bytes = b"", retry_after_seconds: float | None = None) -> Answer:
    """Interpret the API server's answer to an eviction."""
    status = status_of(body)
    result = EvictionResult.FORBIDDEN if _is_of_webhook(status) else _result(status_code, status, retry_after_seconds)
    return Answer(
        result=result,
        message="" if result is EvictionResult.EVICTED else _message(status_code, status),
        retry_after_seconds=retry_after_seconds,
    )


def _is_of_webhook(status: Status) -> bool:
    """Return whether an admission webhook denied the eviction, could not be called or did not answer in time.

    The API server asks webhooks before it looks at the pod, so that nothing has happened. The code is that of the
    webhook: some deny with 429 or 500 what they do themselves (`ToStatusErr`, `ErrCallingWebhook` of k8s.io/apiserver).
    """
    message = status.message
    return "failed calling webhook " in message or (
        "admission webhook " in message and " denied the request" in message
    )


_RESULTS: Final = {
    Meaning.DONE: EvictionResult.EVICTED,
    Meaning.CONFLICT: EvictionResult.CHANGED,
    Meaning.UNAUTHORIZED: EvictionResult.UNAUTHORIZED,
    Meaning.REFUSED: EvictionResult.INVALID,
    Meaning.UNCERTAIN: EvictionResult.SERVER_ERROR,
}


def _result(status_code: int, status: Status, retry_after_seconds: float | None) -> EvictionResult:
    if status_code == HTTPStatus.INTERNAL_SERVER_ERROR and _OVERLAPPING in status.message:
        return EvictionResult.OVERLAPPING_BUDGETS
    match meaning := meaning_of(status_code):
        case Meaning.ABSENT:
            gone = status.is_about("pods") or status.is_about("namespaces")
            return EvictionResult.GONE if gone else EvictionResult.INVALID
        case Meaning.THROTTLED:
            return _too_many_requests(status, retry_after_seconds)
        case Meaning.FORBIDDEN:
            return _forbidden(status)
        case _:
            return _RESULTS[meaning]


def _too_many_requests(status: Status, retry_after_seconds: float | None) -> EvictionResult:
    if not status.has_cause(_DISRUPTION_BUDGET):
        return EvictionResult.THROTTLED
    return EvictionResult.BUDGET_OUT_OF_DATE if retry_after_seconds else EvictionResult.HELD_BY_BUDGET


def _forbidden(status: Status) -> EvictionResult:
    if status.has_cause(_NAMESPACE_TERMINATING):
        return EvictionResult.NAMESPACE_TERMINATING
    # `checkAndDecrement` names the resource in the singular. For a missing permission, the message names the pods.
    if status.is_about("poddisruptionbudget"):
        return EvictionResult.BUDGET_REFUSED
    return EvictionResult.FORBIDDEN


def _message(status_code: int, status: Status) -> str:
    causes = () if status.details is None else status.details.causes
    words = " ".join(each for each in (status.message, *(cause.message for cause in causes)) if each)
    return words or f"the API server answered {status_code} without a message"
