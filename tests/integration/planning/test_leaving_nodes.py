"""Respread waits for nodes that lose their pods, on a real control plane, if that restores the spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.integration.pools import Pool
from tests.integration.workloads import HOSTNAME, ZONE, constraint, is_ready, wait_until

REPLICAS = 8
SOON = {TERMINATE_AFTER_ANNOTATION: "1"}


def taint(pool: Pool, node: str, key: str, effect: str) -> None:
    """Add a taint to a node."""
    path = f"/api/v1/nodes/{node}"
    taints = pool.sandbox.api.get(path)["spec"].get("taints", [])
    pool.sandbox.api.request("PATCH", path, {"spec": {"taints": [*taints, {"key": key, "effect": effect}]}})


def crowded(pool: Pool, **pod_spec: Any) -> str:
    """Place all pods in one of two zones, and return a node there with at least half of them.

    Half of the pods have to move. If the pods of this node move, no others have to.
    """
    pool.add_zone("zone-a", 2)
    pool.deploy("web", REPLICAS, constraints=[constraint(ZONE, "web")], annotations=SOON, **pod_spec)
    pool.add_zone("zone-b", 2)
    hosts = pool.counts(HOSTNAME)
    return max(hosts, key=hosts.__getitem__)


def on_node(pool: Pool, node: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in pool.pods() if pod["spec"].get("nodeName") == node and is_ready(pod)]


def evict(pool: Pool, pod: str) -> None:
    path = f"/api/v1/namespaces/{pool.name}/pods/{pod}/eviction"
    named = {"name": pod, "namespace": pool.name}
    pool.sandbox.api.request("POST", path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named})


def drain(pool: Pool, node: str) -> int:
    """Evict the remaining pods of a node one after another, and return their number."""
    names = on_node(pool, node)
    for name in names:
        evict(pool, name)
        wait_until(
            lambda name=name: name not in {pod["metadata"]["name"] for pod in pool.pods()},  # type: ignore[misc]  # no types for defaults
            f"{name} to be gone",
        )
        pool.wait_for(REPLICAS)
    return len(names)


def why(pool: Pool) -> list[tuple[str, str]]:
    """Return the reason and message of each violation in the status."""
    return [(each["reason"], each["message"]) for each in pool.status().get("violations", ())]


def by_karpenter(pool: Pool, node: str) -> int:
    taint(pool, node, "karpenter.sh/disrupted", "NoSchedule")
    return 0


def by_cluster_autoscaler(pool: Pool, node: str) -> int:
    taint(pool, node, "ToBeDeletedByClusterAutoscaler", "NoSchedule")
    return 0


def by_kubectl_drain(pool: Pool, node: str) -> int:
    """Cordon the node, and evict the first pod, slowly: a cordon alone does not say that its pods will leave."""
    pool.sandbox.nodes.cordon(node)
    first = on_node(pool, node)[0]
    slowly = {"metadata": {"annotations": {TERMINATE_AFTER_ANNOTATION: "4"}}}
    pool.sandbox.api.request("PATCH", f"/api/v1/namespaces/{pool.name}/pods/{first}", slowly)
    evict(pool, first)
    return 1


@pytest.mark.parametrize("leave", [by_karpenter, by_cluster_autoscaler, by_kubectl_drain])
def test_a_skew_that_a_drain_restores_causes_no_eviction(pool: Pool, leave: Callable[[Pool, str], int]) -> None:
    node = crowded(pool)
    gone = leave(pool, node)
    pool.rebalance()
    wait_until(
        lambda: any(reason == "NodeLeaving" for reason, _ in why(pool)), lambda: f"the reason; it is {why(pool)}"
    )
    assert any(f"node {node} will lose its pods" in message for _, message in why(pool))
    pool.wait_for(REPLICAS)
    gone += drain(pool, node)
    assert gone >= REPLICAS / 2
    wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the drain to restore the spread")
    assert pool.evicted() == []
    assert pool.counts() == {"zone-a": REPLICAS / 2, "zone-b": REPLICAS / 2}


def assert_restored_without_evictions(pool: Pool) -> None:
    wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the spread to be restored")
    pool.wait_for(REPLICAS)
    assert pool.evicted() == []
    assert pool.counts() == {"zone-a": REPLICAS / 2, "zone-b": REPLICAS / 2}


@pytest.mark.parametrize("key", ["example.com/broken", "node.kubernetes.io/out-of-service"])
def test_pods_that_a_taint_evicts_are_waited_for(pool: Pool, key: str) -> None:
    node = crowded(pool)
    taint(pool, node, key, "NoExecute")
    pool.rebalance()
    assert_restored_without_evictions(pool)


def test_pods_that_tolerate_a_taint_for_a_time_are_waited_for(pool: Pool) -> None:
    """The time is long enough for Respread to evict the pods if it did not know that they will be deleted."""
    key = "example.com/broken"
    for_a_time = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}
    node = crowded(pool, tolerations=[for_a_time])
    taint(pool, node, key, "NoExecute")
    pool.rebalance()
    assert_restored_without_evictions(pool)


def test_pods_of_a_leaving_node_are_evicted_first_if_the_drain_is_not_enough(pool: Pool) -> None:
    """Three nodes hold the pods evenly, and half of them must move, including those of the leaving node."""
    pool.add_zone("zone-a", 4)
    even = [constraint(ZONE, "web"), constraint(HOSTNAME, "web", max_skew=2)]
    pool.deploy("web", REPLICAS, constraints=even)
    (leaving, *_) = [host for host, pods in pool.counts(HOSTNAME).items() if pods]
    here = on_node(pool, leaving)
    taint(pool, leaving, "karpenter.sh/disrupted", "NoSchedule")
    pool.add_zone("zone-b", 4)
    assert len(here) < REPLICAS / 2
    pool.rebalance()
    pool.wait_until_balanced(REPLICAS, REPLICAS // 2)
    evicted = pool.evicted()
    assert len(evicted) == REPLICAS / 2
    assert set(here) <= set(evicted)


def test_a_leaving_node_that_keeps_its_pods_is_waited_for_a_limited_time(pool: Pool) -> None:
    node = crowded(pool)
    taint(pool, node, "karpenter.sh/disrupted", "NoSchedule")
    pool.rebalance(leavingNodePatience="4s")
    pool.wait_until_balanced(REPLICAS, REPLICAS // 2)
    assert len(pool.evicted()) == REPLICAS / 2


@pytest.mark.parametrize("until", ["it is reported", pytest.param("it is restored", marks=pytest.mark.long)])
def test_pods_whose_node_is_deleted_are_waited_for(pool: Pool, until: str) -> None:
    """Kubernetes deletes them up to a minute later. Until then they exist, and count in no zone."""
    for zone in ("zone-a", "zone-b"):
        pool.add_zone(zone)
    (lost,) = pool.add_zone("zone-c")
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    assert pool.counts() == {"zone-a": 2, "zone-b": 2, "zone-c": 2}
    pool.add_zone("zone-c")
    pool.sandbox.api.request("DELETE", f"/api/v1/nodes/{lost}")
    pool.rebalance()
    wait_until(
        lambda: any(f"node {lost} of" in message for _, message in why(pool)), lambda: f"the reason; it is {why(pool)}"
    )
    if until == "it is restored":
        wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the pods to be replaced")
        pool.wait_for(6)
        assert pool.counts() == {"zone-a": 2, "zone-b": 2, "zone-c": 2}
    assert pool.evicted() == []
