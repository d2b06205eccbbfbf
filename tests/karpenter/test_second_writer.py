"""Karpenter with its feature gate PodDeletionCostManagement, which removes and overwrites pod deletion costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from respread.prevention.contests import WAIT
from respread_sandbox import Binaries
from tests.integration.operator_process import refused
from tests.integration.prevention_cluster import PREVENTS, RIGHT, all_ready, costs, create, excess, patches
from tests.integration.workloads import ZONE, create_deployment, deployment, scale
from tests.karpenter.karpenter_cluster import KarpenterCluster, karpenter_cluster
from tests.processes import wait_until

GATE = "--feature-gates=PodDeletionCostManagement=true"
NAMESPACE = "shop"
ROUNDS_SECONDS = 420
"""Karpenter looks once a minute and writes if its cluster has changed. Costs are contested once removed twice."""
CHURN_SECONDS = 5
ELSEWHERE = "elsewhere"

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def cluster(binaries: Binaries, tmp_path: Path) -> Iterator[KarpenterCluster]:
    with karpenter_cluster(binaries, tmp_path, GATE) as running:
        running.sandbox.create_namespace(NAMESPACE)
        running.sandbox.create_namespace(ELSEWHERE)
        running.sandbox.apply(RIGHT)
        yield running


def test_respread_gives_way_to_karpenters_deletion_costs(cluster: KarpenterCluster) -> None:
    """Karpenter may not consolidate its nodes, so it removes every cost that it finds."""
    cluster.set_pool()
    cluster.enforce(NAMESPACE, mode="DryRun", **PREVENTS)
    create(cluster.sandbox, "web", 9)
    cluster.wait_until(lambda: all_ready(cluster.sandbox, {"web": 9}, ranked=False), "nodes for all pods")
    begun = time.monotonic()
    create_deployment(cluster.sandbox, ELSEWHERE, deployment("churn", replicas=1))
    for replicas in cycle((2, 1)):  # Karpenter looks again only if its cluster has changed
        scale(cluster.sandbox, ELSEWHERE, "churn", replicas)
        time.sleep(CHURN_SECONDS)
        if cluster.condition(NAMESPACE, "CostsContested") == "True":
            break
        assert time.monotonic() < begun + ROUNDS_SECONDS, f"written: {patches(cluster.sandbox)}"
    written, seconds = patches(cluster.sandbox), time.monotonic() - begun
    assert 2 <= max(written.values()) <= 1 + math.floor(math.log2(seconds / WAIT.first_seconds + 1))
    cluster.wait_until(lambda: not costs(cluster.sandbox, "web"), "Karpenter to remove all costs")

    # The first deleted pods show that a scale-down has begun. The next ones are chosen by costs.
    for replicas in (8, 6):
        scale(cluster.sandbox, NAMESPACE, "web", replicas)
        wait_until(partial(all_ready, cluster.sandbox, {"web": replicas}, ranked=True), "costs for the next step")
    scale(cluster.sandbox, NAMESPACE, "web", 4)
    wait_until(lambda: all_ready(cluster.sandbox, {"web": 4}, ranked=False), "the scale-down")
    assert excess(cluster.sandbox, ZONE)["web"] == 0
    assert cluster.evicted(NAMESPACE) == []
    assert refused(cluster.sandbox) == []
