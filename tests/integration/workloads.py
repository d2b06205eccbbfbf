"""Deployments with topology spread constraints, and functions that wait for their pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from respread_sandbox import Sandbox
from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.processes import PATIENCE_SECONDS
from tests.processes import wait_until as wait_until  # noqa: PLC0414  # how a re-export is marked for mypy

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def constraint(
    topology_key: str, app: str, *, max_skew: int = 1, when_unsatisfiable: str = "DoNotSchedule", **fields: Any
) -> dict[str, Any]:
    """Return a topology spread constraint over the pods of an app, with additional fields."""
    return {
        "maxSkew": max_skew,
        "topologyKey": topology_key,
        "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": {"matchLabels": {"app": app}},
        **fields,
    }


def deployment(
    name: str,
    *,
    replicas: int,
    constraints: Sequence[dict[str, Any]] = (),
    cpu: str = "100m",
    annotations: dict[str, str] | None = None,
    **pod_spec: Any,
) -> dict[str, Any]:
    """Return a Deployment whose pods have the label app=name, with additional fields of the pod's spec."""
    labels = {"app": name}
    container = {"name": "main", "image": "simulated", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    spec = {"containers": [container], "topologySpreadConstraints": list(constraints), **pod_spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": spec},
        },
    }


def budget(app: str, max_unavailable: int | str) -> dict[str, Any]:
    """Return a PodDisruptionBudget of the pods of an app, with its name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": app}}},
    }


def create_deployment(sandbox: Sandbox, namespace: str, manifest: dict[str, Any]) -> None:
    """Create a Deployment. Its pods are created later."""
    sandbox.api.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", manifest)


def scale(sandbox: Sandbox, namespace: str, name: str, replicas: int) -> None:
    """Set a Deployment's number of replicas."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
    sandbox.api.request("PATCH", path, {"spec": {"replicas": replicas}})


def pods(sandbox: Sandbox, namespace: str, app: str | None = None) -> list[dict[str, Any]]:
    """Return the pods of an app, or all of a namespace, including terminating ones."""
    selector = f"?labelSelector=app%3D{app}" if app else ""
    items: list[dict[str, Any]] = sandbox.api.get(f"/api/v1/namespaces/{namespace}/pods{selector}")["items"]
    return items


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether the pod is Ready and not terminating."""
    conditions = pod["status"].get("conditions", ())
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def labels_of_nodes(sandbox: Sandbox) -> dict[str, dict[str, str]]:
    """Return the labels of each node."""
    return {node["metadata"]["name"]: node["metadata"]["labels"] for node in sandbox.api.get("/api/v1/nodes")["items"]}


def leave_in_zone(sandbox: Sandbox, namespace: str, name: str, zone: str) -> int:
    """Scale a Deployment down so that all that is left of it is in one zone. Return how many pods these are."""
    nodes, before = labels_of_nodes(sandbox), pods(sandbox, namespace, name)
    path = f"/api/v1/namespaces/{namespace}/pods"
    staying = [pod for pod in before if nodes[pod["spec"]["nodeName"]][ZONE] == zone]
    for pod in before:
        cost = {"controller.kubernetes.io/pod-deletion-cost": "100" if pod in staying else "-100"}
        sandbox.api.request("PATCH", f"{path}/{pod['metadata']['name']}", {"metadata": {"annotations": cost}})
    # A ReplicaSet that has replaced a pod has seen all that was written to pods before. It may see a scale-down sooner.
    gone = next(pod for pod in before if pod not in staying)["metadata"]["name"]
    sandbox.api.request("DELETE", f"{path}/{gone}?gracePeriodSeconds=0")
    wait_for_ready_pods(sandbox, namespace, name, len(before))
    scale(sandbox, namespace, name, len(staying))
    return len(staying)


def pods_per_domain(sandbox: Sandbox, namespace: str, app: str, topology_key: str = ZONE) -> dict[str, int]:
    """Return how many pods of an app each domain with nodes has, without terminating ones, as the scheduler counts."""
    nodes = labels_of_nodes(sandbox)
    counts = Counter({labels[topology_key]: 0 for labels in nodes.values() if topology_key in labels})
    for pod in pods(sandbox, namespace, app):
        if "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
            counts[nodes[pod["spec"]["nodeName"]][topology_key]] += 1
    return dict(counts)


def wait_for_ready_pods(
    sandbox: Sandbox, namespace: str, app: str, count: int, *, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until an app has exactly this many pods, all Ready."""

    def all_ready() -> bool:
        found = pods(sandbox, namespace, app)
        return len(found) == count and all(is_ready(pod) for pod in found)

    wait_until(all_ready, f"{count} Ready pods of {app}", seconds=seconds)


def evict_slowly(sandbox: Sandbox, namespace: str, app: str, seconds: int = 3) -> dict[str, Any]:
    """Evict a Ready pod of an app as another descheduler does, and return it. It terminates slowly."""
    ready = next(pod for pod in pods(sandbox, namespace, app) if is_ready(pod))
    name = ready["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    sandbox.api.request("PATCH", path, {"metadata": {"annotations": {TERMINATE_AFTER_ANNOTATION: str(seconds)}}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    sandbox.api.request("POST", f"{path}/eviction", eviction)
    return ready


def resize(sandbox: Sandbox, namespace: str, name: str, cpu: str) -> None:
    """Request another amount of cpu for a pod of `deployment`, in place."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    found = sandbox.api.get(path)
    resources = found["spec"]["containers"][0]["resources"]
    told = [{**each, "resources": resources} for each in found["status"]["containerStatuses"]]
    sandbox.api.request("PATCH", f"{path}/status", {"status": {"containerStatuses": told}})  # as kubelets report it
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    sandbox.api.request("PATCH", f"{path}/resize", {"spec": {"containers": containers}}, patch_type="strategic-merge")
