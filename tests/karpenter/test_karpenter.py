"""Karpenter and the operator on one cluster: `make test-karpenter`.

Karpenter's own controllers and its KWOK provider run beside the real control plane; KWOK simulates the nodes that it
launches. Each test has its own control plane, because the nodes of one test would be domains for the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Binaries
from tests.integration.capacity_buffers import buffers
from tests.integration.operator_process import REPOSITORY
from tests.integration.pools import holds
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment, is_ready, scale
from tests.karpenter.karpenter_cluster import KarpenterCluster, karpenter_cluster

QUIET_SECONDS = 5
"""The time without a change after which a scenario counts as finished."""
SWINGS_SECONDS = float(os.environ.get("RESPREAD_KARPENTER_SECONDS", "90"))
"""How long the workload is scaled up and down while Karpenter consolidates."""
SWING_SECONDS = 20
MANY, FEW = 12, 5
DEFAULT_POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
DISRUPTED = "karpenter.sh/disrupted"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

pytestmark = pytest.mark.timeout(SWINGS_SECONDS + 600)


@pytest.fixture
def cluster(binaries: Binaries, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KarpenterCluster]:
    with karpenter_cluster(binaries, tmp_path, *getattr(request, "param", ())) as running:
        yield running


@pytest.fixture
def namespace(cluster: KarpenterCluster) -> str:
    return cluster.sandbox.create_namespace("shop")


def deploy(cluster: KarpenterCluster, namespace: str, name: str, replicas: int, **fields: Any) -> None:
    """Create a Deployment and wait until Karpenter has launched nodes for its pods and they are Ready."""
    create_deployment(cluster.sandbox, namespace, deployment(name, replicas=replicas, **fields))
    wait_for_ready(cluster, namespace, name, replicas)


def wait_for_ready(cluster: KarpenterCluster, namespace: str, name: str, replicas: int) -> None:
    def all_ready() -> bool:
        found = cluster.pods(namespace, name)
        return len(found) == replicas and all(map(is_ready, found))

    cluster.wait_until(all_ready, f"{replicas} Ready pods of {name}")


def keep_those_in(cluster: KarpenterCluster, namespace: str, zone: str) -> None:
    """Make the next scale-down delete pods of other zones first, so that it violates the constraint."""
    kept = set(cluster.nodes_of(zone))
    for pod in cluster.pods(namespace, "web"):
        cost = "100" if pod["spec"].get("nodeName") in kept else "-100"
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
        cluster.sandbox.api.request("PATCH", path, {"metadata": {"annotations": {DELETION_COST: cost}}})


def anchor(zone: str, **fields: Any) -> dict[str, Any]:
    """A Deployment of one pod that makes Karpenter launch a node in a zone and keep it."""
    kept = {"karpenter.sh/do-not-disrupt": "true"}
    return deployment("anchor", replicas=1, nodeSelector={ZONE: zone}, annotations=kept, **fields)


def enforce_with_room(cluster: KarpenterCluster, namespace: str) -> None:
    """Create a policy that evicts and asks for room in zone-a and zone-b, with the permission to do so."""
    for name in ("role.yaml", "priority-class.yaml"):
        cluster.sandbox.apply(REPOSITORY / "manifests" / "components" / "room" / name)
    expected = {"topologyKey": ZONE, "values": ["zone-a", "zone-b"]}
    asked = {**expected, "provision": "Request", "priorityClassName": "respread-placeholder"}
    cluster.enforce(namespace, constraints={"expectedDomains": [asked]})


def test_a_node_that_karpenter_disrupts_takes_no_pod(cluster: KarpenterCluster, namespace: str) -> None:
    cluster.set_pool(zones=("zone-a",))
    deploy(cluster, namespace, "web", 4, constraints=[constraint(ZONE, "web")])
    cluster.set_pool(zones=("zone-a", "zone-b"))
    create_deployment(cluster.sandbox, namespace, anchor("zone-b"))
    node = cluster.node_in("zone-b")
    wait_for_ready(cluster, namespace, "anchor", 1)
    cluster.enforce(
        namespace, mode="DryRun"
    )  # until the operator has seen the taint, because it watches nodes and policies separately
    claim = cluster.claim_of(node)["metadata"]["name"]
    cluster.sandbox.kubectl("delete", f"nodeclaim/{claim}", "--wait=false")  # the anchor pod delays the deletion
    cluster.wait_until(lambda: DISRUPTED in str(cluster.nodes()[node]["spec"].get("taints")), "the node to be tainted")
    taint = f"{node} has the taint {DISRUPTED}:NoSchedule"
    cluster.wait_until(lambda: taint in cluster.messages(namespace), "the policy to name the taint")
    cluster.enforce(namespace)
    cluster.wait_until(lambda: cluster.condition(namespace, "Blocked") == "True", "the policy to be blocked")
    assert taint in cluster.messages(namespace)
    time.sleep(QUIET_SECONDS)
    assert cluster.evicted(namespace) == []
    assert cluster.zones(namespace, "web") == {"zone-a": 4, "zone-b": 0}


def test_a_node_that_karpenter_has_not_initialized_takes_no_pod(cluster: KarpenterCluster, namespace: str) -> None:
    cluster.set_pool(zones=("zone-a",))
    deploy(cluster, namespace, "web", 4, constraints=[constraint(ZONE, "web")])
    starting = {"key": "example.com/agent-not-ready", "effect": "NoSchedule"}
    cluster.set_pool(zones=("zone-a", "zone-b"), startupTaints=[starting])
    tolerated = [{"key": starting["key"], "operator": "Exists"}]
    create_deployment(cluster.sandbox, namespace, anchor("zone-b", tolerations=tolerated))
    node = cluster.node_in("zone-b")
    wait_for_ready(cluster, namespace, "anchor", 1)
    cluster.enforce(namespace)
    cluster.wait_until(lambda: cluster.condition(namespace, "Blocked") == "True", "the policy to be blocked")
    assert f"{node} has the taint example.com/agent-not-ready:NoSchedule" in cluster.messages(namespace)
    conditions = cluster.claim_of(node)["status"]["conditions"]
    initialized = [each["status"] for each in conditions if each["type"] == "Initialized"]
    assert initialized != ["True"]
    time.sleep(QUIET_SECONDS)
    assert cluster.evicted(namespace) == []
    cluster.sandbox.api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}})
    cluster.wait_until(lambda: cluster.zones(namespace, "web") == {"zone-a": 2, "zone-b": 2}, "the spread")
    wait_for_ready(cluster, namespace, "web", 4)
    assert len(cluster.evicted(namespace)) == 2


@pytest.mark.parametrize(
    ("cluster", "kinds"),
    [
        pytest.param(("--feature-gates=CapacityBuffer=true",), ["CapacityBuffer"], id="with CapacityBuffers"),
        pytest.param((), ["CapacityBuffer", "Deployment"], id="without, though the kind is served"),
    ],
    indirect=["cluster"],
)
def test_a_zone_without_a_node_gets_one_and_the_spread_is_restored(
    cluster: KarpenterCluster, namespace: str, kinds: list[str]
) -> None:
    """The policy requests a node there. Only the pod of a placeholder is Pending."""
    cluster.set_pool(zones=("zone-a",))
    deploy(cluster, namespace, "web", 4, constraints=[constraint(ZONE, "web")])
    before = {pod["metadata"]["name"] for pod in cluster.pods(namespace, "web")}
    cluster.set_pool(zones=("zone-a", "zone-b"))
    enforce_with_room(cluster, namespace)
    cluster.wait_until(lambda: cluster.zones(namespace, "web") == {"zone-a": 2, "zone-b": 2}, "the spread")
    wait_for_ready(cluster, namespace, "web", 4)
    assert cluster.kinds_of_requests() == kinds
    path = "/apis/apps/v1/namespaces/respread-system/deployments?labelSelector=respread.dev/placeholder"
    assert cluster.sandbox.api.get(path)["items"] == []
    assert buffers(cluster.sandbox, "respread-system") == []
    assert len(cluster.nodes_of("zone-b")) == 1
    # If the node exists within a moment, the policy may never have reported that it is missing.
    cluster.wait_until(lambda: cluster.condition(namespace, "RoomMissing") != "True", "the condition RoomMissing")
    assert len(cluster.evicted(namespace)) == 2
    events = cluster.sandbox.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    waited = {each["involvedObject"]["name"] for each in events if each["reason"] == "FailedScheduling"}
    assert waited <= before


def test_a_full_zone_gets_a_node_and_the_spread_is_restored(cluster: KarpenterCluster, namespace: str) -> None:
    """Another workload fills the only node of zone-b. The pods are moved to the node that Karpenter adds there."""
    cluster.set_pool(zones=("zone-a",))
    deploy(cluster, namespace, "web", 4, constraints=[constraint(ZONE, "web")], cpu="800m")
    before = {pod["metadata"]["name"] for pod in cluster.pods(namespace, "web")}
    cluster.set_pool(zones=("zone-a", "zone-b"))
    create_deployment(cluster.sandbox, namespace, anchor("zone-b", cpu="1500m"))  # of the 2 CPUs of the smallest type
    full = cluster.node_in("zone-b")
    wait_for_ready(cluster, namespace, "anchor", 1)
    cluster.enforce(namespace)
    cluster.wait_until(lambda: cluster.condition(namespace, "Blocked") == "True", "the policy to be blocked")
    assert "zone-b holds the fewest pods, 0, and no node there takes a replacement" in cluster.messages(namespace)
    time.sleep(QUIET_SECONDS)
    assert cluster.evicted(namespace) == []
    assert cluster.nodes_of("zone-b") == [full]
    enforce_with_room(cluster, namespace)
    cluster.wait_until(lambda: cluster.zones(namespace, "web") == {"zone-a": 2, "zone-b": 2}, "the spread")
    wait_for_ready(cluster, namespace, "web", 4)
    assert cluster.kinds_of_requests() == ["CapacityBuffer", "Deployment"]  # Karpenter ignores the first
    assert {pod["spec"]["nodeName"] for pod in cluster.pods(namespace, "anchor")} == {full}
    assert len(cluster.evicted(namespace)) == 2
    events = cluster.sandbox.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    waited = {each["involvedObject"]["name"] for each in events if each["reason"] == "FailedScheduling"}
    assert {name for name in waited if name.startswith("web-")} <= before


def test_oscillating_replicas_during_consolidation_move_no_pod_twice(cluster: KarpenterCluster, namespace: str) -> None:
    """The pods end balanced, and no replacement is evicted again for the spread."""
    cluster.set_pool(consolidate_after="1s")
    deploy(cluster, namespace, "web", MANY, constraints=[constraint(ZONE, "web")], cpu="900m")
    unlimited = {"perHourPerGroup": 1_000_000}
    # The limits of a cluster policy apply in total: by default ten evictions an hour for this workload.
    cluster.sandbox.api.request("PATCH", DEFAULT_POLICY, {"spec": {"limits": unlimited}})
    cluster.enforce(namespace, limits={"inFlightPerWorkload": 4, **unlimited})
    begun = time.monotonic()
    while True:
        keep_those_in(cluster, namespace, "zone-a")
        scale(cluster.sandbox, namespace, "web", FEW)
        time.sleep(SWING_SECONDS)
        if time.monotonic() - begun > SWINGS_SECONDS:
            break
        scale(cluster.sandbox, namespace, "web", MANY)
        time.sleep(SWING_SECONDS)
    wait_for_ready(cluster, namespace, "web", FEW)
    cluster.wait_until(lambda: cluster.condition(namespace, "Balanced") == "True", "the policy to be balanced")
    wait_for_ready(cluster, namespace, "web", FEW)
    evicted = cluster.evicted(namespace)
    assert evicted, "no scale-down broke the spread, so nothing was shown"
    assert holds(cluster.zones(namespace, "web").values())
    assert not set(evicted) & cluster.replacements()
    assert len(evicted) == len(set(evicted))
