"""Statuses are written when they change and not too often; what evictions depend on is written at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kubernetes.aio.client import ApiClient

from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.status import PolicyStatus
from respread.eviction.requests import NoResponseError, Requests, Response
from respread.handlers.status_writer import LEAST_INTERVAL_SECONDS, StatusWriter, Wanted


class Recording(Requests):
    """Remembers what was written, or fails to."""

    def __init__(self) -> None:
        super().__init__(ApiClient.__new__(ApiClient))  # never used: nothing leaves this process
        self.written: list[tuple[str, int]] = []
        self.fails = False

    async def send(self, method: Any, path: str, names: Any, **options: Any) -> Response:
        assert method == "PATCH"
        assert path.endswith("/clusterrebalancepolicies/{name}/status")
        if self.fails:
            raise NoResponseError("not now", sent=True)
        self.written.append((names["name"], options["body"]["status"]["observedGeneration"]))
        return Response(status_code=200, body=b"{}")


class World:
    """A writer, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.requests = Recording()
        self.writer = StatusWriter(self.requests, lambda: self.now)

    @property
    def generations(self) -> list[int]:
        """What was written, one after another."""
        return [generation for _, generation in self.requests.written]


def wanted(generation: int, name: str = "default") -> Wanted:
    policy = Policy(kind="ClusterRebalancePolicy", object_name=name, uid=f"uid-{name}", spec=ClusterPolicySpec())
    return Wanted(policy, PolicyStatus(observed_generation=generation), PolicyStatus())


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(World())

    asyncio.run(run())


def test_a_status_is_written_when_it_changes_and_not_too_often() -> None:
    async def scenario(world: World) -> None:
        assert await world.writer.write([wanted(1)]) is None
        assert await world.writer.write([wanted(1)]) is None
        assert await world.writer.write([wanted(2)]) == 100 + LEAST_INTERVAL_SECONDS
        assert world.generations == [1]
        world.now += LEAST_INTERVAL_SECONDS
        assert await world.writer.write([wanted(2)]) is None
        assert world.generations == [1, 2]

    play(scenario)


def test_what_something_depends_on_is_written_at_once_and_holds_up_no_other() -> None:
    async def scenario(world: World) -> None:
        await world.writer.write([wanted(1)])
        for generation in (2, 3):
            assert await world.writer.ensure([wanted(generation)]) == {"default"}
        assert await world.writer.ensure([wanted(3)]) == {"default"}  # it is there already
        assert world.generations == [1, 2, 3]
        world.now += LEAST_INTERVAL_SECONDS
        await world.writer.write([wanted(4)])
        assert world.generations == [1, 2, 3, 4]

    play(scenario)


def test_who_depends_on_it_learns_that_it_could_not_be_written() -> None:
    async def scenario(world: World) -> None:
        world.requests.fails = True
        assert await world.writer.ensure([wanted(1)]) == set()
        world.requests.fails = False
        assert await world.writer.ensure([wanted(1)]) == {"default"}

    play(scenario)


def test_what_is_hurried_is_written_the_next_time_and_only_that() -> None:
    async def scenario(world: World) -> None:
        await world.writer.write([wanted(1), wanted(1, "other")])
        world.writer.hurry(["default"])
        await world.writer.write([wanted(2), wanted(2, "other")])
        await world.writer.write([wanted(3), wanted(3, "other")])
        assert world.requests.written[2:] == [("default", 2)]

    play(scenario)
