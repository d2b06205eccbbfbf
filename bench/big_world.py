"""The cluster of bench/big: many copies of the recorded one, some of which are scaled down at once."""

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
    """Copies of the recorded cluster. The first ones share one namespace, and each other one has its own."""

    recording: Recording
    nodes: int
    copies: int
    changing: int
    """The number of copies in the large namespace, which are scaled down."""

    @property
    def pods(self) -> int:
        """Return the number of pods before the scale-down."""
        return self.copies * len(self.recording.at_rest)

    @property
    def events(self) -> int:
        """Return the number of pod events of the scale-down."""
        return self.changing * len(self.recording.events)

    def violated(self) -> int:
        """Return how many Deployments are violated at the end."""
        return self.changing * sum(skew(each.values()) > 1 for each in self.recording.in_zones().values())

    def fewest(self) -> int:
        """Return the fewest evictions that would restore them."""
        each = (
            fewest_evictions({str(zone): [pods] for zone, pods in in_zone.items()}, zone_skew=1)
            for in_zone in self.recording.in_zones().values()
        )
        return self.changing * sum(each)

    def entries(self) -> Iterator[Entry]:
        """Yield all objects before the scale-down, with their keys in etcd."""
        for number in range(self.nodes):
            yield f"/registry/minions/{node_name(number)}", node(number)
        for name in dict.fromkeys(self._namespace(copy) for copy in range(self.copies)):
            yield f"/registry/namespaces/{name}", _namespace(name)
        yield from self.pods_at_rest(range(self.copies))

    def pods_at_rest(self, copies: range) -> Iterator[Entry]:
        """Return the pods of some copies before the scale-down."""
        for copy, step in itertools.product(copies, self.recording.at_rest):
            yield self._key(copy, step), self._pod(copy, step)

    async def scale_down(self, directory: Path, rate: float) -> None:
        """Replay the recorded events in the copies at a rate, in the etcd of a sandbox.

        The events of a copy stay in order. Each has its own revision, because a watch continues from a revision.
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
        """Return the etcd request for a recorded event in a copy."""
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
