"""Workloads that are hard to move, for the soak test.

Each runs beside the plain workloads of a round, knows the maximum number of its evictions, and afterwards counts the
pods that evictions left pending or lost.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

from respread_sandbox import NodeShape, Sandbox
from tests.faults.rounds import PLAIN_NODES, Workload, patiently, wait_for
from tests.integration.workloads import ZONE, constraint, deployment, is_ready, pods

TIGHT_NODES: Final = {"faults.test/pool": "tight"}
PRIORITIES: Final = {"soak-low": -10, "soak-medium": 0, "soak-high": 100}
"""The priority of foreign pods. They do not preempt, because they would preempt one another while one zone is open."""
ROOM_PER_ZONE: Final = 3
"""The number of one-CPU pods that a zone of the tight nodes holds, except the zone in which all pods start."""


class Hardship(Protocol):
    """Workloads in their own namespace, all of whose pods start in one zone."""

    namespace: str

    def create(self) -> None:
        """Create the workloads while the other zones are closed, and wait until they are in their initial state."""

    def most_evictions(self) -> Mapping[str, int]:
        """Return the maximum number of evictions of each app in a round."""

    def left_behind(self) -> Counter[str]:
        """Return how many pods evictions left `pending`, without a node, or `lost`, deleted or not Ready any more."""


def prepare(sandbox: Sandbox) -> None:
    """Add the nodes and priorities that hardships need to a sandbox."""
    sandbox.nodes.add(1, "zone-a", NodeShape(cpu="64", labels=dict(TIGHT_NODES)))
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(1, zone, NodeShape(cpu=str(ROOM_PER_ZONE), labels=dict(TIGHT_NODES)))
    for name, value in PRIORITIES.items():
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        sandbox.api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)


def hardships(sandbox: Sandbox, number: int, chance: random.Random) -> tuple[Hardship, ...]:
    """Return the hardships of a round."""
    return (
        TightRoom(sandbox, f"tight-{number}", chance),
        NeverReady(sandbox, f"never-ready-{number}"),
        BrokenOrdinal(sandbox, f"broken-ordinal-{number}"),
    )


class TightRoom:
    """More pods to move than there is room for, with Pending pods that compete for the room.

    Pods of another priority wait for the zones to open. The replacements of resized pods need more room than the pods
    themselves. Pods take up to half a minute to terminate.
    """

    def __init__(self, sandbox: Sandbox, namespace: str, chance: random.Random) -> None:
        self.namespace = namespace
        self._sandbox = sandbox
        self._chance = chance
        self._apps = [f"tight-{number}" for number in range(chance.randint(3, 6))]
        self._foreign = chance.randint(0, 2 * ROOM_PER_ZONE)

    def create(self) -> None:
        patiently(lambda: self._sandbox.create_namespace(self.namespace))
        for app in self._apps:
            self._deploy(app, cpu="1")
        self._deploy("resized", cpu="2")
        for app in (*self._apps, "resized"):
            self._wait_until_ready(app)
        for pod in patiently(lambda: pods(self._sandbox, self.namespace, "resized")):
            self._resize(pod["metadata"]["name"])
        for number in range(self._foreign):
            self._add_foreign(f"foreign-{number}")

    def most_evictions(self) -> Mapping[str, int]:
        """One for each app, which starts with [2, 0, 0]."""
        return dict.fromkeys((*self._apps, "resized"), 1)

    def left_behind(self) -> Counter[str]:
        found = patiently(lambda: pods(self._sandbox, self.namespace))
        staying = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        expected = 2 * (len(self._apps) + 1) + self._foreign
        return Counter(
            pending=sum("nodeName" not in pod["spec"] for pod in staying), lost=max(0, expected - len(staying))
        )

    def _deploy(self, app: str, cpu: str) -> None:
        manifest = deployment(
            app,
            replicas=2,
            constraints=[constraint(ZONE, app, nodeTaintsPolicy="Honor")],
            cpu=cpu,
            annotations={"sandbox.respread.dev/terminate-after-seconds": str(self._chance.choice((0, 1, 5, 30)))},
            nodeSelector=dict(TIGHT_NODES),
        )
        _post(self._sandbox, f"/apis/apps/v1/namespaces/{self.namespace}/deployments", manifest)

    def _wait_until_ready(self, app: str) -> None:
        def ready() -> bool:
            return sum(map(is_ready, patiently(lambda: pods(self._sandbox, self.namespace, app)))) == 2

        wait_for(ready, f"2 Ready pods of {app} in {self.namespace}")

    def _resize(self, pod: str) -> None:
        """Reduce a pod's resources, as a kubelet shows it that can resize it in place."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        requests = {"cpu": "100m", "memory": "64Mi"}
        less = {"name": "main", "resources": {"requests": requests}}
        shown = {"status": {"containerStatuses": [{**less, "allocatedResources": requests}]}}
        for subresource, body in (("status", shown), ("resize", {"spec": {"containers": [less]}})):
            patiently(
                lambda subresource=subresource, body=body: self._sandbox.api.request(  # type: ignore[misc]  # no types for defaults
                    "PATCH", f"{path}/{subresource}", body, patch_type="strategic-merge"
                )
            )

    def _add_foreign(self, name: str) -> None:
        zones = {"key": ZONE, "operator": "In", "values": ["zone-b", "zone-c"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
        body = {
            "metadata": {"name": name, "labels": {"app": "foreign"}},
            "spec": {
                "priorityClassName": self._chance.choice(list(PRIORITIES)),
                "nodeSelector": dict(TIGHT_NODES),
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
                "containers": [{"name": "main", "image": "simulated", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
        _post(self._sandbox, f"/api/v1/namespaces/{self.namespace}/pods", body)


class NeverReady:
    """A Deployment whose next pods never become Ready, as with a broken image under the same tag."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        self.namespace = namespace
        self._sandbox = sandbox
        self._replicas = 6

    def create(self) -> None:
        patiently(lambda: self._sandbox.create_namespace(self.namespace))
        manifest = deployment(
            "web",
            replicas=self._replicas,
            constraints=[constraint(ZONE, "web", nodeTaintsPolicy="Honor")],
            annotations={"sandbox.respread.dev/ready-after-seconds": "never"},
            nodeSelector=dict(PLAIN_NODES),
        )
        _post(self._sandbox, f"/apis/apps/v1/namespaces/{self.namespace}/deployments", manifest)
        wait_for(lambda: len(self._pods()) == self._replicas, f"the pods of {self.namespace}")
        ready = {"metadata": {"annotations": {"sandbox.respread.dev/ready-after-seconds": "1"}}}
        for pod in self._pods():
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
            patiently(lambda path=path: self._sandbox.api.request("PATCH", path, ready))  # type: ignore[misc]  # no types for defaults
        wait_for(lambda: all(map(is_ready, self._pods())), f"Ready pods in {self.namespace}")

    def most_evictions(self) -> Mapping[str, int]:
        """One, because Respread waits for its replacement until after the round."""
        return {"web": 1}

    def left_behind(self) -> Counter[str]:
        return Counter(lost=max(0, self._replicas - 1 - sum(map(is_ready, self._pods()))))

    def _pods(self) -> list[dict[str, Any]]:
        return patiently(lambda: pods(self._sandbox, self.namespace))


class BrokenOrdinal:
    """A StatefulSet with OrderedReady whose first pod is not Ready any more, so no later pod is recreated."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        self.namespace = namespace
        self._sandbox = sandbox
        self._workload = Workload(namespace, "db", 4, 1)

    def create(self) -> None:
        patiently(lambda: self._sandbox.create_namespace(self.namespace))
        manifest = deployment(
            "db",
            replicas=self._workload.replicas,
            constraints=[constraint(ZONE, "db", nodeTaintsPolicy="Honor")],
            nodeSelector=dict(PLAIN_NODES),
        )
        manifest["kind"] = "StatefulSet"
        manifest["spec"]["serviceName"] = "db"
        _post(self._sandbox, f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets", manifest)
        wait_for(self._all_ready, f"the pods of {self.namespace}")
        condition = {"type": "Ready", "status": "False", "reason": "Broken"}
        path = f"/api/v1/namespaces/{self.namespace}/pods/db-0/status"
        body = {"status": {"conditions": [condition]}}
        patiently(lambda: self._sandbox.api.request("PATCH", path, body, patch_type="strategic-merge"))

    def most_evictions(self) -> Mapping[str, int]:
        """The evictions needed after the broken pod was deleted and recreated, which may be in any zone."""
        return {"db": self._workload.most_evictions}

    def left_behind(self) -> Counter[str]:
        found = patiently(lambda: pods(self._sandbox, self.namespace))
        staying = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return Counter(
            pending=sum("nodeName" not in pod["spec"] for pod in staying), lost=self._workload.replicas - len(staying)
        )

    def _all_ready(self) -> bool:
        found = patiently(lambda: pods(self._sandbox, self.namespace))
        return len(found) == self._workload.replicas and all(map(is_ready, found))


def random_status(chance: random.Random) -> dict[str, Any]:
    """Return a status that no operator would write. The schema does not allow all of it."""
    times = ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z")
    return {
        "lastPlanTime": chance.choice(times),
        "lastEvictionTime": chance.choice(times),
        "observedGeneration": chance.choice((0, 2**63 - 1)),
    }


def write_status(sandbox: Sandbox, policy: str, status: dict[str, Any]) -> None:
    """Write each field of a status separately, as far as the schema allows."""
    path = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{policy}/status"
    for field, value in status.items():
        patiently(lambda field=field, value=value: _patch_admitted(sandbox, path, {"status": {field: value}}))  # type: ignore[misc]  # no types for defaults


def _patch_admitted(sandbox: Sandbox, path: str, body: dict[str, Any]) -> None:
    response = sandbox.api.client.session.request(
        "PATCH",
        sandbox.api.client.url + path,
        data=json.dumps(body),
        headers={"Content-Type": "application/merge-patch+json"},
        timeout=30,
    )
    if response.status_code != 422:  # a bound of the schema
        response.raise_for_status()


def _post(sandbox: Sandbox, path: str, body: dict[str, Any]) -> None:
    patiently(lambda: sandbox.api.request("POST", path, body))
