"""What is read for several moves is valid from the moment when reading it began."""

from __future__ import annotations

import asyncio

import pytest

from respread.api.reasons import Reason
from respread.eviction.owners.reading import FAILED_SECONDS, BatchReadings
from respread.planning.held import Held
from tests.virtual_time import run_in_virtual_time


@pytest.mark.parametrize(("takes", "waits", "reads"), [(0.5, 1.0, 1), (0.5, 1.5, 2), (2.5, 0.0, 2)])
def test_a_reading_is_as_old_as_its_request(takes: float, waits: float, reads: int) -> None:
    read: list[int] = []

    async def slowly() -> int:
        await asyncio.sleep(takes)
        read.append(len(read))
        return len(read)

    async def scenario() -> None:
        readings: BatchReadings[int] = BatchReadings(asyncio.get_running_loop().time, 2.0)
        assert await readings.get("web", slowly) == 1
        await asyncio.sleep(waits)
        assert readings.known("web") == (1 if reads == 1 else None)
        assert await readings.get("web", slowly) == reads

    run_in_virtual_time(scenario())


def test_a_failure_serves_for_a_moment() -> None:
    failed: list[float] = []

    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        readings: BatchReadings[int] = BatchReadings(now, 2.0)

        async def fail() -> Held:
            await asyncio.sleep(5)
            failed.append(now())
            return Held(Reason.API_UNAVAILABLE, "no")

        first, second = await asyncio.gather(readings.get("web", fail), readings.get("web", fail))
        assert first is second
        assert readings.known("web") is None
        await asyncio.sleep(FAILED_SECONDS)
        assert await readings.get("web", fail) is not first

    run_in_virtual_time(scenario())
    assert len(failed) == 2
