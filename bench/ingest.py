"""bench/ingest: the cost of loading a large cluster, and the rate at which the operator follows it.

A real API server is filled with pods of about 4 KB. The operator's informers and stores run in their own process, with
Kopf and the session. Only this process is measured, from the start of its interpreter.

For events, the process is stopped while the readiness of pods changes, so that a backlog waits for it. The time counts
from its first event to its last, so the rate is the operator's and not that of the API server on a small machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.ingest_world import cluster, fill, pod, wait_until_served
from bench.rows import Row, check, print_rows, tell
from respread_sandbox import Sandbox, SandboxOptions

PODS: Final = 30_000
MANY_PODS: Final = 150_000
ROOT: Final = Path(__file__).resolve().parent.parent

CPU_TARGET_MS_PER_POD: Final = 0.1
PEAK_TARGET_MIB: Final = {PODS: 250, MANY_PODS: 700}
EVENTS_TARGET_PER_SECOND: Final = 2000


class Measured:
    """The operator's process, which reports on request."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._start = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "bench.ingest_operator", str(sandbox.kubeconfig)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def synced(self) -> dict[str, Any]:
        """Wait until it knows all objects, and return its figures."""
        figures = self._read()
        figures["wall_seconds"] = time.monotonic() - self._start
        return figures

    def after_events(self, count: int) -> dict[str, Any]:
        """Wait until it has applied this number of events, and return its figures."""
        print(count, file=self._process.stdin, flush=True)
        return self._read()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process for the duration of the context."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> float:
        """Stop it as the kubelet does, and return the seconds that this took."""
        start = time.monotonic()
        self._process.terminate()
        code = self._process.wait(timeout=30)
        if code != 0:
            raise SystemExit(f"the operator's process ended with exit code {code}")
        return time.monotonic() - start

    def kill(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit("the operator's process has ended; see above")
        figures: dict[str, Any] = json.loads(line)
        return figures


def measure(pods: int, events: int, say: Callable[[str], None]) -> list[Row]:
    """Run the bench, and return the result."""
    options = SandboxOptions(nodes=0, scheduler=False, controller_manager=False, kwok=False)
    with Sandbox.start(options) as sandbox:
        sandbox.apply(ROOT / "crds")
        say(f"writing {pods:,} pods …")
        fill(sandbox, cluster(pods))
        wait_until_served(sandbox)
        say("starting the operator …")
        measured = Measured(sandbox)
        try:
            start = measured.synced()
            check(start["objects"]["pods"] == pods, f"{start['objects']['pods']} pods arrived instead of {pods}")
            say(f"changing {events:,} pods …")
            with measured.frozen():
                _change_pods(sandbox, pods, events)
                wait_until_served(sandbox)
            say("working off the changes …")
            end = measured.after_events(events)
            check(end["relists"] == 0, "the API server no longer had the changes: the pods were listed again")
            stop_seconds = measured.stop()
        finally:
            measured.kill()
    event_cpu = end["cpu_seconds"] - start["cpu_seconds"]
    return [
        Row("pods", pods, ""),
        Row("JSON of a pod", len(json.dumps(pod(0), separators=(",", ":"))) / 1000, "kB"),
        Row("start until synced", start["wall_seconds"], "s"),
        Row("CPU until synced", start["cpu_seconds"], "s"),
        Row("  of which interpreter and imports", start["import_cpu_seconds"], "s"),
        Row("CPU per pod, all included", start["cpu_seconds"] / pods * 1000, "ms", CPU_TARGET_MS_PER_POD),
        Row("peak memory until synced", start["peak_mib"], "MiB", PEAK_TARGET_MIB.get(pods)),
        Row("events", events, ""),
        Row("events per second", events / end["seconds"], "/s", EVENTS_TARGET_PER_SECOND, at_most=False),
        Row("events per second of its CPU", events / event_cpu, "/s"),
        Row("CPU per event", event_cpu / events * 1e6, "µs"),
        Row("peak memory after the events", end["peak_mib"], "MiB", PEAK_TARGET_MIB.get(pods)),
        Row("SIGTERM until ended", stop_seconds, "s"),
    ]


def _change_pods(sandbox: Sandbox, pods: int, changes: int) -> None:
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "bench.ingest_world", str(sandbox.files.directory), str(pods), str(changes)],
        cwd=ROOT,
        check=True,
    )


def main() -> None:
    """Measure, and print a table with targets."""
    parser = argparse.ArgumentParser(description="What it costs the operator to know a big cluster.")
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--many", action="store_const", dest="pods", const=MANY_PODS, help=f"{MANY_PODS:,} pods")
    parser.add_argument("--events", type=int, default=20_000)
    options = parser.parse_args()
    print_rows("bench/ingest", measure(options.pods, options.events, tell))


if __name__ == "__main__":
    main()
