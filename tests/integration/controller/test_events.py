"""Events of evictions are on the pod, on the Deployment or StatefulSet, and on the policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess, evictions, policy, refused
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment, wait_for_ready_pods
from tests.processes import wait_until


@pytest.fixture
def skewed(installed_sandbox: Sandbox) -> Sandbox:
    """A cluster with Respread installed, a Deployment and a StatefulSet in one of its three zones."""
    sandbox = lay_out(installed_sandbox, 4)
    sandbox.create_namespace("shop")
    create_deployment(sandbox, "shop", deployment("web", replicas=6, constraints=[constraint(ZONE, "web")]))
    like = deployment("db", replicas=6, constraints=[constraint(ZONE, "db")])
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {**like["spec"], "serviceName": "db", "podManagementPolicy": "Parallel"},
    }
    sandbox.api.request("POST", "/apis/apps/v1/namespaces/shop/statefulsets", stateful)
    for name in ("web", "db"):
        wait_for_ready_pods(sandbox, "shop", name, 6)
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)
    return sandbox


def test_kubectl_shows_the_events(skewed: Sandbox, tmp_path: Path) -> None:
    skewed.apply(json.dumps(policy()))
    with OperatorProcess(skewed, tmp_path) as operator:
        operator.wait_until_ready()

        def shown(*arguments: str) -> str:
            return skewed.kubectl(*arguments, "-n", "shop")

        def reported(*arguments: str) -> bool:
            return "EvictedForSpread" in shown(*arguments)

        for workload in ("deployment/web", "statefulset/db"):
            wait_until(lambda workload=workload: reported("describe", workload), f"the Events of {workload}")  # type: ignore[misc]
            wait_until(lambda workload=workload: reported("events", "--for", workload), f"the Events for {workload}")  # type: ignore[misc]
        wait_until(lambda: len(evictions(skewed)) == 8, "all evictions")
        for each in evictions(skewed):
            pod = f"pod/{each['objectRef']['name']}"
            wait_until(lambda pod=pod: reported("events", "--for", pod), f"the Event of {pod}")  # type: ignore[misc]
        assert "maxSkew 1 allows" in shown("describe", "deployment/web")
        wait_until(
            lambda: "EvictedForSpread" in skewed.kubectl("describe", "clusterrebalancepolicy", "test"),
            "the Event of the policy",
        )
        lease = skewed.api.get("/apis/coordination.k8s.io/v1/namespaces/respread-system/leases/respread")
        events = skewed.api.get("/apis/events.k8s.io/v1/namespaces/shop/events")["items"]
        reporters = {each["reportingInstance"] for each in events if each["reason"] == "EvictedForSpread"}
        assert reporters == {lease["spec"]["holderIdentity"]}
        assert operator.stop() == 0
    assert refused(skewed) == []
