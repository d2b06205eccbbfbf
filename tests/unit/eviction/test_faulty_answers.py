"""A possible eviction counts as made if the answer is missing or faulty."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respread.cluster.pod import Pod, PodSpec
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import EvictionApi
from tests import evicting
from tests.eviction_moves import SPEC
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping, hanging, truncating
from tests.worlds import pod

A = pod("a", "node-1", SPEC)
POD = {"metadata": {"name": A.name, "uid": A.uid}}
EVICTION = "/namespaces/default/pods/a/eviction"


async def evict(stub: StubApiServer, of: Pod = A, **options: Any) -> Answer:
    async with stub.running() as requests:
        answer = await evicting.evict(EvictionApi(requests), of, **options)
    assert isinstance(answer, Answer)
    return answer


async def evict_with(post: Answering, get: Answering | None = None, **options: Any) -> tuple[Answer, StubApiServer]:
    stub = StubApiServer()
    stub.on("GET", "/pods/a", get or answering(POD))
    stub.on("POST", EVICTION, post)
    return await evict(stub, **options), stub


def status(message: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, "details": details}


@pytest.mark.parametrize(
    ("post", "words"),
    [
        (dropping, "did not answer"),
        (truncating, "did not answer"),
        (hanging, "did not answer"),
        (answering(status("etcdserver: leader changed"), status=500), "etcdserver: leader changed"),
        (answering("<html>Bad Gateway</html>", status=502), "<html>Bad Gateway</html>"),
        (answering(status("apiserver is shutting down"), status=503, headers={"Retry-After": "1"}), "shutting down"),
        (answering(status("Timeout: request did not complete"), status=504), "did not complete"),
    ],
)
async def test_after_a_faulty_answer_the_pod_may_be_evicted_and_nothing_is_sent_twice(
    post: Answering, words: str
) -> None:
    answer, stub = await evict_with(post, timeout_seconds=2 if post is hanging else 60)
    assert answer.may_have_evicted
    assert not answer.evicted
    assert words in answer.message
    assert [method for method, _ in stub.requests] == ["GET", "POST"]


async def test_the_retry_after_of_a_busy_server_is_kept() -> None:
    busy = answering("too many requests, please try again later", status=429, headers={"Retry-After": "7"})
    answer, _ = await evict_with(busy)
    assert (answer.result, answer.retry_after_seconds) == (EvictionResult.THROTTLED, 7)
    date = answering(status("busy"), status=429, headers={"Retry-After": "Sat, 21 Nov 2026 09:00:00 GMT"})
    assert (await evict_with(date))[0].retry_after_seconds is None


@pytest.mark.parametrize(
    ("get", "result", "is_untouched"),
    [
        (dropping, EvictionResult.UNREACHABLE, None),
        (truncating, EvictionResult.UNREACHABLE, None),
        (answering(status("no"), status=500), EvictionResult.UNREACHABLE, None),
        (answering("<html>Bad Gateway</html>", status=502), EvictionResult.UNREACHABLE, None),
        (answering("no JSON"), EvictionResult.UNREACHABLE, None),
        (answering({"metadata": {"uid": 7}}), EvictionResult.UNREACHABLE, None),
        (answering([1, 2, 3]), EvictionResult.UNREACHABLE, None),
        (answering(status("no", kind="pods"), status=404), EvictionResult.GONE, False),
        (answering({"metadata": {**POD["metadata"], "deletionTimestamp": "x"}}), EvictionResult.GONE, False),
        (answering({"metadata": {"name": A.name, "uid": "of another"}}), EvictionResult.CHANGED, False),
    ],
)
async def test_a_failed_read_of_the_pod_and_one_of_another_or_a_leaving_pod_evict_nothing(
    get: Answering, result: EvictionResult, is_untouched: bool | None
) -> None:
    answer, stub = await evict_with(answering({}), get)
    assert answer.result is result
    assert not answer.may_have_evicted
    assert [method for method, _ in stub.requests if method == "POST"] == []
    async with stub.running() as requests:
        assert await EvictionApi(requests).is_untouched(A) is is_untouched


@pytest.mark.parametrize(
    ("kind", "value"), [("DisruptionTarget", "True"), ("DisruptionTarget", "False"), ("Any", "True")]
)
async def test_a_pod_that_something_is_about_to_delete_is_not_untouched(kind: str, value: str) -> None:
    stub = StubApiServer()
    conditions = [{"type": "Ready", "status": "True"}, {"type": kind, "status": value}]
    stub.on("GET", "/pods/a", answering({**POD, "status": {"conditions": conditions}}))
    async with stub.running() as requests:
        assert await EvictionApi(requests).is_untouched(A) is ((kind, value) != ("DisruptionTarget", "True"))


async def test_the_eviction_has_the_uid_of_the_pod() -> None:
    _, stub = await evict_with(answering({}, status=201), grace_period_seconds=7, dry_run=True)
    assert stub.bodies[-1] == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "default", "name": "a"},
        "deleteOptions": {"preconditions": {"uid": A.uid}, "gracePeriodSeconds": 7, "dryRun": ["All"]},
    }


@pytest.mark.parametrize(
    ("own", "of_policy", "sent"), [(0, None, 1), (0, 7, 7), (0, 0, 0), (30, None, None), (30, 7, 7)]
)
async def test_a_pod_without_a_grace_period_gets_a_second_unless_the_policy_says_otherwise(
    own: int, of_policy: int | None, sent: int | None
) -> None:
    of = pod("a", "node-1", PodSpec(stops_without_grace=not own))
    _, stub = await evict_with(answering({}, status=201), of=of, grace_period_seconds=of_policy)
    options = {} if sent is None else {"gracePeriodSeconds": sent}
    assert stub.bodies[-1]["deleteOptions"] == {"preconditions": {"uid": of.uid}, **options}


async def test_the_message_of_a_huge_answer_is_shortened() -> None:
    answer, _ = await evict_with(answering("x" * 3_000_000, status=500))
    assert len(answer.message) <= 500
    deep = answering(json.loads("[" * 200 + "]" * 200), status=500)
    assert (await evict_with(deep))[0].result is EvictionResult.SERVER_ERROR
