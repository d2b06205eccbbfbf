"""Statuses and records are written when they differ, statuses not too often, and only by the leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import msgspec
import pytest
from aiohttp import web

from respread.api.policy import ClusterPolicySpec, Policy, PolicySpec
from respread.api.record import NOTHING, FailuresInARow, Recorded, decode_record
from respread.api.status import PolicyStatus, Summary
from respread.controller.records.status_writer import (
    ARRIVAL_SECONDS,
    GATHER_SHARE,
    LEAST_INTERVAL_SECONDS,
    MOST_AT_ONCE,
    MOST_GATHER_SECONDS,
    ExclusiveRequests,
    FoundStatus,
    StatusWriter,
    Wanted,
)
from respread.kube.requests import Requests
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping, hanging
from tests.virtual_time import until

ALL = Policy(kind="ClusterRebalancePolicy", object_name="all", uid="uid-all", spec=ClusterPolicySpec())
OWN = Policy(kind="RebalancePolicy", namespace="shop", object_name="own", uid="uid-own", spec=PolicySpec())
GROUP = "/apis/respread.dev/v1alpha1"
NONE = PolicyStatus()


def evicted(count: int) -> PolicyStatus:
    return PolicyStatus(summary=Summary(evicted=count))


def counted(count: int) -> Recorded:
    return Recorded(failures_in_a_row=FailuresInARow(pauses=count))


class Writing:
    """A writer, the clock, and its API server."""

    def __init__(self, requests: Requests, stub: StubApiServer) -> None:
        self.stub = stub
        self.seconds = 100.0
        self.exclusive_seconds = 10.0
        self.remembered: dict[str, Recorded] = {}
        """The content of each policy's record at the time of sending."""
        self.writer = StatusWriter(
            requests,
            ExclusiveRequests(requests, lambda: self.seconds, lambda: self.exclusive_seconds),
            lambda: self.seconds,
            completed=lambda policy, record: self.remembered.get(policy.name, record),
        )

    async def write(self, *wanted: tuple[Policy, PolicyStatus]) -> float:
        statuses = (
            Wanted(policy, status, self.remembered.get(policy.name, NOTHING), NONE) for policy, status in wanted
        )
        return await self.writer.write(statuses, self.seconds)

    async def ensure(self, *wanted: tuple[Policy, Recorded]) -> set[str]:
        self.remembered.update((policy.name, record) for policy, record in wanted)
        return await self.writer.ensure((policy, NONE) for policy, _ in wanted)

    @property
    def written(self) -> list[int]:
        """The number of evictions in each received status."""
        return [body["status"]["summary"]["evicted"] for body in self.stub.bodies if "status" in body]

    @property
    def recorded(self) -> list[int]:
        """The number of pauses in each received record."""
        records = [decode_record(body["record"]) for body in self.stub.bodies if "record" in body]
        return [each.failures_in_a_row.pauses for each in records]


@asynccontextmanager
async def serving(answer: Answering | None = None) -> AsyncIterator[Writing]:
    """Return a writer to an API server that gives this answer to every write."""
    stub = StubApiServer()
    stub.on("PATCH", "/status", answer or answering({}))
    for method in ("POST", "PATCH"):
        stub.on(method, "", answer or answering({}))
    async with stub.running() as requests:
        yield Writing(requests, stub)


async def test_a_status_is_written_only_to_the_object_with_its_uid() -> None:
    async with serving() as writing:
        await writing.write((ALL, evicted(1)), (OWN, evicted(2)))
    assert sorted(writing.stub.requests) == [
        ("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status"),
        ("PATCH", f"{GROUP}/namespaces/shop/rebalancepolicies/own/status"),
    ]
    uids: list[Any] = [body["metadata"] for body in writing.stub.bodies]
    assert {each["uid"] for each in uids} == {"uid-all", "uid-own"}


async def test_a_thousand_policies_of_one_tenant_delay_neither_the_loop_nor_other_statuses() -> None:
    many = [
        (msgspec.structs.replace(OWN, namespace="greedy", object_name=f"own-{number}", uid=f"uid-{number}"), evicted(1))
        for number in range(1_000)
    ]
    reconciles = 0
    async with serving() as writing:
        again_at = writing.seconds
        while again_at < inf:
            assert again_at <= writing.seconds  # the remaining statuses are due already
            before = len(writing.stub.requests)
            again_at = await writing.write(*many, (OWN, evicted(2)), (ALL, evicted(3)))
            assert len(writing.stub.requests) - before <= MOST_AT_ONCE
            reconciles += 1
            assert {2, 3} <= set(writing.written)  # with the first ones
    assert len(writing.stub.requests) == 1_002
    assert reconciles > 2


async def test_a_status_that_differs_is_written_at_most_every_few_seconds_or_at_once_if_it_was_wrong() -> None:
    async with serving() as writing:
        assert await writing.write((ALL, NONE)) == inf
        assert await writing.write((ALL, evicted(1))) == inf
        writing.seconds += 60
        assert await writing.write((ALL, evicted(1))) == inf  # the watch has not shown it yet
        assert await writing.write((ALL, evicted(2))) == inf
        assert writing.written == [1, 2]
        writing.seconds += 1
        assert await writing.write((ALL, evicted(3))) == 160 + LEAST_INTERVAL_SECONDS
        assert [writing.writer.any_due(each, 161) for each in ([ALL], [ALL, OWN])] == [False, True]
        writing.seconds += LEAST_INTERVAL_SECONDS - 1
        assert writing.writer.any_due([ALL], writing.seconds)
        assert await writing.write((ALL, evicted(4))) == inf
        writing.writer.hurry(["all"])
        await writing.write((ALL, evicted(5)))
        await writing.write((ALL, evicted(6)))
        assert writing.written == [1, 2, 4, 5]


async def test_a_record_is_written_at_once_if_required() -> None:
    async with serving() as writing:
        await writing.write((ALL, evicted(1)))
        assert await writing.ensure((ALL, counted(2)), (OWN, NOTHING)) == {"all", "shop/own"}
        assert (writing.written, writing.recorded) == ([1], [2])


async def test_a_status_read_at_the_start_of_a_term_has_precedence_over_the_watch() -> None:
    async with serving() as writing:
        writing.writer.begin([FoundStatus("uid-all", evicted(7))])
        assert writing.writer.known(ALL, NONE) == evicted(7)
        assert writing.writer.known(msgspec.structs.replace(ALL, uid="recreated"), NONE) == NONE
        await writing.write((ALL, evicted(7)))
        assert writing.written == []


@pytest.mark.parametrize(
    "answer",
    [answering({"message": "no"}, status=500), answering({"message": "no"}, status=409), dropping, hanging],
    ids=["500", "409", "no answer", "silence"],
)
async def test_a_status_whose_write_was_not_confirmed_is_written_again(
    answer: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(answer) as writing:
        writing.exclusive_seconds = 3.0 if answer is hanging else 60.0  # the timeout of the request
        for number in (1, 2):
            assert await writing.write((ALL, evicted(1))) == writing.seconds + LEAST_INTERVAL_SECONDS
            assert writing.writer.known(ALL, NONE) == NONE
            assert len(writing.stub.requests) == number
            writing.seconds += LEAST_INTERVAL_SECONDS
    assert "Status not written" in caplog.text


@pytest.mark.parametrize(("answer", "told"), [(answering({"message": "no"}, status=500), [1]), (dropping, [])])
async def test_a_status_tells_why_its_record_is_not_written_but_not_to_a_server_that_does_not_answer(
    answer: Answering, told: list[int]
) -> None:
    async with serving() as writing:
        writing.stub.on("POST", "", answer)
        writing.remembered = {"all": counted(1)}
        await writing.write((ALL, evicted(1)))
        assert writing.written == told
        await writing.write((OWN, evicted(2)))
        assert writing.written == [*told, 2], "its record is as it should be"


async def test_a_write_to_a_deleted_policy_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(answering({"message": "not found"}, status=404)) as writing:
        await writing.write((ALL, evicted(1)))
    assert caplog.text == ""


async def test_a_replica_that_no_longer_leads_writes_nothing() -> None:
    """After a freeze, the next leader may have written its record."""
    async with serving() as writing:
        writing.exclusive_seconds = 0.0
        assert await writing.ensure((ALL, counted(1))) == set()
        await writing.write((ALL, evicted(1)))
        assert writing.stub.requests == []


def slowly(at_once: list[int]) -> Answering:
    """Return an answer that takes a while; it counts how many are on their way now, and the most that ever were."""

    async def answer(_: web.Request) -> web.StreamResponse:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0.1)
        at_once[0] -= 1
        return web.json_response({})

    return answer


async def test_only_a_few_statuses_are_written_at_a_time() -> None:
    at_once = [0, 0]
    async with serving(slowly(at_once)) as writing:
        many = [msgspec.structs.replace(ALL, object_name=f"p-{number}", uid=f"{number}") for number in range(30)]
        assert len(await writing.ensure(*((each, counted(1)) for each in many))) == 30
    assert 2 <= at_once[1] <= 8


async def test_concurrent_callers_share_a_write_and_newer_statuses_are_not_overwritten() -> None:
    async with serving() as writing:
        writing.remembered = {"all": counted(2)}
        first, second = (asyncio.create_task(writing.writer.ensure([(ALL, NONE)])) for _ in range(2))
        await asyncio.sleep(0)  # both callers wait
        assert await first == await second == {"all"}
        assert writing.recorded == [2]
        asking = asyncio.create_task(writing.writer.ensure([(ALL, NONE)]))
        await asyncio.sleep(0)
        writing.seconds += LEAST_INTERVAL_SECONDS
        await writing.write((ALL, evicted(3)))
        assert await asking == {"all"}
        assert (writing.recorded, writing.written) == ([2], [3])
        assert writing.writer.known(ALL, NONE) == evicted(3)


@pytest.mark.parametrize(("took_seconds", "gathered_seconds"), [(0.15, 0.15 * GATHER_SHARE), (9, MOST_GATHER_SECONDS)])
async def test_slow_writes_gather_more_changes_for_the_next_one(took_seconds: float, gathered_seconds: float) -> None:
    here = list[Writing]()

    async def slowly(_: web.Request) -> web.StreamResponse:
        here[0].seconds += took_seconds
        return web.json_response({})

    async with serving(slowly) as writing:
        here.append(writing)
        assert await writing.ensure((ALL, counted(1))) == {"all"}
        writing.remembered = {"all": counted(2)}
        started = asyncio.get_running_loop().time()
        first = asyncio.create_task(writing.writer.ensure([(ALL, NONE)]))
        await asyncio.sleep(gathered_seconds / 3)
        second = asyncio.create_task(writing.writer.ensure([(ALL, NONE)]))
        assert await first == await second == {"all"}
        assert gathered_seconds <= asyncio.get_running_loop().time() - started < gathered_seconds + 5
        assert writing.recorded == [1, 2]


async def test_a_due_status_is_written_with_the_next_record_without_waiting_and_not_overwritten() -> None:
    async with serving() as writing:
        asking = asyncio.create_task(writing.ensure((ALL, counted(1))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await writing.write((ALL, evicted(2)))
        assert writing.written == []
        assert await asking == {"all"}
        assert (writing.recorded, writing.written) == ([1], [2])
        writing.seconds += LEAST_INTERVAL_SECONDS
        await writing.write((ALL, evicted(2)))
        assert await writing.writer.ensure([(ALL, NONE)]) == {"all"}
        assert (writing.recorded, writing.written) == ([1], [2])
        assert writing.writer.known(ALL, NONE) == evicted(2)


async def test_a_status_whose_write_failed_is_written_again() -> None:
    async with serving() as writing:
        writing.stub.on("PATCH", "/status", answering({"message": "no"}, status=500))
        asking = asyncio.create_task(writing.ensure((ALL, counted(1))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        due = await writing.write((ALL, evicted(2)))
        assert due == writing.seconds + LEAST_INTERVAL_SECONDS
        assert await asking == set()
        writing.stub.on("PATCH", "/status", answering({}))
        writing.seconds = due
        await writing.write((ALL, evicted(2)))
        assert (writing.recorded, writing.written) == ([1], [2, 2])


async def test_requests_for_one_policy_are_sent_one_after_another() -> None:
    """The last request arrives last, so an older request overwrites nothing newer."""
    at_once = [0, 0]
    async with serving(slowly(at_once)) as writing:
        writing.writer.hurry(["all"])
        for count in range(1, 4):
            asking = asyncio.create_task(writing.ensure((ALL, counted(count))))
            await asyncio.sleep(0.05)
        await asyncio.gather(asking, writing.write((ALL, evicted(9))))
        assert len(writing.stub.requests) > 1
    assert at_once[1] == 1


async def test_before_the_end_all_statuses_are_written_after_what_was_begun() -> None:
    async with serving() as writing:
        await writing.write((ALL, evicted(1)), (OWN, evicted(1)))
        asking = asyncio.create_task(writing.writer.ensure([(ALL, NONE)]))
        await asyncio.sleep(0)
        await writing.writer.write_all(
            Wanted(policy, status, NOTHING, NONE) for policy, status in ((ALL, evicted(2)), (OWN, evicted(1)))
        )
        assert asking.done()
        assert writing.written == [1, 1, 2]  # the other status does not differ


@pytest.mark.parametrize(
    ("answer", "uncertain"),
    [(answering({}), False), (answering({"message": "no"}, status=500), False), (dropping, True), (hanging, True)],
    ids=["200", "500", "no answer", "silence"],
)
async def test_a_write_without_an_answer_may_still_arrive_for_some_time(answer: Answering, *, uncertain: bool) -> None:
    """The Lease is not released meanwhile, because the late write would overwrite the next leader's status."""
    async with serving(answer) as writing:
        assert not writing.writer.uncertain
        writing.exclusive_seconds = 0.2 if answer is hanging else 60.0  # the timeout of the request
        await writing.write((ALL, evicted(1)))
        assert writing.writer.uncertain == uncertain
        writing.seconds += ARRIVAL_SECONDS
        assert not writing.writer.uncertain


@pytest.mark.parametrize("lost", [dropping, answering({"message": "no"}, status=500)], ids=["no answer", "500"])
async def test_a_status_is_written_again_if_another_may_have_arrived_meanwhile(lost: Answering) -> None:
    async with serving() as writing:
        await writing.write((ALL, evicted(1)))
        writing.stub.on("PATCH", "/status", lost)
        writing.seconds += 60
        await writing.write((ALL, evicted(2)))
        writing.stub.on("PATCH", "/status", answering({}))
        writing.seconds += 60
        await writing.write((ALL, evicted(1)))
        assert writing.written == [1, 2, 1]


async def test_a_write_that_is_cancelled_may_still_arrive() -> None:
    async with serving(hanging) as writing:
        task = asyncio.create_task(writing.write((ALL, evicted(1))))
        await until(lambda: writing.stub.requests)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert writing.writer.uncertain
