"""A cluster in virtual time with a control loop: evictions and replacements take as long as a test sets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from respread.controller.acting import put_together
from respread.controller.announcements import Announcements
from respread.controller.control_loop import ControlLoop
from respread.controller.permission import Leading
from respread.controller.permissions import PermissionNeeds, Permissions
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.journal import Journal
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.waking import PlanningThread
from respread.kube.requests import Requests, Response
from respread.provisioning.room_loop import RoomLoop
from respread.provisioning.room_objects import Buffers, Placeholders
from respread.telemetry.health import Heartbeat
from respread.telemetry.metrics import Metrics
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts, page

ZONE = "topology.kubernetes.io/zone"
ZONES = ("a", "b", "c")
NAMESPACE = "shop"
BORN = "2027-01-15T07:00:00Z"
EPOCH = datetime(2027, 1, 15, 8, tzinfo=UTC).timestamp()


def no_needs(requests: Requests, clock: Callable[[], float]) -> PermissionNeeds:
    """Return what tells of missing permissions, where none is optional."""
    return PermissionNeeds(
        Permissions(requests, (), clock), own_namespace=lambda: None, announce=lambda _policy, _missing: None
    )


def no_room(requests: Requests, metrics: Metrics) -> RoomLoop:
    """Return a room loop that does not run."""
    return RoomLoop(
        Placeholders(requests, ""),
        Buffers(requests, ""),
        namespace=lambda: None,
        leads=lambda: False,
        may_evict=lambda _: False,
        metrics=metrics,
    )


class AtOnce(Executor):
    """Computes in the calling thread, so that computing takes no virtual time."""

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        """Return the result at once."""
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **options))
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            done.set_exception(error)
        return done


class SimulatedCluster(FakeRequests):
    """ReplicaSets with more pods in zone a than their constraint allows, and an API server."""

    def __init__(
        self,
        workloads: int,
        *,
        replicas: int = 6,
        limits: Mapping[str, Any],
        eviction_seconds: float = 0.3,
        zones: Sequence[str] = (),
    ) -> None:
        """Create the pods.

        Args:
            workloads: the number of ReplicaSets.
            replicas: the replicas of each ReplicaSet.
            limits: the limits of the policy.
            eviction_seconds: how long the API server takes to evict a pod.
            zones: the zones of the pods of each ReplicaSet, such as `aaab`. By default, one move restores each.
        """
        super().__init__()
        self.parts = Parts()
        usual = "aaa" + "bc" * ((replicas - 3) // 2) + "b" * ((replicas - 3) % 2)
        self._zones = {f"app-{number}": of_pods for number, of_pods in enumerate(zones or [usual] * workloads)}
        self.ready_seconds = 2.0
        self.broken = ""
        """The zones in which no pod becomes Ready."""
        self.eviction_seconds: defaultdict[str, float] = defaultdict(lambda: eviction_seconds)
        """The time for the API server to evict a pod of each workload."""
        self.request_seconds = 0.01
        self.evicted: list[tuple[float, str]] = []
        """The time of each eviction, and the pod's workload."""
        self.asked: list[tuple[float, str]] = []
        """The time at which each eviction arrived at the API server, and the pod's workload."""
        self.ready: list[float] = []
        """The time at which each replacement was Ready."""
        self.written: list[Any] = []
        self.recorded: list[Any] = []
        self.sent_unwritten: list[str] = []
        """Pods whose eviction arrived before it was recorded in a status."""
        self.policy: dict[str, Any] = {
            "metadata": {"name": "default", "uid": "uid-default", "generation": 1},
            "spec": {"mode": "Enforce", "quietPeriod": "1ms", "limits": dict(limits)},
        }
        self._version = 1000
        self._names = Counter[str]()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pods: dict[str, dict[str, Any]] = {}
        for app, of_pods in self._zones.items():
            for zone in of_pods:
                self._create(app, zone, ready=True)

    # The operator

    def control_loop(self, requests: Requests | None = None) -> ControlLoop:
        """Return a control loop with informers of the cluster. By default, its requests go directly to the cluster."""
        requests = self if requests is None else requests
        clock = asyncio.get_running_loop().time
        for informer in self.parts.informers.all:
            informer.take_page(page())
        nodes = [
            {
                "metadata": {"name": f"node-{zone}", "labels": {ZONE: zone, "kubernetes.io/hostname": f"node-{zone}"}},
                "status": {"allocatable": {"pods": "10000"}},
            }
            for zone in ZONES
        ]
        self.parts.informer("nodes").take_page(page(*nodes, version=500))
        self.parts.informer("namespaces").take_page(page({"metadata": {"name": NAMESPACE}}, version=500))
        self.parts.informer("pods").take_page(page(*self.pods.values(), version=500))
        self.parts.informer("clusterrebalancepolicies").take_page(page(self.policy, version=500))
        leading = Leading(lambda: True, lambda: 1)
        self.acting = put_together(
            requests,
            self.parts.informers,
            leading,
            Journal(clock, lambda: EPOCH + clock()),
            announcements=Announcements(lambda _: None, self.parts.informers.policies.current),
            metrics=self.parts.metrics,
        )
        return ControlLoop(
            self.parts.informers,
            self.acting,
            leading=leading,
            prevention=PreventionLoop(requests, leading, metrics=self.parts.metrics),
            room=no_room(requests, self.parts.metrics),
            needs=no_needs(requests, clock),
            metrics=self.parts.metrics,
            heartbeat=Heartbeat("control-loop", limit_seconds=1e9, clock=clock),
            scheduler=SchedulerModel(),
            thread=PlanningThread(AtOnce(), cpu_clock=clock),
        )

    async def run(self, seconds: float) -> None:
        """Run a control loop for some time."""
        async with self.running():
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ControlLoop]:
        """Run a control loop."""
        loop = self.control_loop()
        task = asyncio.create_task(loop.run())
        try:
            yield loop
        finally:
            loop.stop()
            await task

    @property
    def violated(self) -> int:
        """Return how many workloads are violated."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for pod in self.pods.values():
            counts[pod["metadata"]["labels"]["app"]][pod["spec"]["nodeName"]] += 1
        spreads = [[each[f"node-{zone}"] for zone in ZONES] for each in counts.values()]
        return sum(max(each) - min(each) > 1 for each in spreads)

    # The API server and the controllers

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        """Answer a request as an API server does."""
        if path.endswith("/eviction"):
            return await self._evict(names["name"])
        await asyncio.sleep(self.request_seconds)
        body = options.get("body") or {}
        if "record" in body:
            self.recorded.append(json.loads(body["record"]))
            return _response({}, 201)
        if method == "PATCH":
            self.written.append(body["status"])
            return _response({})
        return self._read(path, names, options.get("query") or {})

    def _read(self, path: str, names: Mapping[str, str], query: Mapping[str, str]) -> Response:
        if path.endswith("/clusterrebalancepolicies"):
            return _response({"metadata": {}, "items": [self.policy]})
        if path.endswith("/replicasets/{name}"):
            return _response(self._replica_set(names["name"]))
        if path.endswith("/pods"):
            app = query.get("labelSelector", "").removeprefix("app=")
            found = [pod for pod in self.pods.values() if pod["metadata"]["labels"]["app"] == app]
            return _response({"metadata": {}, "items": found})
        if path.endswith("/pods/{name}"):
            found_pod = self.pods.get(names["name"])
            return _response(found_pod) if found_pod else _response({"details": {"kind": "pods"}}, 404)
        return _response({"metadata": {}, "items": []})

    async def _evict(self, name: str) -> Response:
        if name not in self.pods:
            return _response({"details": {"kind": "pods"}}, 404)
        app = self.pods[name]["metadata"]["labels"]["app"]
        now = asyncio.get_running_loop().time
        self.asked.append((now(), app))
        remembered = {each["uid"] for record in self.recorded[-1:] for each in record.get("movesInFlight", ())}
        if self.pods[name]["metadata"]["uid"] not in remembered:
            self.sent_unwritten.append(name)
        await asyncio.sleep(self.eviction_seconds[app])
        if (gone := self.pods.pop(name, None)) is None:
            return _response({"details": {"kind": "pods"}}, 404)
        self.evicted.append((now(), app))
        self._bring(gone, deleted=True)
        task = asyncio.create_task(self._replace(app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return _response({"kind": "Status", "status": "Success"}, 201)

    async def _replace(self, app: str) -> None:
        await asyncio.sleep(0.05)
        pod = self._create(app, self._zone_for(app), ready=False)
        self._bring(pod)
        await asyncio.sleep(self.ready_seconds)
        if pod["metadata"]["name"] not in self.pods or pod["spec"]["nodeName"][-1] in self.broken:
            return  # it was deleted, or can't start
        pod["status"] = _status(ready=True)
        self._bring(pod)
        self.ready.append(asyncio.get_running_loop().time())

    def _zone_for(self, app: str) -> str:
        """Return where the scheduler places the next pod of a workload."""
        there = Counter(
            pod["spec"]["nodeName"] for pod in self.pods.values() if pod["metadata"]["labels"]["app"] == app
        )
        return min(ZONES, key=lambda zone: there[f"node-{zone}"])

    def _create(self, app: str, zone: str, *, ready: bool) -> dict[str, Any]:
        self._names[app] += 1
        name = f"{app}-{self._names[app]}"
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"uid-{app}", "controller": True}
        # the initial pods are old, and later ones get their creation time
        born = BORN if ready else datetime.fromtimestamp(EPOCH + self._version, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pod = {
            "metadata": {
                "namespace": NAMESPACE,
                "name": name,
                "uid": f"uid-{name}",
                "labels": {"app": app},
                "creationTimestamp": born,
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": f"node-{zone}", **_template_spec(app)},
            "status": _status(ready=ready),
        }
        self.pods[name] = pod
        return pod

    def _replica_set(self, app: str) -> dict[str, Any]:
        return {
            "metadata": {"name": app, "uid": f"uid-{app}", "generation": 1},
            "spec": {
                "replicas": len(self._zones[app]),
                "selector": {"matchLabels": {"app": app}},
                "template": {"metadata": {"labels": {"app": app}}, "spec": _template_spec(app)},
            },
            "status": {"observedGeneration": 1, "replicas": len(self._zones[app])},
        }

    def _bring(self, pod: dict[str, Any], *, deleted: bool = False) -> None:
        self._version += 1
        body = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self._version)}}
        self.parts.event("pods", body, deleted=deleted)


def _template_spec(app: str) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"containers": [{"name": "web"}], "topologySpreadConstraints": [constraint]}


def _status(*, ready: bool) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"phase": "Running" if ready else "Pending", "startTime": BORN, "conditions": conditions}


def _response(body: Any, status_code: int = 200) -> Response:
    return Response(status_code=status_code, body=json.dumps(body).encode())
