"""The cluster of bench/big: the recorded one many times over, and its scale-down in some of them at once."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from bench.big_recording import Recording, Step
from bench.busy_fewest import fewest_evictions, skew
from bench.ingest_world import CREATED, Entry, Request, etcd, node, node_name, pod, put
from tests.integration.workloads import ZONE, constraint

ZONES: Final = 3
WRITERS: Final = 8
BIG_NAMESPACE: Final = "big"
TERMINATED: Final = "2026-01-06T08:00:00Z"


class BigWorld(NamedTuple):
    """Copies of the recorded cluster; the first of them share one namespace, each of the others has its own."""

    recording: Recording
    nodes: int
    copies: int
    changing: int
    """How many copies are in the one big namespace, and scaled down."""

    @property
    def pods(self) -> int:
        """How many pods there are before the scale-down."""
        return self.copies * len(self.recording.at_rest)

    @property
    def events(self) -> int:
        """How many events of pods the scale-down is."""
        return self.changing * len(self.recording.events)

    def violated(self) -> int:
        """Return how many Deployments are no longer spread in the end."""
        return self.changing * sum(skew(each.values()) > 1 for each in self.recording.in_zones().values())

    def fewest(self) -> int:
        """Return the fewest evictions that would spread them again."""
        each = (
            fewest_evictions({str(zone): [pods] for zone, pods in in_zone.items()}, zone_skew=1)
            for in_zone in self.recording.in_zones().values()
        )
        return self.changing * sum(each)

    def entries(self) -> Iterator[Entry]:
        """Everything there is before the scale-down, with its key in etcd."""
        for number in range(self.nodes):
            yield f"/registry/minions/{node_name(number)}", node(number)
        for name in dict.fromkeys(self._namespace(copy) for copy in range(self.copies)):
            yield f"/registry/namespaces/{name}", _namespace(name)
        yield from self.pods_at_rest(range(self.copies))

    def pods_at_rest(self, copies: range) -> Iterator[Entry]:
        """Return the pods of some copies as they are before the scale-down."""
        for copy, step in itertools.product(copies, self.recording.at_rest):
            yield self._key(copy, step), self._pod(copy, step)

    async def scale_down(self, directory: Path, rate: float) -> None:
        """Let the recorded events happen in the copies that change, so many a second, in the etcd of a sandbox.

        Those of one copy come in their order; each has a revision of its own, since a watch goes on from a revision.
        """
        loop = asyncio.get_running_loop()
        async with etcd(directory) as send:
            start, begun = loop.time(), itertools.count()

            async def write(copies: range) -> None:
                for step, copy in itertools.product(self.recording.events, copies):
                    await asyncio.sleep(start + next(begun) / rate - loop.time())
                    await send(self.request(copy, step))

            await asyncio.gather(*(write(range(first, self.changing, WRITERS)) for first in range(WRITERS)))

    def request(self, copy: int, step: Step) -> Request:
        """Return what a recorded event in a copy is in etcd."""
        if step.type == "DELETED":
            return "deleterange", {"key": base64.b64encode(self._key(copy, step).encode()).decode()}
        return "put", put((self._key(copy, step), self._pod(copy, step)))

    def _namespace(self, copy: int) -> str:
        return BIG_NAMESPACE if copy < self.changing else f"team-{copy}"

    def _name(self, copy: int, step: Step) -> str:
        return f"app-{copy}-{step.app}-{copy:04x}{step.app:04x}-{step.pod:05x}"

    def _key(self, copy: int, step: Step) -> str:
        return f"/registry/pods/{self._namespace(copy)}/{self._name(copy, step)}"

    def _node(self, copy: int, number: int) -> int:
        """Return the number of a node in the zone where it was recorded."""
        in_zone = self.nodes // ZONES
        return (number + copy * len(self.recording.zones)) % in_zone * ZONES + self.recording.zones[number]

    def _pod(self, copy: int, step: Step) -> dict[str, Any]:
        made = pod(copy * self.recording.pods + step.pod, ready=step.ready)
        app, template = f"app-{copy}-{step.app}", f"{copy:04x}{step.app:04x}"
        metadata, spec = made["metadata"], made["spec"]
        metadata |= {"name": self._name(copy, step), "namespace": self._namespace(copy)}
        metadata |= {"generateName": f"{app}-{template}-", "labels": {"app": app, "pod-template-hash": template}}
        owner = {"name": f"{app}-{template}", "uid": str(UUID(int=10**9 + copy * self.recording.apps + step.app))}
        metadata["ownerReferences"] = [metadata["ownerReferences"][0] | owner]
        if step.terminating:
            metadata |= {"deletionTimestamp": TERMINATED, "deletionGracePeriodSeconds": 30}
        spec["topologySpreadConstraints"] = [constraint(ZONE, app)]
        if step.node < 0:
            del spec["nodeName"]
            made["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        else:
            spec["nodeName"] = node_name(self._node(copy, step.node))
        return made


def _namespace(name: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": str(UUID(bytes=name.encode().ljust(16, b".")[:16])), "creationTimestamp": CREATED}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata,
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
