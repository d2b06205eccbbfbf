"""The cluster of bench/latency: Deployments spread over zones, some of whose pods change all the time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from bench.ingest_world import node
from bench.ingest_world import pod as pod_of_ingest
from bench.served import ApiServer, Json
from tests.integration.operator_process import policy
from tests.integration.workloads import ZONE, constraint, deployment

REPLICAS: Final = 15
ZONES: Final = 3
PODS_PER_NODE: Final = 20
QUIET_PERIOD_SECONDS: Final = 2.0
FAST_LIMITS: Final = {"inFlight": 50, "inFlightPerNamespace": 50, "inFlightPerNode": 50, "inFlightPerWorkload": "100%"}
SCHEDULED_SECONDS: Final = 0.02
READY_SECONDS: Final = 0.1
CREATED: Final = "2026-01-05T08:00:00Z"


class Violation(NamedTuple):
    """A Deployment that was scaled down so that it is violated, and the time of the last event."""

    app: int
    at: float


class _Pod(NamedTuple):
    name: str
    uid: str
    node: int
    ready: bool
    bound: bool = True


class World:
    """The objects and their changes."""

    def __init__(
        self, *, pods: int, namespaces: int, seed: int, replicas: int = REPLICAS, nodes: int | None = None
    ) -> None:
        """Make a world. Nothing is served until `fill`.

        Args:
            pods: the number of pods.
            namespaces: the number of namespaces for the Deployments.
            seed: the seed of random choices.
            replicas: the replicas of each Deployment.
            nodes: the number of nodes; None for 20 pods on each.
        """
        self.server = ApiServer(on_eviction=self._evicted)
        self.evicted: dict[int, float] = {}
        """When each Deployment's first eviction arrived, by its number (`time.monotonic`)."""
        self._arrived = asyncio.Event()
        self._replicas = replicas
        self._apps = pods // replicas
        self._nodes = nodes or -(-pods // PODS_PER_NODE)
        self._namespaces = namespaces
        self._draw = random.Random(seed)
        self._numbers = itertools.count(1)
        self._pods: list[dict[str, _Pod]] = [{} for _ in range(self._apps)]
        self._wanted = [replicas] * self._apps
        self._bodies: dict[int, Json] = {}
        self._unspread: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self._nodes

    @property
    def apps(self) -> int:
        """Return the number of Deployments."""
        return self._apps

    def namespace(self, app: int) -> str:
        """Return the namespace of a Deployment."""
        return f"busy-{app % self._namespaces}"

    def fill(self) -> None:
        """Create the cluster at rest: every Deployment is spread."""
        for number in range(self._nodes):
            self.server.put("v1", "nodes", node(number))
        for number in range(self._namespaces):
            self.server.put("v1", "namespaces", _named("Namespace", f"busy-{number}", 3 * 10**9 + number))
        self.server.put("v1", "namespaces", _named("Namespace", "default", 3 * 10**9 - 1))
        limits: dict[str, Any] = dict(FAST_LIMITS)
        fast = policy("fast", quietPeriod=f"{QUIET_PERIOD_SECONDS:g}s", limits=limits)
        fast["metadata"] |= {"uid": str(UUID(int=4 * 10**9)), "generation": 1, "creationTimestamp": CREATED}
        self.server.put("respread.dev/v1alpha1", "clusterrebalancepolicies", fast)
        for app in range(self._apps):
            self._put_owners(app)
            for number in range(self._replicas):
                self._add(app, self._node_in(number % ZONES), ready=True)

    # Changes

    def violate(self, app: int) -> Violation:
        """Scale a Deployment down by two pods of one zone, so that its constraint is violated."""
        self._unspread.add(app)
        self._wanted[app] -= 2
        self._put_owners(app)
        zone = self._draw.randrange(ZONES)
        leaving = [each for each in self._pods[app].values() if each.node % ZONES == zone][:2]
        for each in leaving:
            self._delete(app, each.name)
        return Violation(app, time.monotonic())

    async def eviction(self, app: int, seconds: float) -> None:
        """Wait a limited time until a Deployment's first eviction has arrived."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while app not in self.evicted:
                    await self._arrived.wait()

    def changes(self, apps: range) -> Iterator[None]:
        """Yield endless changes of pods of some Deployments, one Deployment after another.

        Half of the pods become not Ready, and Ready again in the next round. The others are replaced on their own node:
        deleted, created, bound, Ready. No Deployment lacks more than one pod at a time, so all stay spread.
        """
        while True:
            for ready, app in itertools.product((False, True), apps):
                if app in self._unspread:
                    continue
                for each in list(self._pods[app].values())[: self._replicas - 4]:
                    self._set(app, each._replace(ready=ready))
                    yield
            yield from self.replacements(apps)

    def replacements(self, apps: range, *, at_once: int = 1) -> Iterator[None]:
        """Replace a pod of each of some Deployments on its own node: delete, create, bind, Ready.

        Args:
            apps: the Deployments.
            at_once: the number of Deployments with a deleted pod before the first replacement is created.
        """
        spread = [app for app in apps if app not in self._unspread]
        for first in range(0, len(spread), at_once):
            some = spread[first : first + at_once]
            pods = {app: next(iter(self._pods[app].values())) for app in some}
            for app, pod in pods.items():
                self._delete(app, pod.name)
                yield
            for app, pod in pods.items():
                pods[app] = self._add(app, pod.node, ready=False, bound=False)
                yield
            for app, pod in pods.items():
                pods[app] = self._set(app, pod._replace(bound=True))
                yield
            for app, pod in pods.items():
                self._set(app, pod._replace(ready=True))
                yield

    def _evicted(self, name: str) -> None:
        app = int(name.split("-")[1])
        self.evicted.setdefault(app, time.monotonic())
        self._arrived.set()
        self._arrived.clear()
        self._delete(app, name)
        task = asyncio.get_running_loop().create_task(self._replace(app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _replace(self, app: int) -> None:
        """Recreate a pod as the ReplicaSet controller, the scheduler and the kubelet do."""
        pod = self._add(app, 0, ready=False, bound=False)
        await asyncio.sleep(SCHEDULED_SECONDS)
        in_zone = Counter(dict.fromkeys(range(ZONES), 0))
        in_zone.update(each.node % ZONES for each in self._pods[app].values() if each.bound)
        pod = self._set(app, pod._replace(node=self._node_in(min(in_zone, key=in_zone.__getitem__)), bound=True))
        await asyncio.sleep(READY_SECONDS)
        self._set(app, pod._replace(ready=True))

    # The objects

    def _node_in(self, zone: int) -> int:
        return self._draw.randrange(self._nodes // ZONES) * ZONES + zone

    def _add(self, app: int, on_node: int, *, ready: bool, bound: bool = True) -> _Pod:
        number = next(self._numbers)
        return self._set(
            app, _Pod(f"app-{app}-{_hash(app)}-{number:06x}", str(UUID(int=number)), on_node, ready, bound)
        )

    def _set(self, app: int, pod: _Pod) -> _Pod:
        self._pods[app][pod.name] = pod
        self.server.put("v1", "pods", self._body(app, pod))
        return pod

    def _delete(self, app: int, name: str) -> None:
        del self._pods[app][name]
        self.server.delete("v1", "pods", self.namespace(app), name)

    def _body(self, app: int, pod: _Pod) -> Json:
        """Return the pod as it is served: a pod of bench/ingest with the labels and the owner of its Deployment."""
        if app not in self._bodies:
            made = pod_of_ingest(app)
            made["metadata"] |= {"namespace": self.namespace(app), "labels": self._labels(app)}
            made["metadata"]["generateName"] = f"app-{app}-{_hash(app)}-"
            owner = {"name": f"app-{app}-{_hash(app)}", "uid": str(UUID(int=10**9 + app))}
            made["metadata"]["ownerReferences"] = [made["metadata"]["ownerReferences"][0] | owner]
            made["spec"]["topologySpreadConstraints"] = [constraint(ZONE, f"app-{app}")]
            self._bodies[app] = made
        made = self._bodies[app]
        metadata = made["metadata"] | {"name": pod.name, "uid": pod.uid}
        spec = made["spec"] | {"nodeName": f"node-{pod.node}"}
        status: Json = made["status"]
        if not pod.bound:
            del spec["nodeName"]
            return made | {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "qosClass": "Burstable"}}
        states = {"Ready": pod.ready, "ContainersReady": pod.ready}
        conditions = [each | {"status": str(states.get(each["type"], True))} for each in status["conditions"]]
        return made | {"metadata": metadata, "spec": spec, "status": status | {"conditions": conditions}}

    def _labels(self, app: int) -> dict[str, str]:
        return {"app": f"app-{app}", "pod-template-hash": _hash(app)}

    def _put_owners(self, app: int) -> None:
        spec = {key: value for key, value in pod_of_ingest(app)["spec"].items() if key != "nodeName"}
        spec["topologySpreadConstraints"] = [constraint(ZONE, f"app-{app}")]
        made = deployment(f"app-{app}", replicas=self._wanted[app])
        made["metadata"] |= {"namespace": self.namespace(app), "uid": str(UUID(int=2 * 10**9 + 10**8 + app))}
        made["metadata"] |= {"generation": 1, "creationTimestamp": CREATED}
        made["spec"]["template"]["spec"] = spec
        count = self._wanted[app]
        made["status"] = {"observedGeneration": 1, "replicas": count, "updatedReplicas": count, "readyReplicas": count}
        self.server.put("apps/v1", "deployments", made)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": f"app-{app}",
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = made["metadata"] | {
            "name": f"app-{app}-{_hash(app)}",
            "uid": str(UUID(int=10**9 + app)),
            "labels": self._labels(app),
            "ownerReferences": [owner],
        }
        template = {"metadata": {"labels": self._labels(app)}, "spec": spec}
        selector = {"matchLabels": self._labels(app)}
        replica_set = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": metadata,
            "spec": {"replicas": count, "selector": selector, "template": template},
            "status": {"observedGeneration": 1, "replicas": count, "readyReplicas": count},
        }
        self.server.put("apps/v1", "replicasets", replica_set)


def _hash(app: int) -> str:
    return f"{app:08x}"


def _named(kind: str, name: str, number: int) -> Json:
    metadata = {"name": name, "uid": str(UUID(int=number)), "creationTimestamp": CREATED}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "status": {"phase": "Active"}}
