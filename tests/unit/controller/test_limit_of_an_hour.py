"""Exactly the evictions that the limit of an hour allows are made, even if leaders crash and requests are lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import accumulate
from random import Random
from typing import Any

import pytest

from respread.kube.requests import NoResponseError, Response
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.properties.instances import factor
from tests.unit.controller.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time

PER_HOUR = 3
LIMITS = {
    "perHour": PER_HOUR,
    **dict.fromkeys(("inFlight", "inFlightPerNamespace", "inFlightPerNode"), 10),
    "inFlightPerWorkload": "100%",
}
LATE_SECONDS = 150.0
"""The maximum delay of a request: an API server closes a silent connection after 90 s and a request after 60 s."""


class Unreliable(SimulatedCluster):
    """For some time, evictions are lost, or arrive long after their sender has given up or was killed."""

    def __init__(self, chance: Random, *, lost: float, late: float, for_seconds: float) -> None:
        super().__init__(6, limits=LIMITS)
        self._chance = chance
        self._lost, self._late, self._for_seconds = lost, late, for_seconds
        self._arrived: set[str] = set()
        self._working: set[asyncio.Task[Response]] = set()
        """The requests that the API server processes or has processed."""
        self._record: str | None = None

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        """Answer a request, or lose it."""
        if path.endswith("/eviction"):
            return await self._perhaps(names["name"])
        if method == "GET" and path.endswith("/clusterrebalancepolicyrecords"):
            stored = {"metadata": {"name": "uid-default"}, "policy": "default", "record": self._record}
            items = [] if self._record is None else [stored]
            return Response(status_code=200, body=json.dumps({"metadata": {}, "items": items}).encode())
        answer = await super().answer(method, path, names, **options)
        if (record := (options.get("body") or {}).get("record")) is not None:
            self._record = record
        return answer

    async def _perhaps(self, name: str) -> Response:
        fate = self._chance.random() if asyncio.get_running_loop().time() < self._for_seconds else 1.0
        if fate >= self._lost + self._late:
            return await self._arrive(name)
        if fate >= self._lost:
            self._tasks.add(asyncio.create_task(self._arrive_late(name, self._chance.uniform(0, LATE_SECONDS))))
        await asyncio.sleep(10)
        raise NoResponseError("it takes too long", sent=True)

    async def _arrive_late(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._arrive(name)

    async def _arrive(self, name: str) -> Response:
        if name in self._arrived:
            return Response(status_code=404, body=json.dumps({"details": {"kind": "pods"}}).encode())
        self._arrived.add(name)
        # A request that has arrived is processed, also if its sender is killed.
        return await asyncio.shield(self._keep(asyncio.create_task(self._evict(name))))

    def _keep(self, task: asyncio.Task[Response]) -> asyncio.Task[Response]:
        self._working.add(task)
        return task

    async def lead(self, seconds: float) -> None:
        """Run an operator, and kill it after some time."""
        self.parts = Parts()
        process = Process(self)
        others = asyncio.all_tasks()
        running = asyncio.create_task(self.control_loop(process).run())
        await asyncio.sleep(seconds)
        assert not running.done()
        process.is_alive = False
        killed = asyncio.all_tasks() - others - self._tasks - self._working
        for task in killed:
            task.cancel()
        await asyncio.gather(*killed, return_exceptions=True)


class Slow(Unreliable):
    """Each late request arrives as late as one can."""

    async def _arrive_late(self, name: str, seconds: float) -> None:
        del seconds
        await super()._arrive_late(name, LATE_SECONDS)


class Process(FakeRequests):
    """The requests of a process, until it is killed."""

    def __init__(self, cluster: Unreliable) -> None:
        super().__init__()
        self.is_alive = True
        self._cluster = cluster

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        """Send a request to the cluster."""
        if not self.is_alive:
            raise NoResponseError("killed", sent=False)
        return await self._cluster.answer(method, path, names, **options)


async def evicted(cluster: Unreliable, *seconds: float) -> int:
    """Run operators one after another, each for a time, and return the number of evicted pods."""
    for each in seconds:
        await cluster.lead(each)
    return len(cluster.evicted)


@pytest.mark.parametrize("killed", [(), (40.0,), (0.5, 0.5)])
async def test_an_eviction_that_never_arrived_does_not_count_once_that_is_certain(killed: tuple[float, ...]) -> None:
    cluster = Unreliable(Random(1), lost=1.0, late=0.0, for_seconds=100.0)
    assert await evicted(cluster, *killed, 1500.0) == PER_HOUR


@pytest.mark.parametrize("seed", range(12 * factor()))
async def test_no_more_and_no_fewer_evictions_are_made_than_the_limit_of_an_hour_allows(seed: int) -> None:
    chance = Random(seed)
    lost, late = chance.choice([(0.9, 0.1), (0.5, 0.5), (0.3, 0.3), (0.0, 1.0), (0.0, 0.0)])
    cluster = Unreliable(chance, lost=lost, late=late, for_seconds=chance.choice([60.0, 250.0]))
    killed = [chance.choice([0.2, 0.35, 0.5, 1.0, 6.0]) for _ in range(chance.randrange(5))]
    assert await evicted(cluster, *killed, 2000.0) == PER_HOUR


@pytest.mark.parametrize("killed", [(), (0.5,)])
@pytest.mark.parametrize("for_seconds", [1.0, 40.0, 80.0])
async def test_evictions_that_arrive_as_late_as_possible_count(killed: tuple[float, ...], for_seconds: float) -> None:
    cluster = Slow(Random(1), lost=0.0, late=1.0, for_seconds=for_seconds)
    assert await evicted(cluster, *killed, 1500.0) == PER_HOUR


NEEDED = {"aaabc": 1, "aaaa": 2, "aaaaa": 3, "aaaaaa": 4}
"""The fewest evictions for a workload with pods in these zones."""


async def restored(zones: list[str], per_hour: int, quiet_period: str) -> tuple[int, int]:
    """Return how many workloads were restored within the hour, and the number of evictions."""
    limits = {**LIMITS, "perHour": per_hour, "inFlight": 3, "inFlightPerNamespace": 3, "inFlightPerWorkload": 1}
    cluster = SimulatedCluster(len(zones), limits=limits, zones=zones)
    cluster.policy["spec"]["quietPeriod"] = quiet_period
    await cluster.run(900)
    return len(zones) - cluster.violated, len(cluster.evicted)


@pytest.mark.parametrize(
    ("zones", "per_hour", "quiet_period", "expected"),
    [
        (["aaaa"] * 3, 4, "1ms", (2, 4)),
        (["aaaa"] * 4, 5, "1ms", (2, 5)),  # the fifth eviction helps in the next hour
        (["aaaaaa", "aaaa", "aaabc"], 3, "1ms", (2, 3)),
        (["aaaaaa"] * 2, 1, "1ms", (0, 1)),
        (["aaaaaa", "aaaaa", "aaaaaa"], 8, "20s", (2, 8)),  # a plan leaves out those that are begun
    ],
)
async def test_groups_that_are_begun_are_finished_before_others_begin(
    zones: list[str], per_hour: int, quiet_period: str, expected: tuple[int, int]
) -> None:
    assert await restored(zones, per_hour, quiet_period) == expected


@pytest.mark.parametrize("seed", range(10 * factor()))
async def test_as_many_groups_are_restored_as_the_limit_of_an_hour_allows(seed: int) -> None:
    chance = Random(seed)
    zones = [chance.choice(list(NEEDED)) for _ in range(chance.randrange(2, 8))]
    per_hour = chance.randrange(1, sum(NEEDED[each] for each in zones) + 1)
    best = sum(together <= per_hour for together in accumulate(sorted(NEEDED[each] for each in zones)))
    found, evictions = await restored(zones, per_hour, chance.choice(["1ms", "20s"]))
    assert found == best
    assert evictions <= per_hour
