"""A loop takes steps when it is woken, at the time that a step requested, and again after a failed step."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from respread.kube.retry import FAILURE_SECONDS, WokenLoop

pytestmark = pytest.mark.virtual_time


class Steps:
    """A loop, and the time of each step."""

    def __init__(self, *waits: float | Exception) -> None:
        self.times: list[float] = []
        self.failures = 0
        self.loop = WokenLoop(self._failed)
        self.step_seconds = 0.0
        self._waits = iter(waits)

    def _failed(self) -> None:
        self.failures += 1

    async def step(self) -> float:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.step_seconds)
        wait = next(self._waits, inf)
        if isinstance(wait, Exception):
            raise wait
        return wait

    def run(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.loop.run(self.step))


async def test_the_next_step_is_taken_at_the_requested_time() -> None:
    steps = Steps(2.0, 0.0, 3.0)
    running = steps.run()
    await asyncio.sleep(1000)
    steps.loop.stop()
    await running
    assert [each - steps.times[0] for each in steps.times] == pytest.approx([0, 2, 2, 5], abs=0.01)


async def test_a_loop_can_be_woken_between_steps_and_during_one() -> None:
    steps = Steps()
    running = steps.run()
    await asyncio.sleep(1)
    steps.loop.wake()
    steps.loop.wake()
    steps.step_seconds = 5.0
    await asyncio.sleep(1)
    assert len(steps.times) == 2
    steps.loop.wake()
    await asyncio.sleep(1)
    assert len(steps.times) == 2, "the second is still being taken"
    await asyncio.sleep(5)
    assert len(steps.times) == 3
    steps.loop.stop()
    await running


async def test_a_failed_step_is_reported_and_repeated() -> None:
    steps = Steps(ValueError("a bug"), RuntimeError("another"))
    running = steps.run()
    await asyncio.sleep(1)
    assert (len(steps.times), steps.failures) == (1, 1)
    steps.loop.wake()
    await asyncio.sleep(1)
    assert (len(steps.times), steps.failures) == (2, 2)
    await asyncio.sleep(FAILURE_SECONDS)
    assert (len(steps.times), steps.failures) == (3, 2)
    assert not running.done()
    steps.loop.stop()
    await running


async def test_no_step_follows_a_stop() -> None:
    steps = Steps(0.5)
    running = steps.run()
    await asyncio.sleep(0.1)
    steps.loop.stop()
    await asyncio.sleep(1)
    assert running.done()
    assert len(steps.times) == 1
