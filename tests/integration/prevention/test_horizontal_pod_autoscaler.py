"""A real HorizontalPodAutoscaler that scales a workload up and down by an external metric."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox, SandboxOptions
from tests.integration.explaining import operator_messages
from tests.integration.external_metrics import ExternalMetrics, autoscaler
from tests.integration.operator_process import OperatorProcess, evictions, install, policy
from tests.integration.prevention_cluster import COST, PREVENTS, RIGHT, all_ready, create, excess
from tests.integration.workloads import ZONE, pods, scale, wait_until

MANY, FEW = 12, 4
OSCILLATIONS = 20
PER_HOUR = 5
QUIET_SECONDS = 3.0
"""The time for which a load stays the same, long enough for evictions."""
NAMESPACE = "shop"
POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/test"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def cluster(start_sandbox: Callable[[SandboxOptions], Sandbox]) -> Sandbox:
    """Twelve nodes in three zones, and autoscalers that look at the load every second instead of every 15 s."""
    often = ("--horizontal-pod-autoscaler-sync-period=1s",)
    sandbox = start_sandbox(SandboxOptions(nodes_per_zone=(4, 4, 4), audit=True, controller_manager_flags=often))
    install(sandbox)
    scale(sandbox, "respread-system", "respread", 0)
    sandbox.create_namespace(NAMESPACE)
    return sandbox


@pytest.fixture
def metrics(cluster: Sandbox) -> Iterator[ExternalMetrics]:
    """The load of a Deployment `web`, which has an autoscaler."""
    create(cluster, "web", MANY)
    with ExternalMetrics(cluster, load=MANY) as served:
        cluster.api.request("POST", AUTOSCALERS, autoscaler("web", at_most=MANY))
        yield served


def autoscaled(sandbox: Sandbox, replicas: int) -> bool:
    """Return whether the autoscaler reports this number of desired replicas."""
    status = sandbox.api.get(f"{AUTOSCALERS}/web").get("status", {})
    return bool(status.get("desiredReplicas") == replicas)


def condition(sandbox: Sandbox, name: str) -> dict[str, Any]:
    """Return a condition of the policy; empty if it has none."""
    conditions = sandbox.api.get(POLICY).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == name), {})


def keep_those_in_zone_a(sandbox: Sandbox) -> None:
    """Let the next scale-down delete pods of other zones first by costs of another writer, so that it leaves skew."""
    found = [each["metadata"] for each in sandbox.api.get("/api/v1/nodes")["items"]]
    zones = {each["name"]: each["labels"][ZONE] for each in found}
    for pod in pods(sandbox, NAMESPACE, "web"):
        cost = "100" if zones.get(pod["spec"].get("nodeName")) == "zone-a" else "-100"
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        sandbox.api.request("PATCH", path, {"metadata": {"annotations": {COST: cost}}})


@pytest.mark.long
def test_an_oscillating_horizontal_pod_autoscaler_causes_no_eviction_with_prevention(
    cluster: Sandbox, metrics: ExternalMetrics, tmp_path: Path
) -> None:
    rng = random.Random(14)
    cluster.apply(RIGHT)
    cluster.apply(json.dumps(policy(**PREVENTS)))
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        for _ in range(OSCILLATIONS):
            wait_until(lambda: all_ready(cluster, {"web": MANY}, ranked=True), "all pods to be ranked")
            metrics.load = few = rng.randint(FEW, 8)
            wait_until(lambda few=few: autoscaled(cluster, few), "the autoscaler to scale down")  # type: ignore[misc]  # no types for defaults
            wait_until(lambda few=few: all_ready(cluster, {"web": few}, ranked=False), "the pods to be gone")  # type: ignore[misc]
            assert excess(cluster, ZONE) == {"web": 0}
            metrics.load = MANY
        assert operator.stop() == 0
    assert evictions(cluster) == []


@pytest.mark.long
def test_an_oscillating_horizontal_pod_autoscaler_causes_few_evictions_without_prevention(
    cluster: Sandbox, metrics: ExternalMetrics, tmp_path: Path
) -> None:
    def oscillate() -> None:
        wait_until(lambda: len(pods(cluster, NAMESPACE, "web")) == MANY, "the autoscaler to scale up")
        wait_until(lambda: all_ready(cluster, {"web": MANY}, ranked=False), "all pods to be Ready")
        keep_those_in_zone_a(cluster)
        metrics.load = FEW
        wait_until(lambda: autoscaled(cluster, FEW), "the autoscaler to scale down")
        wait_until(lambda: all_ready(cluster, {"web": FEW}, ranked=False), "the pods to be gone")
        time.sleep(QUIET_SECONDS)

    cluster.apply(json.dumps(policy(limits={"inFlightPerWorkload": 4, "perHourPerGroup": PER_HOUR})))
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        for _ in range(OSCILLATIONS):
            oscillate()
            if condition(cluster, "Oscillating").get("status") == "True":
                break
            metrics.load = MANY
        assert f"Deployment/web in {NAMESPACE}" in condition(cluster, "Oscillating")["message"]
        assert len(evictions(cluster)) == PER_HOUR

        def says_so() -> bool:
            return "an autoscaler that scales up and down" in operator_messages(cluster, NAMESPACE, "deploy/web")

        wait_until(says_so, "explain to say so")
        for _ in range(3):
            metrics.load = MANY
            oscillate()
        assert len(evictions(cluster)) == PER_HOUR
        assert operator.stop() == 0
