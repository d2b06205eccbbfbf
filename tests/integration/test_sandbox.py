"""The sandbox behaves as a cluster does."""

from __future__ import annotations

from respread.sandbox import Sandbox
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
)


def test_spread_deployment_becomes_ready_and_scales(sandbox: Sandbox, namespace: str) -> None:
    create_deployment(sandbox, namespace, deployment("web", replicas=9, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, namespace, "web", 9)
    assert pods_per_domain(sandbox, namespace, "web") == {"zone-a": 3, "zone-b": 3, "zone-c": 3}
    scale(sandbox, namespace, "web", 2)
    wait_for_ready_pods(sandbox, namespace, "web", 2)
