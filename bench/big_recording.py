"""A recording of a watch of pods while a cluster as in bench/busy is scaled down.

    python -m bench.big_recording

makes a new recording from a sandbox in bench/data: the Deployment and node of each pod, and the times of its changes.
The other fields of a pod are not recorded. A replay writes pods of a realistic size.
"""

from __future__ import annotations

import contextlib
import gzip
import sys
import threading
import time
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec
import requests

from bench.busy_world import World, filled, scale_down
from respread_sandbox import Sandbox

FILE: Final = Path(__file__).resolve().parent / "data" / "scale_down.jsonl.gz"
WORLD: Final = World(
    nodes=60, zones=3, namespaces=1, deployments=100, replicas=15, hostname=False, ready_seconds=0, seed=1
)
READ_SECONDS: Final = 60
LATE_EVENTS_SECONDS: Final = 1.0


class Step(NamedTuple):
    """One event of a pod."""

    milliseconds: int
    """Seconds since the scale-down; 0 for pods that existed before."""
    type: str
    """ADDED, MODIFIED or DELETED, as in the watch."""
    app: int
    pod: int
    """A unique number, from 0 on."""
    node: int
    """The number of its node; -1 without one."""
    ready: bool
    terminating: bool


class Recording(msgspec.Struct, dict=True):
    """A scale-down as a watch of pods showed it. Its results are computed once."""

    zones: list[int]
    """The zone of each node, each by its number."""
    steps: list[Step]

    @classmethod
    def read(cls, file: Path = FILE) -> Self:
        """Return the recording in the repository."""
        head, *lines = gzip.decompress(file.read_bytes()).splitlines()
        return cls(
            zones=msgspec.json.decode(head, type=list[int]),
            steps=[msgspec.json.decode(line, type=Step) for line in lines],
        )

    def write(self, file: Path = FILE) -> None:
        """Write it. The same recording has the same bytes."""
        lines = [msgspec.json.encode(self.zones), *map(msgspec.json.encode, self.steps)]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(b"\n".join(lines), mtime=0))

    @cached_property
    def at_rest(self) -> list[Step]:
        """Return the pods before the scale-down."""
        return [step for step in self.steps if step.milliseconds == 0]

    @cached_property
    def events(self) -> list[Step]:
        """Return the events of the scale-down."""
        return [step for step in self.steps if step.milliseconds > 0]

    @cached_property
    def pods(self) -> int:
        """Return the total number of pods."""
        return 1 + max(step.pod for step in self.steps)

    @cached_property
    def apps(self) -> int:
        """Return the number of Deployments."""
        return 1 + max(step.app for step in self.steps)

    def in_zones(self) -> dict[int, dict[int, int]]:
        """Return how many pods each Deployment has in each zone at the end."""
        last = {step.pod: step for step in self.steps}
        counts: dict[int, dict[int, int]] = defaultdict(lambda: dict.fromkeys(self.zones, 0))
        for step in last.values():
            if step.type != "DELETED" and step.node >= 0 and not step.terminating:
                counts[step.app][self.zones[step.node]] += 1
        return counts


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    labels: dict[str, str]
    resource_version: str
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class _Recorder:
    """Records a watch as numbers."""

    def __init__(self, sandbox: Sandbox) -> None:
        nodes = sandbox.api.get("/api/v1/nodes")["items"]
        names = sorted(each["metadata"]["name"] for each in nodes)
        zone_of = {
            each["metadata"]["name"]: each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in nodes
        }
        zones = sorted(set(zone_of.values()))
        self.recording = Recording([zones.index(zone_of[name]) for name in names], [])
        self._node_numbers = {name: number for number, name in enumerate(names)} | {"": -1}
        self._pod_numbers: dict[str, int] = {}
        self._client = sandbox.api.client
        listed = sandbox.api.get("/api/v1/pods?labelSelector=app")
        for item in listed["items"]:
            self._note("ADDED", msgspec.convert(item, _Pod), 0)
        self._start = time.monotonic()
        version = listed["metadata"]["resourceVersion"]
        threading.Thread(target=self._watch, args=(version,), name="recorder", daemon=True).start()

    def _watch(self, version: str) -> None:
        """Record events until the API server stops."""
        parameters = {"watch": "1", "labelSelector": "app", "resourceVersion": version, "timeoutSeconds": "3600"}
        with (
            contextlib.suppress(requests.RequestException),
            self._client.session.get(
                f"{self._client.url}/api/v1/pods", params=parameters, stream=True, timeout=(5, READ_SECONDS)
            ) as response,
        ):
            for line in response.iter_lines(chunk_size=None):
                event = msgspec.json.decode(line, type=_Event)
                self._note(event.type, event.object, max(1, int((time.monotonic() - self._start) * 1000)))

    def _note(self, kind: str, pod: _Pod, milliseconds: int) -> None:
        metadata = pod.metadata
        self.recording.steps.append(
            Step(
                milliseconds=milliseconds,
                type=kind,
                app=int(metadata.labels["app"].removeprefix("app-")),
                pod=self._pod_numbers.setdefault(metadata.uid, len(self._pod_numbers)),
                node=self._node_numbers[pod.spec.node_name],
                ready=any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions),
                terminating=metadata.deletion_timestamp is not None,
            )
        )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Make a new recording."""
    with filled(WORLD, _say) as (sandbox, judge):
        recording = _Recorder(sandbox).recording
        scale_down(sandbox, judge, WORLD, _say)
        time.sleep(LATE_EVENTS_SECONDS)
        sizes = judge.sizes()
    seen = {WORLD.workloads()[app]: sum(in_zone.values()) for app, in_zone in recording.in_zones().items()}
    if seen != sizes:
        raise SystemExit("the watch was lost before the end; record again")
    recording.write()
    _say(f"{len(recording.events):,} events in {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
