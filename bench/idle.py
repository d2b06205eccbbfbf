"""bench/idle: the operator's cost while nothing changes except heartbeats.

    python -m bench.idle [--pods 30000] [--every 300] [--seconds 60]

A real `respread run` leads and follows an API server in memory (bench/served.py) with pods of spread Deployments, 20
on each node. Each node's status is written every 300 s with new heartbeat times, as kubelets do by default without
changes (`nodeStatusReportFrequency`; `--every 10` is the shortest usual setting). Respread does not watch the Leases
that kubelets renew every 10 s. CPU is user and system time of the whole process.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp

from bench.ingest_world import node
from bench.latency import Operator
from bench.latency_world import World
from bench.rows import Row, check, measured, parser_for, print_rows
from bench.sides import cost_of

IDLE_TARGET_PERCENT: Final = 0.3
MEMORY_TARGET_MIB: Final = 110
WARM_UP_SECONDS: Final = 10.0
"""The time from the first complete view of the cluster until the measurement, so that the operator leads and has
reconciled once."""
TICK_SECONDS: Final = 0.1


class Heart:
    """Writes the nodes' statuses, each at its own time."""

    def __init__(self, world: World, every_seconds: float) -> None:
        self._world = world
        self._every_seconds = every_seconds
        self.beats = 0

    async def run(self, seconds: float) -> None:
        """Run for this time."""
        start, first = time.monotonic(), self.beats
        while (elapsed := time.monotonic() - start) < seconds:
            while self.beats - first < elapsed * self._world.nodes / self._every_seconds:
                self._beat()
            await asyncio.sleep(TICK_SECONDS)

    def _beat(self) -> None:
        document = node(self.beats % self._world.nodes)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for condition in document["status"]["conditions"]:
            condition["lastHeartbeatTime"] = now
        self._world.server.put("v1", "nodes", document)
        self.beats += 1


async def measure(options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    """Run the bench, and return the result."""
    world = World(pods=options.pods, namespaces=options.namespaces, seed=1)
    say(f"making {options.pods:,} pods on {world.nodes:,} nodes …")
    world.fill()
    directory = Path(tempfile.mkdtemp(prefix="bench-idle-"))
    async with world.server.running() as server, aiohttp.ClientSession() as session:
        operator = Operator(server, directory)
        say(f"the operator is process {operator.process.pid}; its log is in {directory}")
        heart = Heart(world, options.every)
        try:
            await operator.ready(session)
            ready = cost_of(operator.process.pid)
            await heart.run(WARM_UP_SECONDS)
            say("measuring …")
            asked, beats, start = len(world.server.requests), heart.beats, time.monotonic()
            before = run_seconds(operator.process.pid)
            await heart.run(options.seconds)
            used, seconds = run_seconds(operator.process.pid) - before, time.monotonic() - start
            peak_mib = cost_of(operator.process.pid).peak_mib
        finally:
            operator.process.terminate()
            await asyncio.to_thread(operator.process.wait, 30)
    check(any(method == "PUT" for _, method, _ in world.server.requests), "it does not lead")
    return [
        Row("pods", options.pods, ""),
        Row("CPU until everything is known", ready.cpu_seconds, "s"),
        Row("heartbeats a second", (heart.beats - beats) / seconds, "/s"),
        Row("requests a second", (len(world.server.requests) - asked) / seconds, "/s"),
        Row("CPU at rest, of a core", used / seconds * 100, "%", IDLE_TARGET_PERCENT),
        Row("peak memory", peak_mib, "MiB", MEMORY_TARGET_MIB),
    ]


def run_seconds(pid: int) -> float:
    """Return a process's CPU time to the microsecond, because clock ticks are too coarse."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="utf-8").split()[0]) for each in threads) / 1e9


def main() -> None:
    """Measure, and print a table with targets."""
    parser = parser_for(__doc__)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--every", type=float, default=300, help="how often each node's status is written, in seconds")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    rows = measured(partial(measure, options))
    print_rows(f"bench/idle, each node's status every {options.every:g} s", rows)


if __name__ == "__main__":
    main()
