"""Deployments with [n, 0, 0] pods whose replacements don't become Ready until they are healed."""

from __future__ import annotations

from typing import Any

from respread_sandbox import ApiError, Sandbox
from tests.faults.rounds import close_zones, wait_for
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment, is_ready, pods

READY_AFTER = "sandbox.respread.dev/ready-after-seconds"


def skewed(cluster: Sandbox, namespace: str, *names: str, replicas: int, broken: bool) -> None:
    """Create Deployments with all pods in one of three zones. The replacements of broken ones never become Ready.

    The first pods of a broken one are made Ready by hand.
    """
    close_zones(cluster, closed=True)
    for name in names:
        zone = constraint(ZONE, name, nodeTaintsPolicy="Honor")
        annotations = {READY_AFTER: "never"} if broken else {}
        manifest = deployment(name, replicas=replicas, constraints=[zone], annotations=annotations)
        create_deployment(cluster, namespace, manifest)

    def all_ready() -> bool:
        heal(cluster, namespace)
        return all(sum(map(is_ready, pods(cluster, namespace, name))) == replicas for name in names)

    wait_for(all_ready, "all pods to be Ready")
    close_zones(cluster, closed=False)


def heal(cluster: Sandbox, namespace: str) -> None:
    """Make every pod Ready."""
    for pod in pods(cluster, namespace):
        if pod["metadata"].get("annotations", {}).get(READY_AFTER) == "never":
            body = {"metadata": {"annotations": {READY_AFTER: "0"}}}
            patch(cluster, f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", body)


def patch(cluster: Sandbox, path: str, body: dict[str, Any]) -> None:
    """Patch a pod that may be deleted by now."""
    try:
        cluster.api.request("PATCH", path, body)
    except ApiError as error:
        if error.status != 404:
            raise
