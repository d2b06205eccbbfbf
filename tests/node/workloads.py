"""Deployments on real and on simulated nodes, and scale-downs that leave all pods in one zone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from respread_sandbox import Sandbox
from respread_sandbox.nodes import MANAGED_NODE_LABEL
from tests.integration.operator_process import evictions
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment
from tests.integration.workloads import leave_in_zone as leave_in_zone  # noqa: PLC0414  # how mypy marks a re-export
from tests.integration.workloads import pods_per_domain as pods_per_domain  # noqa: PLC0414  # how mypy marks a re-export
from tests.node.programs import WORKLOAD_IMAGE
from tests.processes import wait_until

ZONES: Final = ("zone-a", "zone-b", "zone-c")
REAL_ZONES: Final = ZONES[:2]
_KEY, _VALUE = MANAGED_NODE_LABEL.split("=")
_PROBE: Final = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}


def on_real_nodes(
    name: str, replicas: int, *, ready_after_seconds: int = 0, stop_after_seconds: int = 0, grace_seconds: int = 30
) -> dict[str, Any]:
    """Return a Deployment over the zones of real nodes, with containers that start and stop as slowly as they shall."""
    # Simulated nodes have a taint, so that their zones don't count.
    spread = constraint(ZONE, name, nodeTaintsPolicy="Honor")
    manifest = deployment(
        name, replicas=replicas, constraints=[spread], cpu="1m", terminationGracePeriodSeconds=grace_seconds
    )
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container |= {"image": WORKLOAD_IMAGE, "imagePullPolicy": "Never", "args": [f"-stop-after={stop_after_seconds}s"]}
    container["resources"]["requests"]["memory"] = "1Mi"
    if ready_after_seconds:
        container["args"].append(f"-ready-after={ready_after_seconds}s")
        container["readinessProbe"] = _PROBE
    return manifest


def on_simulated_nodes(name: str, replicas: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Deployment over the zones of simulated nodes."""
    return deployment(
        name,
        replicas=replicas,
        constraints=[constraint(ZONE, name)],
        annotations=annotations,
        nodeSelector={_KEY: _VALUE},
        tolerations=[{"operator": "Exists"}],
    )


def create(sandbox: Sandbox, namespace: str, manifests: Sequence[dict[str, Any]]) -> None:
    """Create Deployments, and wait until their pods are Ready."""
    for manifest in manifests:
        create_deployment(sandbox, namespace, manifest)
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        sandbox.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", "--timeout=240s")


def wait_until_only_in(sandbox: Sandbox, namespace: str, name: str, zone: str) -> None:
    """Wait until an app has pods in one zone only."""

    def there() -> dict[str, int]:
        return {each: count for each, count in pods_per_domain(sandbox, namespace, name).items() if count}

    wait_until(
        lambda: set(there()) == {zone},
        lambda: f"{name} to be in {zone} only, not {there()} after {evicted(sandbox, namespace)} evictions",
    )


def evicted(sandbox: Sandbox, namespace: str) -> int:
    """Return how many evictions Respread has made in a namespace."""
    return sum(entry["objectRef"]["namespace"] == namespace for entry in evictions(sandbox))


def is_even(sandbox: Sandbox, namespace: str, name: str, zones: Sequence[str]) -> bool:
    """Return whether an app has pods in each of these zones, and at most one more in one than in another."""
    counts = pods_per_domain(sandbox, namespace, name)
    here = [counts[zone] for zone in zones]
    return max(here) - min(here) <= 1 and min(here) > 0
