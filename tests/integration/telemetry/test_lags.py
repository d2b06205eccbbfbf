"""The lag metrics of a real operator, with an API server that sends more than it can process."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp

from bench.latency import Operator
from bench.latency_world import World

EVENTS = 20_000
POLL_SECONDS = 0.05
LONGEST_SECONDS = 120


class Seen(NamedTuple):
    """The metrics at some moment."""

    at: float
    watch_lag_seconds: float
    decision_lag_seconds: float
    events: float


async def look(session: aiohttp.ClientSession, address: str) -> Seen:
    async with session.get(f"{address}/metrics") as response:
        text = await response.text()

    def value(series: str) -> float:
        found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
        assert found is not None, series
        return float(found[1])

    return Seen(
        time.monotonic(),
        value('respread_watch_lag_seconds{kind="pods"}'),
        value("respread_decision_lag_seconds"),
        value("respread_event_apply_duration_seconds_count"),
    )


async def until_nothing_is_left(session: aiohttp.ClientSession, address: str, events: float) -> list[Seen]:
    """Return the observations until this many events were applied and nothing was waiting."""
    seen: list[Seen] = []
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            seen.append(await look(session, address))
            last = seen[-1]
            if last.events >= events and not last.watch_lag_seconds and not last.decision_lag_seconds:
                return seen
            await asyncio.sleep(POLL_SECONDS)


async def until_no_more_is_sent(world: World) -> None:
    """Wait until the API server has sent all that a connection holds whose client reads nothing."""
    unsent = -1
    async with asyncio.timeout(LONGEST_SECONDS):
        while unsent != (unsent := world.server.unsent("pods")):  # noqa: ASYNC110 - the bench's server has no event
            await asyncio.sleep(20 * POLL_SECONDS)


async def test_the_lag_metrics_show_how_far_the_operator_is_behind(tmp_path: Path) -> None:
    world = World(pods=900, namespaces=1, seed=1)
    world.fill()
    async with world.server.running() as server, aiohttp.ClientSession() as session:
        operator = Operator(server, tmp_path)
        try:
            address = await operator.ready(session)
            fresh = await until_nothing_is_left(session, address, 0)
            operator.process.send_signal(signal.SIGSTOP)
            changes = world.changes(range(world.apps))
            for _ in range(EVENTS):
                next(changes)
            await until_no_more_is_sent(world)
            continued = time.monotonic()
            operator.process.send_signal(signal.SIGCONT)
            seen = await until_nothing_is_left(session, address, fresh[-1].events + EVENTS)
        finally:
            operator.process.terminate()
            await asyncio.to_thread(operator.process.wait, 30)
    # What fills a connection waits for the operator alone, however slow this process is in sending the rest.
    assert max(each.watch_lag_seconds for each in seen) > 2 * POLL_SECONDS, "too few events for such a machine"
    assert all(each.watch_lag_seconds < each.at - continued for each in seen)
    assert max(each.decision_lag_seconds for each in seen) > 0
