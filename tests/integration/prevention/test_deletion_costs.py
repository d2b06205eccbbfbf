"""A cost that somebody else has written meanwhile, as the API server answers an apply."""

from __future__ import annotations

import pytest

from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.pod import Pod
from respread.prevention.deletion_costs import DeletionCosts, PatchAnswer, PatchResult
from respread.prevention.ranks import HeldCost
from respread_sandbox import Sandbox
from tests.integration.eviction_cluster import EvictionCluster, with_requests


@pytest.fixture
def cluster(api_sandbox: Sandbox) -> EvictionCluster:
    return EvictionCluster(api_sandbox)


def apply(cluster: EvictionCluster, pod: Pod, cost: int | None, *, replacing: bool = False) -> PatchAnswer | None:
    """Set a pod's cost as if the watch had shown none."""
    return with_requests(
        cluster.sandbox.kubeconfig,
        lambda requests: DeletionCosts(requests).set(pod, cost, known=None, replacing=replacing),
    )


def stored(cluster: EvictionCluster, pod: Pod) -> str | None:
    """Return the pod's cost according to the API server."""
    metadata = cluster.sandbox.api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")["metadata"]
    cost: str | None = metadata.get("annotations", {}).get(POD_DELETION_COST)
    return cost


def test_a_cost_of_another_writer_is_replaced_only_if_the_policy_allows_it(cluster: EvictionCluster) -> None:
    pod = cluster.add_pod("a")
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}?fieldManager=karpenter"
    cluster.sandbox.api.request("PATCH", path, {"metadata": {"annotations": {POD_DELETION_COST: "5"}}})
    for cost in (-1000, None):
        answer = apply(cluster, pod, cost)
        assert answer is not None
        assert (answer.result, stored(cluster, pod)) == (
            PatchResult.FOREIGN if cost is not None else PatchResult.APPLIED,
            "5",
        )
    answer = apply(cluster, pod, -1000, replacing=True)
    assert answer is not None
    assert (answer.result, stored(cluster, pod)) == (PatchResult.APPLIED, "-1000")
    assert apply(cluster, pod, None) is not None
    assert stored(cluster, pod) is None


def test_a_cost_is_read_before_it_is_set_where_that_is_wanted(cluster: EvictionCluster) -> None:
    pod = cluster.add_pod("a")
    assert apply(cluster, pod, -7) is not None
    found = with_requests(
        cluster.sandbox.kubeconfig, lambda requests: DeletionCosts(requests).set(pod, -8, known=None, careful=True)
    )
    assert found == PatchAnswer(result=PatchResult.ALREADY, cost=HeldCost(-7, ours=True))
    assert stored(cluster, pod) == "-7"
