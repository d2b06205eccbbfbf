"""A real scheduler decides about random pods one by one as Respread predicted just before."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from respread.cluster.decode.decoder import KINDS, Decoder
from respread.cluster.pod import Pod
from respread.cluster.state import RESOURCES, ClusterState
from respread.scheduling.configuration import SchedulerConfiguration, of_version, read_configuration
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread_sandbox import NodeShape, Sandbox, SandboxOptions
from tests.integration.scheduling.random_pods import APPS, CLAIMS, NAMESPACES, RACK, ZONE, random_pod
from tests.properties.instances import factor
from tests.scheduler_configurations import HARD_DEFAULTS

PODS = 300 if factor() > 1 else 60
PODS_WITH_DEFAULTS = PODS // 2
SEED = 20261121
TWO_HARD_DEFAULTS = (
    HARD_DEFAULTS
    + "      - {maxSkew: 2, topologyKey: example.com/rack, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor}\n"
)
OWNERS = {
    "ReplicaSet": ("apps/v1", "/apis/apps/v1/namespaces/{}/replicasets"),
    "StatefulSet": ("apps/v1", "/apis/apps/v1/namespaces/{}/statefulsets"),
    "ReplicationController": ("v1", "/api/v1/namespaces/{}/replicationcontrollers"),
}
DECISION_SECONDS = 20
NOTICED_SECONDS = 0.1
"""The time for the scheduler to notice a change before the next pod, because it watches like every client."""
TRIES = 3


class Decision(NamedTuple):
    """The scheduler's decision about a pod."""

    node: str
    """The node; empty if the scheduler found none."""
    message: str


class Cluster:
    """The cluster as the API server shows it, and Respread's view of it."""

    def __init__(self, sandbox: Sandbox, configuration: SchedulerConfiguration) -> None:
        self.api = sandbox.api
        self._decoder = Decoder()
        self._state = ClusterState()
        self._view = ClusterView()
        version = self.api.get("/version")["gitVersion"]
        self._predictor = Predictor(self._view, of_version(configuration, version))

    def prediction(self, manifest: dict[str, Any]) -> set[str]:
        """Return the predicted nodes for the pod, as the API server would store it."""
        self._look()
        path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods?dryRun=All"
        pod = self._decoder.decode_object("pods", self.api.request("POST", path, manifest))
        assert isinstance(pod, Pod)
        prepared = self._predictor.prepare(pod)
        assert prepared.unknown is None
        return set(prepared.feasible_nodes())

    def decision(self, manifest: dict[str, Any]) -> Decision:
        """Create the pod and return the decision. A pod without a node is deleted again."""
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        self.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
        deadline = time.monotonic() + DECISION_SECONDS
        while time.monotonic() < deadline:
            pod = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
            if node := pod["spec"].get("nodeName"):
                return Decision(node, "")
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    self.delete(namespace, name)
                    return Decision("", condition.get("message", ""))
            time.sleep(0.01)
        raise AssertionError(f"the scheduler did not decide about {namespace}/{name} within {DECISION_SECONDS} s")

    def delete(self, namespace: str, name: str) -> None:
        """Delete a pod at once."""
        self.api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")

    def _look(self) -> None:
        for resource in RESOURCES:
            page = self._decoder.decode_page(resource, _list(self.api.client.session, self.api.client.url, resource))
            assert not page.errors
            self._state.replace(resource, page.items)
        self._view.advance(self._state.snapshot)


def _list(session: Any, url: str, resource: str) -> bytes:
    response = session.get(url + KINDS[resource].path, timeout=30)
    response.raise_for_status()
    content: bytes = response.content
    return content


ON_SMALL_NODES = SandboxOptions(
    nodes_per_zone=(4, 3, 3), shape=NodeShape(cpu="4", memory="8Gi", pods=9), controller_manager=False
)


def test_the_scheduler_decides_as_predicted(start_sandbox: Callable[[SandboxOptions], Sandbox]) -> None:
    cluster = Cluster(start_sandbox(ON_SMALL_NODES), SchedulerConfiguration())
    rng = random.Random(SEED)
    _agree(cluster, rng, _prepare(cluster, rng), PODS, lambda _: None)


def test_the_scheduler_decides_as_predicted_with_hard_default_constraints(
    start_sandbox: Callable[[SandboxOptions], Sandbox],
) -> None:
    """Services and owners are created and deleted, which changes the selectors of default constraints."""
    sandbox = start_sandbox(msgspec.structs.replace(ON_SMALL_NODES, scheduler_configuration=TWO_HARD_DEFAULTS))
    cluster = Cluster(sandbox, read_configuration(TWO_HARD_DEFAULTS))
    rng = random.Random(SEED)
    nodes = _prepare(cluster, rng)
    owners = {
        (namespace, app): owner
        for namespace in NAMESPACES
        for app, kind in zip(APPS, OWNERS, strict=True)
        if (owner := _make_owner(cluster, namespace, app, kind)) and rng.random() < 0.8
    }

    def adopt(manifest: dict[str, Any]) -> None:
        metadata = manifest["metadata"]
        if rng.random() < 0.2:
            _make_service(cluster, rng, metadata["namespace"])
            time.sleep(NOTICED_SECONDS)
        if owner := owners.get((metadata["namespace"], metadata["labels"]["app"])):
            metadata["ownerReferences"] = [owner]

    _agree(cluster, rng, nodes, PODS_WITH_DEFAULTS, adopt)


def _agree(
    cluster: Cluster, rng: random.Random, nodes: list[str], pods: int, adopt: Callable[[dict[str, Any]], None]
) -> None:
    placed: list[tuple[str, str]] = []
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(pods):
        if rng.random() < 0.3:
            _disturb(cluster, rng, nodes, placed)
            time.sleep(NOTICED_SECONDS)
        manifest = random_pod(rng, f"pod-{number}", nodes)
        manifest["metadata"]["namespace"] = rng.choice(NAMESPACES)
        adopt(manifest)
        for attempt in range(1, TRIES + 1):
            predicted = cluster.prediction(manifest)
            decision = cluster.decision(manifest)
            agreed = decision.node in predicted if decision.node else not predicted
            if agreed:
                break
            # The scheduler may not have seen the last change yet. Its decision after that counts.
            seen["late"] += 1
            if decision.node:
                cluster.delete(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            time.sleep(NOTICED_SECONDS * 5 * attempt)
        else:
            wrong.append(f"{manifest}: predicted {sorted(predicted)}, {decision}")
            continue
        seen["placed" if decision.node else "refused"] += 1
        if decision.node:
            placed.append((manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
    assert not wrong, "\n".join(wrong)
    assert seen["placed"] > pods * 0.2
    assert seen["refused"] > pods * 0.2
    assert seen["late"] < pods * 0.5  # on a slow machine; usually there are hardly any


def _prepare(cluster: Cluster, rng: random.Random) -> list[str]:
    """Label the nodes differently, and create the namespaces and claims that the pods use."""
    names = sorted(node["metadata"]["name"] for node in cluster.api.get("/api/v1/nodes")["items"])
    for number, name in enumerate(names):
        labels = {"cores": str(rng.choice([2, 4, 8])), RACK: rng.choice(["r1", "r2", "r3", None])}
        patch: dict[str, Any] = {"metadata": {"labels": labels}}
        if number % 5 == 0:
            patch["spec"] = {"taints": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]}
        cluster.api.request("PATCH", f"/api/v1/nodes/{name}", patch)
    for name, team in zip(NAMESPACES, "aab", strict=True):
        cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"team": team}}})
        for claim in CLAIMS:
            _make_claim(cluster, rng, name, claim)
    return names


def _make_owner(cluster: Cluster, namespace: str, app: str, kind: str) -> dict[str, Any]:
    """Create a workload without an active controller, and return the reference to it."""
    version, path = OWNERS[kind]
    labels = {"app": app}
    container = {"name": "main", "image": "simulated"}
    spec: dict[str, Any] = {
        "replicas": 0,
        "selector": labels if version == "v1" else {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    if kind == "StatefulSet":
        spec["serviceName"] = app
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": app}, "spec": spec}
    created = cluster.api.request("POST", path.format(namespace), manifest)
    return {"apiVersion": version, "kind": kind, "name": app, "uid": created["metadata"]["uid"], "controller": True}


def _make_service(cluster: Cluster, rng: random.Random, namespace: str) -> None:
    """Create a Service that selects some of the pods, or delete it."""
    name = rng.choice(["one", "two"])
    path = f"/api/v1/namespaces/{namespace}/services"
    if any(each["metadata"]["name"] == name for each in cluster.api.get(path)["items"]):
        cluster.api.request("DELETE", f"{path}/{name}")
        return
    selector = rng.choice([{"app": rng.choice(APPS)}, {"track": rng.choice("ab")}])
    spec = {"selector": selector, "ports": [{"port": 80}]}
    cluster.api.request("POST", path, {"metadata": {"name": name}, "spec": spec})


def _make_claim(cluster: Cluster, rng: random.Random, namespace: str, name: str) -> None:
    mode = "ReadWriteOncePod" if name == "single" else "ReadWriteMany"
    volume, size = f"{namespace}-{name}", {"storage": "1Gi"}
    zones = {"key": ZONE, "operator": "In", "values": [f"zone-{each}" for each in rng.sample("abc", 2)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
    spec: dict[str, Any] = {
        "accessModes": [mode],
        "capacity": size,
        "csi": {"driver": "disks.io", "volumeHandle": volume},
    }
    spec |= {"nodeAffinity": {"required": required}, "claimRef": {"namespace": namespace, "name": name}}
    cluster.api.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
    claim = {"accessModes": [mode], "resources": {"requests": size}, "volumeName": volume, "storageClassName": ""}
    metadata = {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    cluster.api.request("POST", path, {"metadata": metadata, "spec": claim})


def _disturb(cluster: Cluster, rng: random.Random, nodes: list[str], placed: list[tuple[str, str]]) -> None:
    """Change something between two pods: delete some, terminate some, cordon or relabel a node."""
    node = f"/api/v1/nodes/{rng.choice(nodes)}"
    match rng.choice(["delete", "delete", "terminate", "cordon", "uncordon", "label"]):
        case "delete":
            for _ in range(min(len(placed), 3)):
                cluster.delete(*placed.pop(rng.randrange(len(placed))))
        case "terminate":
            if placed:
                namespace, name = placed.pop(rng.randrange(len(placed)))
                cluster.api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        case "label":
            cluster.api.request("PATCH", node, {"metadata": {"labels": {RACK: rng.choice(["r1", "r2", None])}}})
        case cordon:
            cluster.api.request("PATCH", node, {"spec": {"unschedulable": cordon == "cordon"}})
