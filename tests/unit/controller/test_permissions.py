"""Optional permissions are asked for at an interval; others are missing after a refusal, for a short time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from respread.controller.permissions import Permissions, ResourceAttributes, permission_for
from respread.kube.requests import Method, NoResponseError, Response
from tests.fake_requests import FakeRequests

POD = "/api/v1/namespaces/{namespace}/pods/{name}"
EVICTION = f"{POD}/eviction"
PATCH = ("patch", "", "pods")
TEN_MINUTES, HOUR = 600, 3600


class Authorizer(FakeRequests):
    """Answers reviews by what is granted, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.granted: set[tuple[str, str]] = set()
        """Verb and namespace; an empty namespace grants the verb in all."""
        self.status_code = 201
        self.lost = False
        self.asked: Counter[str] = Counter()
        """Reviews by namespace."""

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        del method, path, names
        assert options["timeout_seconds"] <= 5, "requests wait for it"
        wanted = options["body"]["spec"]["resourceAttributes"]
        self.asked[wanted.get("namespace", "")] += 1
        await asyncio.sleep(0)
        if self.lost:
            raise NoResponseError("lost", sent=True)
        allowed = not self.granted.isdisjoint({(wanted["verb"], ""), (wanted["verb"], wanted.get("namespace", ""))})
        return Response(status_code=self.status_code, body=msgspec.json.encode({"status": {"allowed": allowed}}))


class World:
    """Permissions on a clock, of which patching pods is optional."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.seconds = 0.0
        self.authorizer = Authorizer()
        self.changes = self.looks = 0
        self._given_clock = clock
        self.permissions = Permissions(self.authorizer, {PATCH}, self.clock, notify=self.changed)

    def clock(self) -> float:
        self.looks += 1
        return self.seconds if self._given_clock is None else self._given_clock()

    def changed(self) -> None:
        self.changes += 1

    async def sends(self, namespace: str = "shop", method: Method = "PATCH", path: str = POD) -> bool:
        """Return whether a request is sent."""
        refusal = await self.permissions.refusal(method, path, {"namespace": namespace, "name": "web"})
        assert refusal is None or not refusal.sent
        return refusal is None

    def refuse(self, namespace: str = "shop", method: Method = "PATCH", path: str = POD, words: str = "") -> None:
        """Take over a refusal by RBAC, or in other words."""
        names = {"namespace": namespace, "name": "web"}
        permission = permission_for(method, path, names)
        assert permission is not None
        verb, group, resource, _ = permission
        message = words or (
            f'pods "web" is forbidden: User "system:serviceaccount:respread-system:respread" cannot {verb} resource '
            f'"{resource}" in API group "{group}" in the namespace "{namespace}"'
        )
        response = Response(status_code=403, body=msgspec.json.encode({"message": message, "reason": "Forbidden"}))
        self.permissions.answered(method, path, names, response)

    def accept(self, method: Method = "PATCH", path: str = POD, status_code: int = 200) -> None:
        """Take over an answer that is no refusal."""
        response = Response(status_code=status_code, body=b"{}")
        self.permissions.answered(method, path, {"namespace": "shop", "name": "web"}, response)

    async def until(self, seconds: float) -> None:
        """Move the clock step by step, while the permissions are asked for in the background."""
        while self.seconds < seconds:
            running = asyncio.create_task(self.permissions.run())
            for _ in range(20):
                await asyncio.sleep(0)
            running.cancel()
            self.seconds = min(self.seconds + 5, seconds)


@pytest.mark.parametrize(
    ("method", "path", "names", "expected"),
    [
        ("PATCH", POD, {"namespace": "a", "name": "b"}, ("patch", "", "pods", "a")),
        ("POST", EVICTION, {"namespace": "a", "name": "b"}, ("create", "", "pods/eviction", "a")),
        ("GET", "/api/v1/namespaces/{namespace}/limitranges", {"namespace": "a"}, ("list", "", "limitranges", "a")),
        ("GET", "/apis/argoproj.io/v1alpha1/namespaces/{namespace}/rollouts/{name}", {"namespace": "a", "name": "b"},
         ("get", "argoproj.io", "rollouts", "a")),
        ("DELETE", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", {"namespace": "a", "name": "b"},
         ("delete", "apps", "deployments", "a")),
        ("PATCH", "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{name}/status", {"name": "b"},
         ("patch", "respread.dev", "clusterrebalancepolicies/status", "")),
        ("GET", "/version", {}, None),
        ("GET", "/apis/respread.dev/v1alpha1", {}, None),
    ],
)  # fmt: skip
def test_a_request_needs_the_permission_that_the_api_server_checks(
    method: Method, path: str, names: Mapping[str, str], expected: tuple[str, ...] | None
) -> None:
    assert permission_for(method, path, names) == expected


async def test_a_granted_permission_is_asked_for_once_for_all_namespaces() -> None:
    world = World()
    world.authorizer.granted.add(("patch", ""))
    assert all([await world.sends(namespace) for namespace in ("shop", "blog", "shop") for _ in range(10)])
    await world.until(TEN_MINUTES)
    assert world.authorizer.asked == {"": 1}
    assert not world.permissions.missing
    assert not world.changes


async def test_many_requests_at_once_wait_for_one_review_and_none_is_sent() -> None:
    world = World()
    sent = await asyncio.gather(*(world.sends() for _ in range(100)))
    assert not any(sent)
    assert world.authorizer.asked == {"": 1, "shop": 1}
    assert world.permissions.missing == {ResourceAttributes(*PATCH, "shop")}
    for names, where in (({"namespace": "shop"}, 'in the namespace "shop"'), ({}, "at the cluster scope")):
        refusal = await world.permissions.refusal("PATCH", POD, names)
        assert where in (refusal.refusal if refusal is not None else "")


async def test_a_missing_permission_is_asked_for_at_most_twice_in_ten_minutes_and_used_within_them() -> None:
    world = World()
    for second in range(0, 10 * TEN_MINUTES, 20):
        await world.until(second)
        assert not await world.sends("shop")
        assert not await world.sends("blog")
    assert all(10 <= world.authorizer.asked[namespace] <= 10 * 2 for namespace in ("", "shop", "blog"))
    granted_at = world.seconds
    world.authorizer.granted.add(("patch", "shop"))
    while not await world.sends("shop"):
        await world.until(world.seconds + 5)
    assert world.seconds - granted_at <= TEN_MINUTES
    assert world.permissions.missing == {ResourceAttributes(*PATCH, "blog")}
    assert not await world.sends("blog")
    world.seconds += TEN_MINUTES
    sending = [asyncio.create_task(world.sends(namespace)) for namespace in ("blog", "shop")]
    await asyncio.sleep(0)
    assert [each.done() for each in sending] == [False, True], "no other request waits for a review"


async def test_an_expected_permission_is_missing_and_granted_without_any_request() -> None:
    world = World()
    world.permissions.expect([ResourceAttributes(*PATCH, "shop"), ResourceAttributes(*PATCH, "blog")])
    await world.until(5)
    assert len(world.permissions.missing) == 2
    await world.until(2 * HOUR)
    assert len(world.permissions.missing) == 2
    told = world.changes
    world.authorizer.granted.add(("patch", ""))
    world.refuse("shop", "POST", EVICTION)
    await world.until(world.seconds + 315)
    assert world.permissions.missing == {ResourceAttributes("create", "", "pods/eviction", "shop")}, "another right"
    assert world.changes > told


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("lost", "expected", "asked"),
    [(False, True, {"": 4, "shop": 4}), (False, False, {"": 4, "shop": 4}), (True, True, {"": 109})],
)
async def test_an_expected_or_missing_permission_is_asked_for_at_its_interval(
    *, lost: bool, expected: bool, asked: dict[str, int]
) -> None:
    world = World(asyncio.get_running_loop().time)
    world.authorizer.lost = lost
    running = asyncio.create_task(world.permissions.run())
    await asyncio.sleep(1)
    world.refuse("shop", "POST", EVICTION)  # nobody asks for that
    await asyncio.sleep(1)
    if expected:
        world.permissions.expect([ResourceAttributes(*PATCH, "shop")])
    else:
        assert not await world.sends("shop")
    await asyncio.sleep(3.5 * 310)
    running.cancel()
    assert world.authorizer.asked == asked
    assert world.looks < 20 * sum(asked.values()), "it rests in between"


async def test_a_withdrawn_permission_is_missing_after_one_refusal() -> None:
    world = World()
    world.authorizer.granted.add(("patch", ""))
    assert await world.sends()
    world.authorizer.granted.clear()
    world.refuse()
    assert not await world.sends()
    assert not await world.sends("blog")
    assert world.permissions.missing == {ResourceAttributes(*PATCH, name) for name in ("shop", "blog")}


async def test_a_refusal_by_admission_is_about_one_object_only() -> None:
    world = World()
    world.authorizer.granted.add(("patch", ""))
    assert await world.sends()
    world.refuse(words='admission webhook "guard.example.com" denied the request: cannot patch this pod')
    assert await world.sends()
    assert not world.permissions.missing


@pytest.mark.parametrize(("status_code", "again_seconds"), [(403, 310), (404, 310), (500, 10), (0, 10)])
async def test_while_reviews_are_not_answered_requests_are_sent_and_refusals_count(
    status_code: int, again_seconds: float
) -> None:
    world = World()
    world.authorizer.status_code, world.authorizer.lost = status_code, not status_code
    for seconds, asked in ((0, 1), (again_seconds - 1, 1), (1, 2)):
        world.seconds += seconds
        assert await world.sends()
        assert world.authorizer.asked.total() == asked
    sent = 0
    world.authorizer.asked.clear()
    for _ in range(0, 10 * TEN_MINUTES, 5):
        world.seconds += 5
        if await world.sends():
            sent += 1
            world.refuse()
    assert 10 <= sent <= 20
    assert world.authorizer.asked.total() <= 20
    world.authorizer.status_code, world.authorizer.lost = 201, True
    world.seconds += 310
    assert await world.sends()


async def test_a_permission_that_is_not_optional_is_tried_again_after_a_short_time() -> None:
    world = World()
    assert await world.sends("shop", "POST", EVICTION)
    world.refuse("shop", "POST", EVICTION)
    assert (await world.sends("shop", "POST", EVICTION), world.changes) == (False, 1)
    assert await world.sends("blog", "POST", EVICTION)
    world.seconds += 30
    assert await world.sends("shop", "POST", EVICTION)  # this one finds out
    assert not await world.sends("shop", "POST", EVICTION)
    for status_code in (401, 429, 503):
        world.accept("POST", EVICTION, status_code)
    assert world.permissions.missing
    world.refuse("shop", "POST", EVICTION)
    assert world.changes == 1, "it is missing still"
    world.accept("POST", EVICTION, 201)
    world.accept("POST", EVICTION, 201)
    assert not world.permissions.missing
    assert world.changes == 2
    assert await world.sends("shop", "POST", EVICTION)
    assert not world.authorizer.asked


@pytest.mark.virtual_time
async def test_a_missing_permission_that_nothing_needs_is_forgotten() -> None:
    world = World(asyncio.get_running_loop().time)
    running = asyncio.create_task(world.permissions.run())
    expected = ResourceAttributes(*PATCH, "blog")
    world.permissions.expect([expected])
    world.refuse("shop", "POST", EVICTION)
    assert not await world.sends("gone")
    await asyncio.sleep(HOUR - 1)
    assert len(world.permissions.missing) == 3
    assert not world.authorizer.asked["shop"], "only an answer tells of what is not optional"
    told = world.changes
    await asyncio.sleep(2)
    assert world.permissions.missing == {expected}
    await asyncio.sleep(60)
    assert world.changes == told + 1
    running.cancel()
