"""Steps that share a controller are made one after another, and others at the same time."""

from __future__ import annotations

import asyncio

import pytest

from respread.cluster.meta import OwnerReference
from respread.controller.lanes import AT_ONCE, BACKLOG_SECONDS, Lanes
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, move
from tests.worlds import pod


def move_of(name: str, app: str) -> Move:
    return move(pod(name, "a1", SPEC, controller=OwnerReference("apps/v1", "ReplicaSet", app, f"uid-{app}")))


@pytest.mark.virtual_time
async def test_steps_of_one_controller_wait_for_each_other(caplog: pytest.LogCaptureFixture) -> None:
    made: list[tuple[str, int]] = []
    now = asyncio.get_running_loop().time
    lanes, started = Lanes(now), now()

    async def life(step: tuple[Move, ...]) -> None:
        async with lanes.turn(step):
            made.append((step[0].pod.name, round(now() - started)))
            await asyncio.sleep(2)
        if step[0].pod.name == "cache-1":
            raise ZeroDivisionError

    steps = [
        (move_of("web-1", "web"),),
        (move_of("web-2", "web"), move_of("db-1", "db")),
        (move_of("db-2", "db"),),
        (move_of("cache-1", "cache"),),
    ]
    await asyncio.wait([lanes.start(step, life(step)) for step in steps])
    begun, not_begun = (lanes.start(step, life(step)) for step in (steps[2], steps[0]))
    await lanes.aclose(lambda step: step is steps[2])
    assert (begun.result(), not_begun.cancelled()) == (None, True)
    assert made == [("web-1", 0), ("cache-1", 0), ("web-2", 2), ("db-2", 4), ("db-2", 6)]
    assert ["An eviction failed" in each.getMessage() for each in caplog.records] == [True]


@pytest.mark.virtual_time
async def test_the_longer_requests_take_the_fewer_moves_are_chosen_ahead() -> None:
    lanes, step, room = Lanes(asyncio.get_running_loop().time), (move_of("web-1", "web"), move_of("db-1", "db")), []
    assert lanes.room("default") == 120, "as if each took a second"
    for waits in ((4, 8), (8,), (0,)):
        with lanes.under_way(step):
            for seconds in waits:
                async with lanes.place(step):
                    await asyncio.sleep(seconds)
                before = lanes.room("default")
                with lanes.under_way(step[:1]):
                    assert lanes.room("default") == before - 1
                room.append(lanes.room("default") + len(step))
    assert room == pytest.approx([AT_ONCE * (1 + BACKLOG_SECONDS / seconds) for seconds in (4, 4.8, 8, 0.001)], abs=1)
