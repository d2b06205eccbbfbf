"""The measured process: only the operator's informers and stores.

It writes one JSON line with its figures when every kind is synced, and then one for each line that it reads. A line is
the number of events to wait for, counted from its start. The wait also ends when pods are listed again, because some
events are lost then. SIGTERM ends the process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

import prometheus_client
import uvloop

from respread.cluster.stores import watched_kinds
from respread.handlers.informer import Informers
from respread.handlers.operator import run_operator
from respread.kube.access import Renewal, load_access
from respread.telemetry.health import WatchHealth
from respread.telemetry.logs import configure_logging
from respread.telemetry.metrics import Metrics

_POLL_SECONDS = 0.05
_EVENTS = "respread_event_apply_duration_seconds_count"


class _Measured:
    """The informers and their figures."""

    def __init__(self) -> None:
        self._import_cpu_seconds = time.process_time()
        self._registry = prometheus_client.CollectorRegistry()
        metrics = Metrics(self._registry, version="bench")
        health = WatchHealth(kind.resource for kind in watched_kinds())
        self.metrics = metrics
        self.informers = Informers(watched_kinds(), health=health, metrics=metrics)

    @property
    def events(self) -> int:
        """Return how many events have been applied."""
        # Reads only this metric, because collecting all metrics would cost much compared with events.
        families = self._registry.restricted_registry([_EVENTS]).collect()
        return int(sum(sample.value for family in families for sample in family.samples if sample.name == _EVENTS))

    @property
    def lists(self) -> int:
        """Return how often pods have been listed after the first time."""
        return int(self._registry.get_sample_value("respread_watch_relists_total", {"kind": "pods"}) or 0)

    def report(self, seconds: float) -> None:
        """Write the current figures."""
        figures = {
            "seconds": seconds,
            "cpu_seconds": time.process_time(),
            "import_cpu_seconds": self._import_cpu_seconds,
            "peak_mib": _status_mib("VmHWM"),
            "resident_mib": _status_mib("VmRSS"),
            "events": self.events,
            "relists": self.lists,
            "objects": self.informers.object_counts(),
        }
        print(json.dumps(figures), flush=True)


def _status_mib(field: str) -> float:
    # getrusage can't be used, because its maximum resident size includes that of the parent process before exec.
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kib) / 1024


async def _answer(measured: _Measured) -> None:
    while not measured.informers.health.synced:
        await measured.informers.changes.wait()
    measured.report(0)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        start, first = time.monotonic(), measured.events
        until = int(line)
        while measured.events < until and not measured.lists:
            if measured.events == first:
                start = time.monotonic()
            await asyncio.sleep(_POLL_SECONDS)
        measured.report(time.monotonic() - start)


async def _run() -> None:
    measured = _Measured()
    load = partial(load_access, kubeconfig=sys.argv[1])
    answering = asyncio.create_task(_answer(measured))
    renewal = Renewal(load(), load, time.monotonic)
    await run_operator(measured.informers, measured.metrics, identity="bench", renewal=renewal, stop=asyncio.Event())
    answering.cancel()


if __name__ == "__main__":
    configure_logging(sys.stderr, level="warning")
    uvloop.run(_run())
