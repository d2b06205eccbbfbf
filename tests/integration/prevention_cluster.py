"""Deployments with ranked pods, and functions that read their state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from respread_sandbox import Sandbox
from tests.integration.operator_process import REPOSITORY, policy, requests
from tests.integration.workloads import HOSTNAME, ZONE, constraint, create_deployment, deployment, is_ready, pods

COST = "controller.kubernetes.io/pod-deletion-cost"
RIGHT = REPOSITORY / "manifests" / "components" / "prevention" / "cluster-role.yaml"
"""The manifests that allow the operator to patch pods."""
PREVENTS: dict[str, Any] = {"prevention": {"podDeletionCost": "Enabled"}}
"""Part of a policy's spec."""


def create(
    sandbox: Sandbox, name: str, replicas: int, *, hostname: str | None = "ScheduleAnyway", **fields: Any
) -> None:
    """Create a Deployment in namespace shop, spread over zones and, if requested, hosts."""
    constraints = [constraint(ZONE, name)]
    if hostname is not None:
        constraints.append(constraint(HOSTNAME, name, when_unsatisfiable=hostname))
    create_deployment(sandbox, "shop", deployment(name, replicas=replicas, constraints=constraints, **fields))


def prevent(sandbox: Sandbox, **spec: Any) -> None:
    """Apply a policy that prevents and does not evict, so that the skew of a scale-down stays visible."""
    sandbox.apply(RIGHT)
    sandbox.apply(json.dumps(policy(mode="DryRun", **PREVENTS, **spec)))


def costs(sandbox: Sandbox, name: str) -> dict[str, str]:
    """Return the costs of an app's pods with costs, by the pods' names."""
    found = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in pods(sandbox, "shop", name)}
    return {pod: annotations[COST] for pod, annotations in found.items() if COST in annotations}


def by_app(sandbox: Sandbox) -> dict[str, list[dict[str, Any]]]:
    """Return the pods of each app."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in pods(sandbox, "shop"):
        found.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
    return found


def all_ready(sandbox: Sandbox, replicas: Mapping[str, int], *, ranked: bool) -> bool:
    """Return whether each app has the right number of pods, all Ready, and with costs if they are to be ranked."""
    found = by_app(sandbox)
    return all(
        len(found.get(name, ())) == count
        and all(is_ready(pod) and (not ranked or count == 1 or _has_cost(pod)) for pod in found[name])
        for name, count in replicas.items()
    )


def excess(sandbox: Sandbox, key: str) -> dict[str, int]:
    """Return how many pods of each app exceed the minimum plus a maxSkew of 1."""
    nodes = sandbox.api.get("/api/v1/nodes")["items"]
    domains = {node["metadata"]["name"]: node["metadata"]["labels"][key] for node in nodes}
    above = {}
    for name, found in by_app(sandbox).items():
        counts = Counter(dict.fromkeys(domains.values(), 0))
        counts.update(domains[pod["spec"]["nodeName"]] for pod in found)
        above[name] = sum(max(0, count - min(counts.values()) - 1) for count in counts.values())
    return above


def patches(sandbox: Sandbox) -> Counter[str]:
    """Return how often the API server patched each pod for the operator."""
    return Counter(name for name, _received in patched_at(sandbox))


def patched_at(sandbox: Sandbox) -> list[tuple[str, datetime]]:
    """Return the names of pods that the API server patched for the operator, and when it received each request."""
    return [
        (entry["objectRef"]["name"], datetime.fromisoformat(entry["requestReceivedTimestamp"]))
        for entry in requests(sandbox)
        if entry["verb"] == "patch"
        and entry["objectRef"]["resource"] == "pods"
        and entry["responseStatus"]["code"] == 200
    ]


def _has_cost(pod: dict[str, Any]) -> bool:
    return COST in pod["metadata"].get("annotations", {})
