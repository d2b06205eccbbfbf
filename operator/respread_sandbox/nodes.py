"""The simulated nodes of a running sandbox: add and remove nodes, and let their kubelets fail."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from respread_sandbox.api import NotFoundError, SandboxApi
from respread_sandbox.options import NodeShape
from respread_sandbox.stages import MANAGED_NODE_LABEL

NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
REGION: Final = "region-1"
PARALLEL_REQUESTS: Final = 8
MANAGED_KEY, MANAGED_VALUE = MANAGED_NODE_LABEL.split("=")
DEFAULT_SHAPE: Final = NodeShape()


class SimulatedNodes:
    """The nodes of one sandbox."""

    def __init__(self, api: SandboxApi) -> None:
        self._api = api

    def names(self) -> list[str]:
        """Return the names of all nodes, sorted."""
        return sorted(node["metadata"]["name"] for node in self._api.get("/api/v1/nodes")["items"])

    def ready(self) -> set[str]:
        """Return the names of the nodes without the taint `node.kubernetes.io/not-ready`."""
        return {
            node["metadata"]["name"]
            for node in self._api.get("/api/v1/nodes?resourceVersion=0")["items"]
            if all(taint["key"] != NOT_READY_TAINT for taint in node["spec"].get("taints", ()))
        }

    def add(self, count: int, zone: str, shape: NodeShape = DEFAULT_SHAPE) -> list[str]:
        """Add Ready nodes to a zone and return their names; those of zone-a are node-a1, node-a2, and so on.

        As for any node, the controller manager takes the taint `node.kubernetes.io/not-ready` off a moment later; see
        `ready`.
        """
        taken = set(self.names())
        prefix = f"node-{zone.removeprefix('zone-')}"
        free = (name for number in itertools.count(1) if (name := f"{prefix}{number}") not in taken)
        added = list(itertools.islice(free, count))
        manifests = [manifest(name, zone, shape, len(taken) + index) for index, name in enumerate(added)]
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            list(pool.map(lambda body: self._api.request("POST", "/api/v1/nodes", body), manifests))
        return added

    def remove(self, *names: str) -> None:
        """Delete nodes and their pods at once. The controller manager alone would take a minute to delete the pods."""
        for name in names:
            self._api.request("DELETE", f"/api/v1/nodes/{name}")
            for pod in self._api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")["items"]:
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                with contextlib.suppress(NotFoundError):
                    self._api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    def cordon(self, *names: str) -> None:
        """Make nodes unschedulable."""
        self._patch(names, {"spec": {"unschedulable": True}})

    def uncordon(self, *names: str) -> None:
        """Make nodes schedulable again."""
        self._patch(names, {"spec": {"unschedulable": None}})

    def fail(self, *names: str) -> None:
        """Stop the kubelets of nodes: they send no more heartbeats, and the condition Ready becomes Unknown at once.

        The controller manager then taints the nodes unreachable and evicts their pods when their tolerations run out
        (300 s unless a pod or kube-apiserver's `--default-unreachable-toleration-seconds` says less); nobody confirms
        that these pods have stopped, so they terminate until `recover`.
        """
        self._patch(names, {"metadata": {"labels": {MANAGED_KEY: None}}})
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "failed on purpose"}
        for name in names:
            body = {"status": {"conditions": [unknown]}}
            self._api.request("PATCH", f"/api/v1/nodes/{name}/status", body, patch_type="strategic-merge")

    def recover(self, *names: str) -> None:
        """Restart the kubelets of nodes."""
        self._patch(names, {"metadata": {"labels": {MANAGED_KEY: MANAGED_VALUE}}})

    def delete_leases(self) -> None:
        """Delete the Leases of all nodes, so that a new KWOK takes the nodes over at once."""
        self._api.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")

    def _patch(self, names: tuple[str, ...], body: dict[str, Any]) -> None:
        for name in names:
            self._api.request("PATCH", f"/api/v1/nodes/{name}", body)


def manifest(name: str, zone: str, shape: NodeShape, number: int) -> dict[str, Any]:
    """Return a Node that is Ready, as its kubelet would register it; its IP address is derived from `number`."""
    capacity = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": zone,
        MANAGED_KEY: MANAGED_VALUE,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | shape.labels},
        "spec": {"taints": list(shape.taints)} if shape.taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": f"10.{128 + (number >> 16 & 63)}.{number >> 8 & 255}.{number & 255}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Simulated", "message": "this node is simulated"},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": "simulated",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    }
