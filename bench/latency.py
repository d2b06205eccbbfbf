"""bench/latency: the time until the operator evicts while thousands of pods per second change.

    python -m bench.latency [--pods 30000] [--namespaces 1] [--rate 2000] [--seconds 60]

A real `respread run` follows an API server in memory (bench/served.py) on which pods change all the time: they become
Ready and not Ready, and are replaced. Sometimes a Deployment is scaled down so that it is violated. The time counts
from the last event of the scale-down until the eviction arrives, including the plan and the last look.

The bench also measures how late the Lease is renewed, how long probes wait for an answer, the lags in `/metrics`, and
the operator's cost. It shares the machine with the operator, and reports its own lateness.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import aiohttp
import msgspec

from bench.latency_world import QUIET_PERIOD_SECONDS, Violation, World
from bench.rows import Row, check, measured, parser_for, print_rows
from bench.served import write_kubeconfig
from bench.sides import Cost, cost_of
from respread.telemetry.metrics import Phase

TICK_SECONDS: Final = 0.01
WARM_UP_SECONDS: Final = 5.0
"""The time for which pods change before the measurement."""
VIOLATIONS_PER_SECOND: Final = 3.0
PROBE_SECONDS: Final = 0.1
SCRAPE_SECONDS: Final = 5.0
SYNC_SECONDS: Final = 120.0
LONGEST_DECISION_SECONDS: Final = 60.0

DECISION_TARGET_SECONDS: Final = QUIET_PERIOD_SECONDS + 1
LEASE_TARGET_SECONDS: Final = 4.0
"""The maximum delay of a renewal. The Lease is renewed every 2 s and lost after 10 s."""
PROBE_TARGET_SECONDS: Final = 1.0
"""The maximum time for a probe. A kubelet waits one second by default."""

_LAGS: Final = re.compile(
    rb'^respread_(?:(decision)_lag_seconds|watch_lag_seconds\{kind="(pods)"\}) (\S+)$', re.MULTILINE
)


_PHASES: Final = re.compile(rb'^respread_reconcile_duration_seconds_(sum|count)\{phase="(\w+)"\} (\S+)$', re.MULTILINE)


class Noted(NamedTuple):
    """The observations while pods changed."""

    events: int
    seconds: float
    late_seconds: list[float]
    """The delay of the bench itself at each tick."""
    probe_seconds: list[float]
    lags_seconds: dict[str, list[float]]
    """The gauges of /metrics."""
    phases: dict[tuple[str, str], float]
    """The histogram of reconcile phases during the measurement: sum and count of each phase."""
    most_unsent: int
    """The maximum number of events that the operator had not read."""
    violations: list[Violation]
    cost: Cost


class Operator:
    """A `respread run`."""

    def __init__(self, server: str, directory: Path) -> None:
        """Start it."""
        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(kubeconfig, server)
        self._log = directory / "operator.log"
        command = [sys.executable, "-m", "respread.program.main", "run", "--kubeconfig", str(kubeconfig)]
        options = ["--listen-address", "127.0.0.1:0", "--lease-namespace", "default", "--leader-election"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [*command, *options], stdout=log, stderr=log
            )

    async def ready(self, session: aiohttp.ClientSession) -> str:
        """Wait until it knows the cluster, and return the address of its telemetry."""
        deadline = time.monotonic() + SYNC_SECONDS
        while time.monotonic() < deadline:
            check(self.process.poll() is None, f"the operator has ended; see {self._log}")
            if (address := self._address()) is not None:
                async with session.get(f"{address}/readyz") as response:
                    if response.ok:
                        return address
            await asyncio.sleep(0.1)
        raise SystemExit(f"the operator did not become ready; see {self._log}")

    def _address(self) -> str | None:
        for line in self._log.read_bytes().splitlines():
            if line.startswith(b"{") and (said := msgspec.json.decode(line))["event"].startswith("Serving"):
                return f"http://{said['address']}"
        return None


class Load:
    """Changes pods at a rate, sometimes violates a Deployment, and records the reaction."""

    def __init__(self, world: World, operator: Operator, address: str, session: aiohttp.ClientSession) -> None:
        self._world = world
        self._operator = operator
        self._address = address
        self._session = session

    async def run(self, *, rate: float, seconds: float, say: Callable[[str], None]) -> Noted:
        """Run for a time, and return the observations."""
        violated = int(seconds * VIOLATIONS_PER_SECOND)
        check(violated < self._world.apps * 2 // 3, "there are too few Deployments for so long; take more pods")
        changes = self._world.changes(range(violated, self._world.apps))
        await self._change(changes, rate, WARM_UP_SECONDS, [], 0, [])
        say("measuring …")
        late: list[float] = []
        violations: list[Violation] = []
        probes: list[float] = []
        lags: dict[str, list[float]] = {"decision": [], "pods": []}
        watching = [asyncio.create_task(self._probe(probes)), asyncio.create_task(self._scrape(lags))]
        phases = await self._phases()
        before, start = cost_of(self._operator.process.pid), time.monotonic()
        events, most_unsent = await self._change(changes, rate, seconds, late, violated, violations)
        elapsed = time.monotonic() - start
        after = cost_of(self._operator.process.pid)
        phases = {key: value - phases.get(key, 0) for key, value in (await self._phases()).items()}
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        say("waiting for the last decisions …")
        deadline = time.monotonic() + LONGEST_DECISION_SECONDS
        for each in violations:
            await self._world.eviction(each.app, deadline - time.monotonic())
        cost = Cost(after.cpu_seconds - before.cpu_seconds, after.peak_mib)
        return Noted(events, elapsed, late, probes, lags, phases, most_unsent, violations, cost)

    async def _change(
        self, changes: Any, rate: float, seconds: float, late: list[float], violated: int, violations: list[Violation]
    ) -> tuple[int, int]:
        """Change pods for a time. Return the number of events, and the maximum number of unread ones."""
        start, events, most_unsent = time.monotonic(), 0, 0
        for tick in range(1, int(seconds / TICK_SECONDS) + 1):
            at = tick * TICK_SECONDS
            while events < at * rate:
                next(changes)
                events += 1
            if len(violations) < violated and at >= (len(violations) + 1) / VIOLATIONS_PER_SECOND:
                violations.append(self._world.violate(len(violations)))
            most_unsent = max(most_unsent, self._world.server.unsent("pods"))
            await asyncio.sleep(max(0.0, start + at - time.monotonic()))
            late.append(time.monotonic() - start - at)
        return events, most_unsent

    async def _probe(self, seconds: list[float]) -> None:
        while True:
            for path in ("/livez", "/readyz"):
                start = time.monotonic()
                async with self._session.get(self._address + path) as response:
                    await response.read()
                    check(response.ok, f"{path} is answered by {response.status}")
                seconds.append(time.monotonic() - start)
                await asyncio.sleep(PROBE_SECONDS)

    async def _scrape(self, lags: dict[str, list[float]]) -> None:
        while True:
            for decision, kind, value in _LAGS.findall(await self._metrics()):
                lags[(decision or kind).decode()].append(float(value))
            await asyncio.sleep(SCRAPE_SECONDS)

    async def _phases(self) -> dict[tuple[str, str], float]:
        found = _PHASES.findall(await self._metrics())
        return {(phase.decode(), what.decode()): float(value) for what, phase, value in found}

    async def _metrics(self) -> bytes:
        async with self._session.get(f"{self._address}/metrics") as response:
            return await response.read()


async def measure(options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    """Run the bench, and return the result."""
    world = World(pods=options.pods, namespaces=options.namespaces, seed=options.seed)
    say(f"making {options.pods:,} pods of {world.apps:,} Deployments …")
    world.fill()
    directory = Path(tempfile.mkdtemp(prefix="bench-latency-"))
    async with world.server.running() as server, aiohttp.ClientSession() as session:
        operator = Operator(server, directory)
        say(f"the operator is process {operator.process.pid}; its log is in {directory}")
        try:
            address = await operator.ready(session)
            say("it knows the cluster; pods begin to change …")
            load = Load(world, operator, address, session)
            noted = await load.run(rate=options.rate, seconds=options.seconds, say=say)
        finally:
            operator.process.terminate()
            await asyncio.to_thread(operator.process.wait, 30)
    shutil.rmtree(directory)
    return _rows(world, noted)


def _rows(world: World, noted: Noted) -> list[Row]:
    evicted = world.evicted
    decided = [evicted[each.app] - each.at for each in noted.violations if each.app in evicted]
    renewed = [at for at, method, path in world.server.requests if method == "PUT" and "/leases/" in path]
    between = [after - before for before, after in pairwise(renewed)]
    lags = noted.lags_seconds
    return [
        Row("pods", world.apps * 15, ""),
        Row("events per second", noted.events / noted.seconds, "/s"),
        Row("  the bench's own lateness, p99", _share(noted.late_seconds, 0.99), "s"),
        Row("  events that waited to be read, most", noted.most_unsent, ""),
        Row("Deployments violated", len(noted.violations), ""),
        Row("  not decided on", len(noted.violations) - len(decided), "", 0),
        Row("change → eviction, median", _share(decided, 0.5), "s"),
        Row("change → eviction, p99", _share(decided, 0.99), "s", DECISION_TARGET_SECONDS),
        Row("change → eviction, longest", _share(decided, 1), "s"),
        Row("renewals of the Lease", len(renewed), ""),
        Row("  longest between two", _share(between, 1), "s", LEASE_TARGET_SECONDS),
        Row("probes", len(noted.probe_seconds), ""),
        Row("  answered after, p99", _share(noted.probe_seconds, 0.99), "s"),
        Row("  answered after, longest", _share(noted.probe_seconds, 1), "s", PROBE_TARGET_SECONDS),
        Row("respread_decision_lag_seconds, most", _share(lags["decision"], 1), "s"),
        Row('respread_watch_lag_seconds{kind="pods"}, most', _share(lags["pods"], 1), "s"),
        Row("reconciles", noted.phases["all", "count"], ""),
        *(
            Row(f"  mean of {phase}", noted.phases[phase, "sum"] / max(1.0, noted.phases[phase, "count"]), "s")
            for phase in get_args(Phase)
        ),
        Row("CPU", noted.cost.cpu_seconds / noted.seconds, "cores"),
        Row("CPU per event", noted.cost.cpu_seconds / noted.events * 1000, "ms"),
        Row("peak memory", noted.cost.peak_mib, "MiB"),
    ]


def _share(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else float("nan")


def main() -> None:
    """Measure, and print a table with targets."""
    parser = parser_for(__doc__)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--namespaces", type=int, default=1)
    parser.add_argument("--rate", type=float, default=2_000, help="how many pods change each second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = measured(partial(measure, options))
    print_rows(f"bench/latency, quiet period {QUIET_PERIOD_SECONDS:g} s", rows)


if __name__ == "__main__":
    main()
