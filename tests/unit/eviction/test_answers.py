"""Every possible answer has one meaning. The answers of a real API server are in tests/integration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respread.api.reasons import Reason
from respread.eviction.answers import EvictionResult, answer_of


def status(message: str = "", kind: str = "", *causes: str) -> bytes:
    details = {"kind": kind, "causes": [{"reason": cause, "message": f"({cause})"} for cause in causes]}
    return json.dumps({"kind": "Status", "status": "Failure", "message": message, "details": details}).encode()


DENIED, UNAUTHORIZED = (status(f'{who} "a" denied the request: b') for who in ("admission webhook", "authorizer"))
TERMINATING, OVERLAP = status("", "", "NamespaceTerminating"), "This pod has more than one PodDisruptionBudget"
OVERLAPPING = status(f"{OVERLAP}, which the eviction subresource does not support.")


@pytest.mark.parametrize(
    ("code", "body", "retry_after", "result", "reason"),
    [
        (200, b'{"status":"Success"}', None, EvictionResult.EVICTED, None),
        (201, b'{"status":"Success"}', None, EvictionResult.EVICTED, None),
        (201, b"", None, EvictionResult.EVICTED, None),
        (404, status('pods "a" not found', "pods"), None, EvictionResult.GONE, None),
        (404, status('namespaces "a" not found', "namespaces"), None, EvictionResult.GONE, None),
        (404, b"404 page not found", None, EvictionResult.INVALID, Reason.EVICTION_REFUSED),
        (409, status("the UID in the precondition", "Pod"), None, EvictionResult.CHANGED, Reason.IN_MOTION),
        (429, status("", "", "DisruptionBudget"), None, EvictionResult.HELD_BY_BUDGET, Reason.HELD_BY_BUDGET),
        (429, status("", "", "DisruptionBudget"), 0.0, EvictionResult.HELD_BY_BUDGET, Reason.HELD_BY_BUDGET),
        (429, status("", "", "DisruptionBudget"), 10.0, EvictionResult.BUDGET_OUT_OF_DATE, Reason.BUDGET_OUT_OF_DATE),
        (429, status("too many requests"), 1.0, EvictionResult.THROTTLED, Reason.API_UNAVAILABLE),
        (429, b"too many requests", None, EvictionResult.THROTTLED, Reason.API_UNAVAILABLE),
        (403, TERMINATING, None, EvictionResult.NAMESPACE_TERMINATING, Reason.NAMESPACE_TERMINATING),
        (403, status("map too big", "poddisruptionbudget"), None, EvictionResult.BUDGET_REFUSED, Reason.HELD_BY_BUDGET),
        (403, status("cannot create pods/eviction", "pods"), None, EvictionResult.FORBIDDEN, Reason.EVICTION_REFUSED),
        (429, DENIED, 1.0, EvictionResult.FORBIDDEN, Reason.EVICTION_REFUSED),
        (500, DENIED, None, EvictionResult.FORBIDDEN, Reason.EVICTION_REFUSED),
        (500, UNAUTHORIZED, None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (500, status('admission webhook "a" is slow'), None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (504, OVERLAPPING, None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (500, status('error: failed calling webhook "a": b'), None, EvictionResult.FORBIDDEN, Reason.EVICTION_REFUSED),
        (401, status("Unauthorized"), None, EvictionResult.UNAUTHORIZED, Reason.EVICTION_REFUSED),
        (400, status("bad"), None, EvictionResult.INVALID, Reason.EVICTION_REFUSED),
        (405, b"", None, EvictionResult.INVALID, Reason.EVICTION_REFUSED),
        (422, status("invalid"), None, EvictionResult.INVALID, Reason.EVICTION_REFUSED),
        (500, OVERLAPPING, None, EvictionResult.OVERLAPPING_BUDGETS, Reason.OVERLAPPING_BUDGETS),
        (500, status("etcdserver: request timed out"), None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (502, b"<html>Bad Gateway</html>", None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (503, b"", 1.0, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (504, status("couldn't update PodDisruptionBudget"), 10.0, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (408, b"", None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
        (302, b"", None, EvictionResult.SERVER_ERROR, Reason.API_UNAVAILABLE),
    ],
)
def test_an_answer_has_a_result(
    code: int, body: bytes, retry_after: float | None, result: EvictionResult, reason: Reason | None
) -> None:
    answer = answer_of(code, body, retry_after)
    assert answer.result is result
    assert answer.evicted is (not answer.message) is (code in {200, 201})
    assert (answer.held.reason if answer.held else None) is reason
    assert answer.retry_after_seconds == retry_after


def test_after_a_server_error_the_pod_may_be_evicted() -> None:
    assert answer_of(500, b"").may_have_evicted
    assert answer_of(504, b"").may_have_evicted
    assert answer_of(201, b"").may_have_evicted
    for sure in (answer_of(500, status(OVERLAP)), answer_of(429, b""), answer_of(409, b""), answer_of(404, b"")):
        assert not sure.may_have_evicted


def test_a_message_contains_the_servers_message_and_causes() -> None:
    for message, words in (("Cannot evict pod.", "Cannot evict pod. (DisruptionBudget)"), ("", "(DisruptionBudget)")):
        assert answer_of(429, status(message, "", "DisruptionBudget")).message == words
    assert answer_of(502, b"<html>Bad Gateway</html>\n").message == "<html>Bad Gateway</html>"
    assert answer_of(503, b"").message == "the API server answered 503 without a message"
    assert len(answer_of(500, b"x" * 10_000).message) == 500


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["message", "details", "causes", "kind", "reason"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.integers(100, 599), st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_answer_can_be_parsed(code: int, body: bytes) -> None:
    answer = answer_of(code, body)
    assert isinstance(answer.message, str)
    if code >= 500 and "more than one PodDisruptionBudget" not in answer.message:
        assert answer.may_have_evicted
