"""bench/big: the cost of following a cluster of 150,000 pods, compared with a descheduler cycle on the same objects.

    python -m bench.big [--small] [--rate 1000]

A real API server stores 150,000 pods on 5,000 nodes, 30,000 of them in one namespace. These are scaled down by copies
of a stream of events that was recorded from a sandbox (bench/data). Each side is started on the cluster at rest. The
events begin once it has examined all objects, and it has to report the violations at the end. CPU is user and system
time of the whole process, and memory is its peak. No side evicts, so that both see the same events.

Respread's result is its policy's status, which must have the violated constraints and planned evictions that the bench
computes itself. The descheduler's result is the end of a cycle that began after the last event.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.big_recording import Recording
from bench.big_world import BigWorld
from bench.ingest_world import fill, wait_until_served
from bench.peer import find_or_build
from bench.sides import PEER_INTERVAL_SECONDS, PEER_LOG, POLICY, SIDES, Cost, Side, cost_of, running
from respread_sandbox import Sandbox, SandboxOptions
from tests.integration.operator_process import install

LONGEST_SECONDS: Final = 240.0
POLL_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 10.0
"""The time for which the cost at rest is measured."""


class Row(NamedTuple):
    """The result of one side."""

    side: Side
    first_seconds: float
    """The time from its start until it has examined all objects once."""
    first: Cost
    idle_cores: float
    last_seconds: float
    """The time from the last event until it has reported the result."""
    events: Cost
    """The cost of the events until the result."""
    found: str

    def render(self, events: int) -> str:
        """The line of the table."""
        first, all_events, per_thousand = self.first, self.events, self.events.cpu_seconds / events * 1000
        return (
            f"{self.side:<12} {self.first_seconds:>8.1f} s {first.cpu_seconds:>7.1f} s {first.peak_mib:>8,.0f}"
            f" MiB {self.idle_cores:>7.3f} {all_events.cpu_seconds:>8.1f} s {per_thousand:>8.2f} s"
            f" {self.last_seconds:>7.1f} s {all_events.peak_mib:>8,.0f} MiB  {self.found}"
        )


HEADER: Final = (
    f"{'':<12} {'first look':>10} {'CPU':>9} {'memory':>12} {'idle':>7} {'CPU for':>10} {'per 1,000':>10} "
    f"{'decided':>9} {'memory':>12}\n"
    f"{'':<12} {'after':>10} {'':>9} {'peak':>12} {'cores':>7} {'events':>10} {'events':>10} "
    f"{'after':>9} {'peak':>12}  {'what it found':<}"
)


class _Observed(ABC):
    """The observable state of a side."""

    def __init__(self, sandbox: Sandbox, directory: Path) -> None:
        self._sandbox = sandbox
        self._directory = directory

    @abstractmethod
    def has_looked(self) -> bool:
        """Return whether it has examined all objects once."""

    @abstractmethod
    def note_last_event(self) -> None:
        """Record that there are no more events."""

    @abstractmethod
    def has_decided(self, world: BigWorld) -> bool:
        """Return whether it has reported the result of all events."""

    @abstractmethod
    def found(self) -> str:
        """Return its findings, in words."""


class _Respread(_Observed):
    """Observes Respread by its policy's status."""

    def has_looked(self) -> bool:
        return bool(self._summary().get("groups"))

    def note_last_event(self) -> None:
        """Do nothing, because the status has all results."""

    def has_decided(self, world: BigWorld) -> bool:
        said = self._summary()
        return (said["violated"], said["plannedEvictions"]) == (world.violated(), world.fewest())

    def found(self) -> str:
        said = self._summary()
        return f"{said['violated']:,} violated, {said['plannedEvictions']:,} evictions planned"

    def _summary(self) -> dict[str, int]:
        path = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}"
        summary: dict[str, int] = self._sandbox.api.get(path).get("status", {}).get("summary", {})
        return summary


class _Descheduler(_Observed):
    """Observes the descheduler by the ends of its cycles in its log."""

    _needed = 1

    def has_looked(self) -> bool:
        return self._cycles() >= 1

    def note_last_event(self) -> None:
        self._needed = self._cycles() + 2  # the next cycle to end may have begun before

    def has_decided(self, world: BigWorld) -> bool:
        del world
        return self._cycles() >= self._needed

    def found(self) -> str:
        return f"{self._cycles()} cycles, one each {PEER_INTERVAL_SECONDS} s at most"

    def _cycles(self) -> int:
        return (self._directory / PEER_LOG).read_text(encoding="utf-8").count("Number of evictions/requests")


def measure(side: Side, sandbox: Sandbox, world: BigWorld, rate: float, say: Callable[[str], None]) -> Row:
    """Run one side, and return its result."""
    directory = Path(tempfile.mkdtemp(prefix="bench-big-"))
    said = (_Respread if side == "respread" else _Descheduler)(sandbox, directory)
    start = time.monotonic()
    with running(side, sandbox, directory, limits={}, evicts=False) as process:
        _wait(said.has_looked, process, f"{side} to look at everything; see {directory}")
        first_seconds, first = time.monotonic() - start, cost_of(process.pid)
        say(f"{side}: it has looked at everything after {first_seconds:.1f} s")
        time.sleep(IDLE_SECONDS)
        idle = cost_of(process.pid)
        say(f"{side}: {world.events:,} events …")
        asyncio.run(world.scale_down(sandbox.files.directory, rate))
        wait_until_served(sandbox)
        last = time.monotonic()
        said.note_last_event()
        _wait(lambda: said.has_decided(world), process, f"{side} to decide; {said.found()}; see {directory}")
        last_seconds, end = time.monotonic() - last, cost_of(process.pid)
        found = said.found()
    shutil.rmtree(directory)
    return Row(
        side=side,
        first_seconds=first_seconds,
        first=first,
        idle_cores=(idle.cpu_seconds - first.cpu_seconds) / IDLE_SECONDS,
        last_seconds=last_seconds,
        events=Cost(end.cpu_seconds - idle.cpu_seconds, end.peak_mib),
        found=found,
    )


def _wait(holds: Callable[[], bool], process: subprocess.Popen[Any], what: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not holds():
        if process.poll() is not None:
            raise SystemExit(f"it ended with exit code {process.returncode} while the bench waited for {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {LONGEST_SECONDS:.0f} s for {what}")
        time.sleep(POLL_SECONDS)


def main() -> None:
    """Measure both sides, and print a table."""
    options = _arguments()
    sides = (SIDES[options.only],) if options.only else tuple(SIDES.values())
    if "descheduler" in sides:
        find_or_build()
    size = (
        {"nodes": 500, "copies": 10, "changing": 2}
        if options.small
        else {"nodes": 5_000, "copies": 100, "changing": 20}
    )
    world = BigWorld(Recording.read(), **size)
    rows = []
    with Sandbox.start(SandboxOptions(nodes=0, scheduler=False, controller_manager=False, kwok=False)) as sandbox:
        install(sandbox)
        _say(f"writing {world.pods:,} pods on {world.nodes:,} nodes …")
        fill(sandbox, world.entries())
        wait_until_served(sandbox)
        for side in sides:
            rows.append(measure(side, sandbox, world, options.rate, _say))
            _say("bringing back what was scaled down …")
            fill(sandbox, world.pods_at_rest(range(world.changing)))
            wait_until_served(sandbox)
    print(
        f"bench/big: {world.pods:,} pods on {world.nodes:,} nodes, {world.events:,} events at {options.rate:g} a"
        f" second; in the end {world.violated():,} are violated and {world.fewest():,} evictions would do\n{HEADER}"
    )
    for row in rows:
        print(row.render(world.events))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="15,000 pods on 500 nodes, 3,000 of them in one namespace")
    parser.add_argument("--rate", type=float, default=1_000, help="events a second")
    parser.add_argument("--only", choices=tuple(SIDES), help="one side alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
