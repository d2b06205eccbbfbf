"""There are never two leaders even if requests are lost, late or repeated, and there is one again after the faults.

The Lease is in memory and answers like the API server, over a line that delays and loses requests. Time is virtual.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
import unittest.mock
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from respread.cluster.meta import ObjectKey
from respread.kube.access import AccessError
from respread.kube.leadership import Election, Elector, LeaseTimes, seconds_since_boot
from respread.kube.requests import NoResponseError, Response
from tests.fake_requests import FakeRequests
from tests.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.virtual_time

LEASE = ObjectKey("respread", "respread")
TIMES = LeaseTimes()


class LeaseServer:
    """One Lease with the optimistic concurrency of the API server."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.was_held = False

    def handle(self, method: str, body: Mapping[str, Any] | None) -> Response:
        if method == "GET":
            return self.found() if self.lease else self.no(404, "NotFound")
        assert body is not None
        if method == "POST":
            return self.write(body) if self.lease is None else self.no(409, "AlreadyExists")
        if self.lease is None:
            return self.no(404, "NotFound")
        if body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            return self.no(409, "Conflict")
        return self.write(body)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = self.handle(request.method, await request.json() if request.can_read_body else None)
        return web.Response(body=response.body, status=response.status_code, content_type="application/json")

    def write(self, body: Mapping[str, Any]) -> Response:
        self.version += 1
        self.was_held = self.was_held or "holderIdentity" in body["spec"]
        self.lease = json.loads(json.dumps(body))
        assert self.lease is not None
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self.found()

    def found(self) -> Response:
        return Response(status_code=200, body=json.dumps(self.lease).encode())

    def no(self, code: int, reason: str) -> Response:
        return Response(status_code=code, body=json.dumps({"kind": "Status", "reason": reason}).encode())

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


class Line(FakeRequests):
    """The connection of one candidate to the server."""

    def __init__(self, server: LeaseServer, chance: random.Random | None = None) -> None:
        super().__init__()
        self.server = server
        self.chance = chance
        self.dead = False
        self.hangs = False
        self.late_seconds = 0.0
        self.asked = 0

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        assert path.format(**names).startswith("/apis/coordination.k8s.io/v1/namespaces/respread/leases")
        assert [options.get(each) for each in ("query", "content_type")] == [None, None]
        assert options.get("accept", "application/json") == "application/json"
        body = options.get("body")
        self.asked += 1
        if hangs := self.hangs:
            await asyncio.sleep(options["timeout_seconds"])
        if self.dead or hangs:
            raise NoResponseError("cut", sent=True)
        if self.chance is None:
            response = self.server.handle(method, body)
            await asyncio.sleep(self.late_seconds)
            return response
        return await self._over_a_bad_line(method, body, self.chance)

    async def _over_a_bad_line(self, method: str, body: Mapping[str, Any] | None, chance: random.Random) -> Response:
        arrived: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            # a sent request arrives, whether or not its sender still waits
            response = self.server.handle(method, body)
            if not arrived.done():
                arrived.set_result(response)

        if chance.random() > 0.1:
            delay = chance.choice([0.0, 0.01, 0.5, 3.0, 9.0, 25.0])
            asyncio.get_running_loop().call_later(delay, arrive)
        async with asyncio.timeout(10):  # wait_for of Python 3.11 may swallow a cancellation
            response = await arrived
        await asyncio.sleep(chance.choice([0.0, 0.01, 2.0, 9.0]))
        if self.dead or chance.random() < 0.1:
            raise NoResponseError("lost", sent=True)
        return response


def elector(line: Line, identity: str, **options: Any) -> Elector:
    options.setdefault("is_first", lambda: not line.server.was_held)
    options.setdefault("clock", asyncio.get_running_loop().time)
    return Elector(line, LEASE, identity, **options)


@asynccontextmanager
async def running(*electors: Elector | Election) -> AsyncIterator[None]:
    """Run electors, and stop them as a process is stopped."""
    tasks = [asyncio.create_task(each.run()) for each in electors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)


@asynccontextmanager
async def leading(line: Line, **options: Any) -> AsyncIterator[Elector]:
    """Run an elector called one, and wait until it leads."""
    one = elector(line, "one", **options)
    async with running(one):
        await until(one.holds, seconds=0.1)
        yield one


async def until(condition: Callable[[], bool], *, seconds: float) -> float:
    """Return the time until a condition was true, at most this many seconds."""
    started = asyncio.get_running_loop().time()
    while not condition():
        elapsed = asyncio.get_running_loop().time() - started
        assert elapsed <= seconds, f"not within {seconds} s"
        await asyncio.sleep(0.01)
    return asyncio.get_running_loop().time() - started


async def cut_off(line: Line, leader: Elector) -> None:
    line.dead = True
    await until(lambda: not leader.holds(), seconds=11)


async def test_the_first_replica_leads_and_the_second_follows_when_it_ends() -> None:
    server = LeaseServer()
    one, two = elector(Line(server), "one"), elector(Line(server), "two")
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await first.enter_async_context(running(one))
        assert await until(one.holds, seconds=0.1) < 0.1
        await second.enter_async_context(running(two))
        await asyncio.sleep(3600)
        assert one.holds()
        assert not two.holds()
        assert (one.holder, two.holder) == ("one", "one")
        assert server.spec["leaseTransitions"] == 0
        await first.aclose()
        assert not one.holds()
        assert await until(two.holds, seconds=TIMES.retry_seconds * 1.2) < 2.5
        assert server.spec["leaseTransitions"] == 1
    assert "holderIdentity" not in server.spec


async def test_a_lease_that_was_never_held_is_taken_soon_after_it_is_known_that_nobody_has_led() -> None:
    known: list[bool] = []
    async with running(one := elector(Line(LeaseServer()), "one", is_first=lambda: bool(known))):
        await asyncio.sleep(3)
        known.append(True)
        await until(one.holds, seconds=TIMES.retry_seconds * 1.2 / 4)


async def test_another_replica_leads_once_the_lease_of_a_dead_leader_has_expired() -> None:
    server = LeaseServer()
    dying, heir = Line(server), Line(server)
    one, two = elector(dying, "one"), elector(heir, "two")
    async with running(one, two):
        await until(one.holds, seconds=0.1)
        await asyncio.sleep(100)
        dying.dead = True
        renewed_at = asyncio.get_running_loop().time() - (TIMES.renew_deadline_seconds - one.remaining_seconds())
        await until(lambda: not one.holds(), seconds=10)
        assert asyncio.get_running_loop().time() - renewed_at == pytest.approx(10, abs=0.02)
        assert one.exclusive_seconds() == pytest.approx(5, abs=0.02)
        edited(server)  # by somebody else than its holder
        await until(two.holds, seconds=10)
        assert 15 <= asyncio.get_running_loop().time() - renewed_at <= 15 + 2 * 2.4
        assert one.exclusive_seconds() == 0


async def test_a_request_without_an_answer_does_not_hide_that_the_lease_has_expired() -> None:
    line, told = Line(LeaseServer()), list[tuple[float, bool]]()
    clock = asyncio.get_running_loop().time
    async with leading(line, on_change=lambda leads: told.append((clock(), leads))) as one:
        line.hangs = True
        await asyncio.sleep(30)
        line.hangs = False
        await until(one.holds, seconds=13)
        assert [leads for _, leads in told] == [True, False, True]
        assert told[1][0] == pytest.approx(10, abs=0.1)  # when the Lease expires, not when the request times out
    assert told[-1][1] is False


async def test_a_single_request_without_an_answer_does_not_cost_the_lease() -> None:
    """A load balancer that has lost a connection answers nothing on it. The next request uses another one."""
    line = Line(LeaseServer())
    async with leading(line) as one:
        asked, line.hangs = line.asked, True
        await until(lambda: line.asked > asked, seconds=5)
        line.hangs = False
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert one.holds()


async def test_a_late_answer_does_not_extend_the_lease() -> None:
    server = LeaseServer()
    server.write({"metadata": {"name": "respread"}, "spec": {}})
    line = Line(server)
    line.late_seconds = 4.0
    one = elector(line, "one")
    async with running(one):
        assert await until(one.holds, seconds=9) == pytest.approx(8, abs=0.02)  # asked at 4 s, answered at 8 s
        line.dead = True
        assert one.remaining_seconds() == pytest.approx(6, abs=0.02)
        assert await until(lambda: not one.holds(), seconds=11) == pytest.approx(6, abs=0.02)


async def test_a_leader_that_was_frozen_notices_at_once_that_its_lease_has_expired() -> None:
    frozen_seconds = 0.0
    loop = asyncio.get_running_loop()
    async with leading(Line(LeaseServer()), clock=lambda: loop.time() + frozen_seconds) as one:
        frozen_seconds = 12.0
        assert not one.holds()
        assert one.remaining_seconds() == 0
        await until(one.holds, seconds=3)


async def test_the_lease_does_not_depend_on_the_wall_clock() -> None:
    server = LeaseServer()
    for year in (1970, 2126):
        server.lease = None
        moment = f"{year}-01-01T00:00:00.000000Z"
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": moment, "acquireTime": moment}
        server.write({"metadata": {"name": "respread"}, "spec": spec})
        one = elector(Line(server), f"one-{year}")
        async with running(one):
            assert 15 <= await until(one.holds, seconds=20) <= 17.5


async def test_fields_of_the_lease_written_by_others_are_kept() -> None:
    async with leading(Line(server := LeaseServer())) as one:
        acquired = server.spec["acquireTime"]
        assert server.lease is not None
        await asyncio.sleep(10)
        server.write({**server.lease, "metadata": {"name": "respread", "labels": {"team": "a"}}})
        server.spec["strategy"] = "OldestEmulationVersion"
        await asyncio.sleep(10)
        assert one.holds()
        assert server.lease["metadata"]["labels"] == {"team": "a"}
        assert server.spec["strategy"] == "OldestEmulationVersion"
        assert server.spec["acquireTime"] == acquired
        assert server.spec["leaseTransitions"] == 0
        renewed = datetime.fromisoformat(server.spec["renewTime"])
        assert abs((datetime.now(UTC) - renewed).total_seconds()) < 60


async def test_a_leader_stops_when_another_replica_holds_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    async with leading(Line(server := LeaseServer())) as one:
        assert server.lease is not None
        server.write({**server.lease, "spec": {**server.spec, "holderIdentity": "other"}})
        await until(lambda: not one.holds(), seconds=2.5)
        assert one.holder == "other"
    assert "out of reach" not in caplog.text
    assert server.spec["holderIdentity"] == "other"  # a leader does not release the Lease of another


async def test_a_lease_that_was_deleted_does_not_bring_an_old_term_back() -> None:
    """A recreated Lease counts from 0 again, and the work at the start of a term must be done again."""
    line = Line(server := LeaseServer())
    async with leading(line) as one:
        for _ in range(3):
            before = one.term
            await cut_off(line, one)
            server.lease = None
            two = elector(Line(server), "two")
            async with running(two):
                await until(two.holds, seconds=20)
            server.lease = None
            line.dead = False
            await until(one.holds, seconds=20)
            assert server.spec["leaseTransitions"] == 0
            assert one.term > before


async def test_a_lease_recreated_for_the_leader_continues_its_term() -> None:
    async with leading(Line(server := LeaseServer())) as one:
        before = one.term
        server.lease = None
        await until(lambda: server.lease is not None, seconds=2.5)
        assert one.holds()
        assert one.term == before


async def test_a_candidate_for_a_deleted_lease_waits_for_an_unreachable_leader() -> None:
    """The candidate does not know when the leader renewed the Lease, so it waits as if the Lease existed."""
    line = Line(server := LeaseServer())
    async with leading(line) as one:
        line.dead = True
        server.lease = None
        late = elector(Line(server), "late")
        async with running(late):
            await until(lambda: not one.holds(), seconds=11)
            assert not late.holds()
            longest = TIMES.lease_seconds - TIMES.renew_deadline_seconds + TIMES.retry_seconds * 2
            await until(late.holds, seconds=longest)
            assert not one.holds()


async def test_the_election_survives_rejections_and_malformed_answers(caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    one = elector(Line(server), "one")
    answers = [
        *[Response(status_code=403, body=b'{"message": "leases is forbidden"}')] * 2,
        Response(status_code=500, body=b""),
        Response(status_code=200, body=b"<html>"),
        Response(status_code=200, body=b"[]"),
    ]
    handle = server.handle

    def failing(method: str, body: Mapping[str, Any] | None) -> Response:
        return answers.pop(0) if answers else handle(method, body)

    server.handle = failing  # type: ignore[method-assign]  # a server that comes to its senses
    async with running(one):
        await until(one.holds, seconds=14)
        assert not answers
    assert caplog.text.count("The Lease is out of reach") == 4, "the same is said once"


@pytest.mark.parametrize("seconds", [1, 3, 15, 60])
def test_durations_for_any_lease_have_the_ratios_of_the_defaults(seconds: int) -> None:
    times = LeaseTimes(seconds)
    assert times.renew_deadline_seconds / seconds == pytest.approx(TIMES.renew_deadline_seconds / TIMES.lease_seconds)
    retry_seconds = min(seconds, TIMES.lease_seconds) * TIMES.retry_seconds / TIMES.lease_seconds
    assert times.retry_seconds * 1.2 < times.renew_deadline_seconds < times.lease_seconds, "there are no two leaders"
    assert times.retry_seconds == pytest.approx(retry_seconds), "a leader looks at the Lease as often as by default"


async def test_a_new_term_begins_only_if_another_replica_led_in_between() -> None:
    line = Line(server := LeaseServer())
    async with leading(line) as one:
        first = one.term
        await cut_off(line, one)
        line.dead = False
        await until(one.holds, seconds=3)
        assert one.term == first
        line.dead = True
        two = elector(Line(server), "two")
        async with running(two):
            await until(two.holds, seconds=20)
            line.dead = False
        await until(one.holds, seconds=20)
        assert one.term > first


def test_the_boot_clock_is_monotonic_and_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    before = seconds_since_boot()
    assert seconds_since_boot() >= before > 0
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 7.0}.__getitem__)
    assert seconds_since_boot() == 7.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_there_are_never_two_leaders_and_finally_exactly_one(seed: int) -> None:
    """With all faults at once, there is hardly ever a leader, so half of the cases have fewer faults."""
    chance = random.Random(seed)
    seldom = 1.0 if chance.random() < 0.5 else 0.1

    async def scenario() -> None:
        server = LeaseServer()
        lines = [Line(server, chance if seldom == 1 or number == 0 else None) for number in range(3)]
        electors = [elector(line, f"candidate-{number}") for number, line in enumerate(lines)]
        tasks = [asyncio.create_task(each.run()) for each in electors]
        led = set()
        for _ in range(2000):
            await asyncio.sleep(0.1)
            leading = [each.identity for each in electors if each.holds()]
            assert len(leading) <= 1
            led.update(leading)
            if chance.random() < 0.01:
                number = chance.randrange(3)
                lines[number].dead = not lines[number].dead
            if chance.random() < 0.005 * seldom:
                server.lease = None
            if chance.random() < 0.005 * seldom:
                number = chance.randrange(3)
                tasks[number].cancel()
                await asyncio.wait([tasks[number]])
                electors[number] = elector(lines[number], f"candidate-{len(led)}-{chance.random()}")
                tasks[number] = asyncio.create_task(electors[number].run())
        assert led or seldom == 1
        for line in lines:
            line.chance, line.dead = None, False
        await asyncio.sleep(60)
        assert len([each for each in electors if each.holds()]) == 1
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    run_in_virtual_time(scenario())


def edited(server: LeaseServer, **changes: Any) -> None:
    """Change the Lease by hand, as with kubectl edit; None removes a field."""
    assert server.lease is not None
    spec = {name: value for name, value in {**server.spec, **changes}.items() if value is not None}
    server.write({**server.lease, "spec": spec})


@pytest.mark.parametrize(
    "changes",
    [{"holderIdentity": None}, {"holderIdentity": "two"}, {"holderIdentity": ""}, {"leaseDurationSeconds": 1}],
    ids=["no-holder", "another-holder", "empty-holder", "shorter"],
)
@pytest.mark.parametrize("is_reachable", [True, False])
async def test_no_replica_leads_at_once_after_the_lease_was_edited(
    changes: dict[str, Any], *, is_reachable: bool
) -> None:
    """The leader does not know of it before its next renewal, or for as long as it can't reach the API server."""
    line = Line(server := LeaseServer())
    one, two = elector(line, "one"), elector(Line(server), "two")
    async with running(one):
        await until(one.holds, seconds=0.1)
        async with running(two):
            await asyncio.sleep(TIMES.retry_seconds * 2)
            line.dead = not is_reachable
            edited(server, **changes)
            for _ in range(400):
                assert not (one.holds() and two.holds())
                await asyncio.sleep(0.1)
            assert one.holds() or two.holds()


async def test_a_former_leader_whom_a_user_writes_into_the_lease_begins_a_new_term() -> None:
    """Another one led in between: what it did must be read again."""
    line = Line(server := LeaseServer())
    async with leading(line) as one:
        before = one.term
        await cut_off(line, one)
        other = Line(server)
        async with running(two := elector(other, "two")):
            await until(two.holds, seconds=20)
            line.dead = False
            await asyncio.sleep(5)
            edited(server, holderIdentity="one")
            other.dead = True
            await until(one.holds, seconds=20)
            assert one.term > before


async def test_a_candidate_whom_a_user_writes_into_the_lease_releases_nothing_at_its_end() -> None:
    async with leading(Line(server := LeaseServer())) as one:
        async with running(elector(Line(server), "two")):
            await asyncio.sleep(5)
            edited(server, holderIdentity="two")
        assert server.spec["holderIdentity"] == "two"
        assert one.holds()


@pytest.mark.parametrize("is_reachable", [True, False])
async def test_a_candidate_for_a_deleted_lease_waits_for_the_duration_of_the_earlier_one(*, is_reachable: bool) -> None:
    """Its own Lease would be shorter: they are of two versions, or were started with other options."""
    line = Line(server := LeaseServer())
    async with leading(line, times=LeaseTimes(120)) as one, running(two := elector(Line(server), "two")):
        await asyncio.sleep(10)
        line.dead = not is_reachable
        for number in range(2000):
            if number % 50 == 0 and number < 200:
                server.lease = None
            assert not (one.holds() and two.holds())
            await asyncio.sleep(0.1)
        assert one.holds() is is_reachable
        assert two.holds() is not is_reachable


async def test_a_lease_that_its_leader_renews_for_a_shorter_time_is_waited_for_as_long_as_it_says_now() -> None:
    line = Line(LeaseServer())
    async with leading(line, times=LeaseTimes(120)) as one, running(two := elector(Line(line.server), "two")):
        await asyncio.sleep(10)
        one.times = TIMES
        await asyncio.sleep(10)
        line.dead = True
        assert TIMES.renew_deadline_seconds < await until(two.holds, seconds=20)


async def test_a_new_candidate_with_a_shorter_lease_does_not_lead_beside_a_leader_whose_lease_was_deleted() -> None:
    """It has never seen how long the leader's Lease is. The leader notices the deletion in time."""
    async with leading(Line(server := LeaseServer()), times=LeaseTimes(120)) as one:
        await asyncio.sleep(10)
        server.lease = None
        async with running(two := elector(Line(server), "two", times=LeaseTimes(3))):
            for _ in range(300):
                assert one.holds()
                assert not two.holds()
                await asyncio.sleep(0.1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_edits_of_the_lease_by_users_never_make_two_leaders(seed: int) -> None:
    """Candidates have Leases of different durations, as with different options."""
    chance = random.Random(seed)
    leases = [chance.choice([3, 15, 40]) for _ in range(3)]

    async def scenario() -> None:
        server = LeaseServer()
        lines = [Line(server, chance if chance.random() < 0.3 else None) for _ in range(3)]
        electors = [
            elector(line, f"candidate-{number}", times=LeaseTimes(seconds))
            for number, (line, seconds) in enumerate(zip(lines, leases, strict=True))
        ]
        async with running(*electors):
            for _ in range(2000):
                await asyncio.sleep(0.1)
                assert sum(each.holds() for each in electors) <= 1
                if chance.random() < 0.01:
                    line = chance.choice(lines)
                    line.dead = not line.dead
                if server.lease is not None and server.spec.get("renewTime") and chance.random() < 0.02:
                    holder = chance.choice([None, "", "somebody", *(each.identity for each in electors)])
                    edited(server, holderIdentity=holder)
            for line in lines:
                line.chance, line.dead = None, False
            await asyncio.sleep(100)
            assert sum(each.holds() for each in electors) == 1

    run_in_virtual_time(scenario())


def test_times_are_written_in_the_format_of_the_api_server() -> None:
    """The API server answers 400 to a MicroTime without six decimal places."""

    async def scenario() -> None:
        async with leading(Line(server := LeaseServer())):
            for field in ("renewTime", "acquireTime"):
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", server.spec[field])

    with unittest.mock.patch("respread.kube.leadership.datetime", wraps=datetime) as clock:
        clock.now.return_value = datetime(2026, 11, 21, tzinfo=UTC)  # a whole second
        run_in_virtual_time(scenario())


async def test_a_lease_is_not_released_while_requests_are_in_progress() -> None:
    async with leading(Line(server := LeaseServer()), may_give_up=lambda: False) as one:
        assert one.holds()
    assert server.spec["holderIdentity"] == "one"
    assert not one.holds()


def election(place: Callable[[], ObjectKey | None], lines: Mapping[ObjectKey, Line], *, may_wait: bool) -> Election:
    clock = asyncio.get_running_loop().time
    return Election(
        lambda lease: Elector(lines[lease], lease, "one", clock=clock, is_first=lambda: True),
        place,
        may_wait=may_wait,
        changeover_seconds=TIMES.lease_seconds,
    )


async def test_an_operator_changes_to_the_lease_of_one_that_is_installed_when_nobody_can_lead_by_the_former() -> None:
    common, installed = (ObjectKey("respread", name) for name in ("common", "installed"))
    lines, place = {each: Line(LeaseServer()) for each in (common, installed)}, dict[str, ObjectKey]()
    one = election(lambda: place.get("it"), lines, may_wait=True)
    async with running(one):
        await asyncio.sleep(1)
        assert (one.holds(), one.term(), one.exclusive_seconds()) == (False, 0, 0)
        place["it"] = common
        await until(one.holds, seconds=0.2)
        place.clear()
        await asyncio.sleep(5)
        assert (one.holds(), one.term()) == (True, 1)
        assert TIMES.renew_deadline_seconds < one.exclusive_seconds() <= TIMES.lease_seconds
        place["it"] = installed
        await until(lambda: not one.holds(), seconds=0.6)
        assert "holderIdentity" not in lines[common].server.spec
        assert await until(one.holds, seconds=16) >= TIMES.lease_seconds - 0.1
        assert (one.term(), lines[installed].server.spec["holderIdentity"]) == (2, "one")
    assert "holderIdentity" not in lines[installed].server.spec


@pytest.mark.parametrize("may_wait", [True, False])
async def test_missing_permissions_to_the_lease_end_an_operator_outside_of_a_cluster(*, may_wait: bool) -> None:
    line = Line(LeaseServer())
    line.server.handle = lambda *_: line.server.no(403, "Forbidden")  # type: ignore[method-assign]
    running = asyncio.create_task(election(lambda: LEASE, {LEASE: line}, may_wait=may_wait).run())
    await asyncio.wait([running], timeout=60)
    assert running.done() is not may_wait
    running.cancel()
    with pytest.raises(asyncio.CancelledError if may_wait else AccessError):
        await running
