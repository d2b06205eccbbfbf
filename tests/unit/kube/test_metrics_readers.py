"""Who may read the metrics, by reviews that a test answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from respread.kube.metrics_readers import MOST_REMEMBERED, REMEMBERED_SECONDS, TIMEOUT_SECONDS, MetricsReaders
from respread.kube.requests import NoResponseError, Response
from tests.fake_requests import FakeRequests
from tests.virtual_time import Clock

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OK, UNAUTHORIZED, FORBIDDEN = HTTPStatus.OK, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
USER = {"username": "prometheus", "uid": "u-1", "groups": ["monitoring"], "extra": {"pod": ["p-0"]}}


class ApiServer(FakeRequests):
    """Knows some tokens, and lets some of their users read."""

    def __init__(self, known: Iterable[str] = ("known",), *, allows: bool = True) -> None:
        super().__init__()
        self.known = set(known)
        self.allows = allows
        self.asked: list[tuple[str, Any]] = []
        self.instead: Callable[[str], Response | None] = lambda _: None
        self.at_once = self.most_at_once = 0

    async def answer(self, method: str, path: str, names: Any, **options: Any) -> Response:
        self.asked.append((f"{method} {path}", options["body"]))
        assert (dict(names), options["timeout_seconds"]) == ({}, TIMEOUT_SECONDS)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if (other := self.instead(path)) is not None:
            return other
        if path == ACCESS:
            return answer({"allowed": self.allows})
        if options["body"]["spec"]["token"] in self.known:
            return answer({"authenticated": True, "user": USER})
        return answer({"user": {}})


def answer(status: object, code: int = 201) -> Response:
    return Response(status_code=code, body=msgspec.json.encode({"status": status}))


async def judged(server: ApiServer, *tokens: str) -> list[HTTPStatus]:
    readers = MetricsReaders(server, Clock())
    return [await readers.judge(token) for token in tokens]


async def test_the_api_server_is_asked_who_has_the_token_and_whether_they_may_get_the_path() -> None:
    server = ApiServer()
    assert await judged(server, "known") == [OK]
    (first, token_review), (second, access_review) = server.asked
    assert (first, second) == (f"POST {TOKENS}", f"POST {ACCESS}")
    assert token_review == {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "known"}}
    spec = {"user": "prometheus", "uid": "u-1", "groups": ["monitoring"], "extra": {"pod": ["p-0"]}}
    assert access_review == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**spec, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    }


async def test_an_unknown_token_is_unauthorized_and_nothing_is_asked_about_its_user() -> None:
    server = ApiServer()
    assert await judged(server, "unknown", "unknown", "\udcff of any bytes") == [UNAUTHORIZED] * 3
    assert [path for path, _ in server.asked] == [f"POST {TOKENS}"] * 3


async def test_a_user_who_may_not_get_the_path_is_forbidden_until_they_may() -> None:
    server = ApiServer(allows=False)
    readers = MetricsReaders(server, Clock())
    assert await readers.judge("known") == FORBIDDEN
    server.allows = True
    assert await readers.judge("known") == OK


@pytest.mark.parametrize("status", [{}, {"authenticated": False, "user": USER}])
async def test_a_token_that_is_not_said_to_be_authenticated_is_unauthorized(status: dict[str, Any]) -> None:
    server = ApiServer()
    server.instead = lambda path: answer(status) if path == TOKENS else None
    assert await judged(server, "known") == [UNAUTHORIZED]


async def test_fields_that_the_api_server_leaves_out_are_empty_and_grant_nothing() -> None:
    server = ApiServer()
    server.instead = lambda path: answer({"authenticated": True} if path == TOKENS else {})
    assert await judged(server, "known") == [FORBIDDEN]
    spec = server.asked[1][1]["spec"]
    assert {name: spec[name] for name in USER if name != "username"} == {"uid": "", "groups": [], "extra": {}}
    assert spec["user"] == ""


async def test_a_permission_is_remembered_for_a_minute_and_then_asked_for_again() -> None:
    server = ApiServer()
    clock = Clock()
    readers = MetricsReaders(server, clock)
    assert await readers.judge("known") == OK
    clock.now += REMEMBERED_SECONDS - 0.1
    server.allows = False
    assert await readers.judge("known") == OK
    assert await readers.judge("other") == UNAUTHORIZED  # nobody else has it
    clock.now += 0.1
    assert await readers.judge("known") == FORBIDDEN
    clock.now -= 1
    assert await readers.judge("known") == FORBIDDEN  # it is forgotten
    server.allows = True
    assert await readers.judge("known") == OK
    assert len(server.asked) == 2 + 1 + 2 + 2 + 2
    assert (REMEMBERED_SECONDS, MOST_REMEMBERED, TIMEOUT_SECONDS) == (60.0, 100, 4.0)


async def test_the_oldest_permissions_are_forgotten_if_there_are_too_many() -> None:
    tokens = [f"token-{number}" for number in range(MOST_REMEMBERED)]
    server = ApiServer([*tokens, "one-more"])
    clock = Clock()
    readers = MetricsReaders(server, clock)
    for token in tokens:
        await readers.judge(token)
    clock.now += REMEMBERED_SECONDS
    for token in (*tokens[1:], tokens[0]):  # so that the second is the oldest now
        await readers.judge(token)
    server.asked.clear()
    for token in tokens:
        assert await readers.judge(token) == OK
    assert server.asked == []
    await readers.judge("one-more")
    server.known.clear()
    for token in (tokens[0], *tokens[2:], "one-more"):
        assert await readers.judge(token) == OK
    assert await readers.judge(tokens[1]) == UNAUTHORIZED


async def test_clients_are_judged_one_after_another() -> None:
    server = ApiServer([str(number) for number in range(5)])
    readers = MetricsReaders(server, Clock())
    found = await asyncio.gather(*(readers.judge(str(number)) for number in range(6)))
    assert found == [OK] * 5 + [UNAUTHORIZED]
    assert server.most_at_once == 1


def lost(_: str) -> Response:
    raise NoResponseError("connection refused", sent=False)


@pytest.mark.parametrize(
    ("path", "instead", "reason"),
    [
        (TOKENS, lost, "no answer about tokenreviews.authentication.k8s.io: connection refused"),
        (ACCESS, lost, "no answer about subjectaccessreviews.authorization.k8s.io: connection refused"),
        (
            TOKENS,
            lambda _: Response(status_code=403, body=b'{"kind":"Status","message":"no right"}'),
            "the API server refuses to create tokenreviews.authentication.k8s.io: 403, no right",
        ),
        (ACCESS, lambda _: Response(status_code=201, body=b"{}"), "no answer about subjectaccessreviews"),
        (TOKENS, lambda _: Response(status_code=201, body=b"<html>"), "no answer about tokenreviews"),
        (TOKENS, lambda _: Response(status_code=201, body=b'{"status":"\xff"}'), "no answer about tokenreviews"),
        (ACCESS, lambda _: answer({"allowed": "yes"}), "no answer about subjectaccessreviews"),
    ],
)
async def test_metrics_are_unavailable_if_the_api_server_does_not_say_and_the_log_says_why(
    path: str, instead: Callable[[str], Response], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer()
    clock = Clock()
    readers = MetricsReaders(server, clock)
    server.instead = lambda asked: instead(asked) if asked == path else None
    assert await readers.judge("known") == UNAVAILABLE
    assert reason in caplog.text
    server.instead = lambda _: None
    assert await readers.judge("known") == OK
    server.instead = lost
    clock.now += REMEMBERED_SECONDS / 2
    assert await readers.judge("known") == OK  # the metrics can be read while the API server is down
    clock.now += REMEMBERED_SECONDS
    assert await readers.judge("known") == UNAVAILABLE
