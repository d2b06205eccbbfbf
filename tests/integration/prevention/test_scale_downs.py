"""With pod deletion costs, no pod needs to be evicted after a scale-down, on a real control plane."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess, evictions, policy, refused
from tests.integration.prevention_cluster import (
    COST,
    PREVENTS,
    RIGHT,
    all_ready,
    costs,
    create,
    excess,
    patches,
    prevent,
)
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import HOSTNAME, ZONE, pods, scale, wait_for_ready_pods, wait_until
from tests.properties.instances import factor

SWINGS = 20 if factor() > 1 else 5
POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/test"


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    """Twelve nodes in three zones, with Respread installed, without permission to patch pods."""
    installed_sandbox.create_namespace("shop")
    return lay_out(installed_sandbox, 4, 4, 4)


def annotate(sandbox: Sandbox, pod: str, cost: str) -> None:
    sandbox.kubectl("annotate", "pod", "-n", "shop", pod, f"{COST}={cost}", "--overwrite")


def names(sandbox: Sandbox, app: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods(sandbox, "shop", app)}


def test_no_scale_down_violates_a_constraint(cluster: Sandbox, tmp_path: Path) -> None:
    rng = random.Random(7)
    replicas = {f"web-{number}": rng.randint(3, 12) for number in range(20 if factor() > 1 else 6)}
    prevent(cluster)
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        for name, count in replicas.items():
            create(cluster, name, count)
        for _ in range(5 if factor() > 1 else 2):
            wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be ranked")
            before, hosts_before = dict(replicas), excess(cluster, HOSTNAME)
            replicas.update({name: rng.randint(1, 12) for name in replicas})
            for name, count in replicas.items():
                scale(cluster, "shop", name, count)
            wait_until(lambda: all_ready(cluster, replicas, ranked=False), "all pods to be there")
            assert not any(excess(cluster, ZONE).values())
            hosts = excess(cluster, HOSTNAME)
            assert [
                name for name, count in replicas.items() if count < before[name] and hosts[name] > hosts_before[name]
            ] == []
        assert operator.stop() == 0
    assert evictions(cluster) == []
    assert refused(cluster) == []
    assert not any(line["level"] in {"warning", "error", "critical"} for line in operator.lines())
    found = patches(cluster)
    assert found.total() <= 1.2 * len(found)


def test_an_oscillating_autoscaler_causes_no_eviction(cluster: Sandbox, tmp_path: Path) -> None:
    """Scales up, and down again once all pods are Ready, by the scale subresource like a HorizontalPodAutoscaler."""
    rng = random.Random(14)
    cluster.apply(RIGHT)
    cluster.apply(json.dumps(policy(**PREVENTS)))
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        create(cluster, "web", 12)
        for _ in range(SWINGS):
            wait_until(lambda: all_ready(cluster, {"web": 12}, ranked=True), "all pods to be ranked")
            few = rng.randint(4, 8)
            scale(cluster, "shop", "web", few)
            wait_until(lambda few=few: all_ready(cluster, {"web": few}, ranked=False), "the pods to be gone")  # type: ignore[misc]
            assert excess(cluster, ZONE) == {"web": 0}
            scale(cluster, "shop", "web", 12)
        assert operator.stop() == 0
    assert evictions(cluster) == []


@pytest.mark.long
def test_without_costs_an_oscillating_autoscaler_causes_evictions(cluster: Sandbox) -> None:
    """Shows that the previous test causes evictions without prevention."""
    replicas = {f"web-{number}": 12 for number in range(20)}
    for name, count in replicas.items():
        create(cluster, name, count)
    wait_until(lambda: all_ready(cluster, replicas, ranked=False), "all pods to be there")
    for number, name in enumerate(replicas):
        replicas[name] = 4 + number % 4
        scale(cluster, "shop", name, replicas[name])
    wait_until(lambda: all_ready(cluster, replicas, ranked=False), "all pods to be gone")
    assert sum(count > 0 for count in excess(cluster, ZONE).values()) >= 3


def test_saved_evictions_are_counted(cluster: Sandbox, tmp_path: Path) -> None:
    prevent(cluster)
    replicas = dict.fromkeys((f"web-{number}" for number in range(8)), 9)
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        for name, count in replicas.items():
            create(cluster, name, count)
        wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be ranked")
        time.sleep(7)  # the operator must have seen the pods at rest
        for name in replicas:
            replicas[name] = 3  # without costs, two of three of these scale-downs would leave a zone empty
            scale(cluster, "shop", name, 3)
        wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be gone")
        assert not any(excess(cluster, ZONE).values())
        series = 'respread_prevention_evictions_avoided_total{policy="test"}'
        wait_until(lambda: operator.metric(series) >= 1, "evictions avoided to be counted")
        applied = operator.metric('respread_prevention_patches_total{policy="test",result="Applied"}')
        assert len(replicas) * 9 <= applied <= len(replicas) * 9 * 1.2
    assert evictions(cluster) == []


def test_costs_of_others_are_kept_and_only_respreads_are_removed(cluster: Sandbox, tmp_path: Path) -> None:
    create(cluster, "web", 9)
    wait_for_ready_pods(cluster, "shop", "web", 9)
    early, late, *_ = sorted(names(cluster, "web"))
    annotate(cluster, early, "-3000")
    annotate(cluster, late, "5")
    prevent(cluster)
    with OperatorProcess(cluster, tmp_path) as operator:
        wait_until(lambda: len(costs(cluster, "web")) == 9, "all pods to be ranked")
        found = {pod: int(cost) for pod, cost in costs(cluster, "web").items()}
        assert (found[early], found[late]) == (-3000, 5)
        assert all(-3000 < cost < 0 for pod, cost in found.items() if pod not in {early, late})
        # Another writer overwrites a cost of ours, and owns it then.
        taken = next(pod for pod in found if pod not in {early, late})
        annotate(cluster, taken, "-77")
        scale(cluster, "shop", "web", 10)
        wait_until(lambda: len(costs(cluster, "web")) == 10, "the new pod to be ranked")
        cluster.api.request("PATCH", POLICY, {"spec": {"prevention": {"podDeletionCost": "Disabled"}}})
        wait_until(lambda: len(costs(cluster, "web")) == 3, "our costs to be removed")
        assert costs(cluster, "web") == {early: "-3000", late: "5", taken: "-77"}
        assert operator.stop() == 0
    assert not {early, late} & patches(cluster).keys()
    assert patches(cluster)[taken] == 1
    assert refused(cluster) == []


def test_costs_are_removed_with_their_policy_even_after_a_restart(cluster: Sandbox, tmp_path: Path) -> None:
    prevent(cluster)
    create(cluster, "web", 6)
    with OperatorProcess(cluster, tmp_path):
        wait_until(lambda: len(costs(cluster, "web")) == 6, "all pods to be ranked")
    cluster.api.request("DELETE", POLICY)
    with OperatorProcess(cluster, tmp_path):
        wait_until(lambda: not costs(cluster, "web"), "our costs to be removed")
    for pod in pods(cluster, "shop", "web"):
        assert "respread" not in {entry["manager"] for entry in pod["metadata"]["managedFields"]}


def test_prevention_names_a_missing_permission_and_starts_once_it_is_granted(cluster: Sandbox, tmp_path: Path) -> None:
    cluster.apply(json.dumps(policy(**PREVENTS)))
    create(cluster, "web", 6)
    with OperatorProcess(cluster, tmp_path, "--permissions-seconds", "5") as operator:

        def reported() -> list[dict[str, Any]]:
            return [line for line in operator.lines() if line["event"] == "A permission is missing"]

        wait_until(lambda: bool(reported()), "the operator to report the missing permission")
        (line,) = reported()
        assert line["permission"] == "patch pods"
        assert "manifests/components/prevention" in line["action"]
        time.sleep(3)
        assert [each for each in refused(cluster) if each.startswith("patch")] == []
        cluster.apply(RIGHT)
        wait_until(lambda: len(costs(cluster, "web")) == 6, "all pods to be ranked")
        assert len(reported()) == 1
        assert operator.stop() == 0


def test_the_ranks_are_restored_after_a_node_failure(cluster: Sandbox, tmp_path: Path) -> None:
    prevent(cluster)
    replicas = {f"web-{number}": 12 for number in range(6 if factor() > 1 else 4)}
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        for name, count in replicas.items():
            create(cluster, name, count)
        wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be ranked")
        cluster.nodes.remove("node-a1", "node-b2")
        wait_until(lambda: all_ready(cluster, replicas, ranked=True), "other pods in their place")
        time.sleep(7)  # pods at rest are reranked after some seconds
        for name in replicas:
            replicas[name] = 5
            scale(cluster, "shop", name, 5)
        wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be gone")
        assert not any(excess(cluster, ZONE).values())
    found = patches(cluster)
    assert found.total() <= 1.2 * len(found)


def test_a_rollout_patches_each_new_pod_once_and_no_old_one(cluster: Sandbox, tmp_path: Path) -> None:
    prevent(cluster)
    create(cluster, "web", 9, hostname=None)
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        wait_until(lambda: all_ready(cluster, {"web": 9}, ranked=True), "all pods to be ranked")
        old = names(cluster, "web")
        cluster.kubectl("rollout", "restart", "deployment/web", "-n", "shop")
        wait_until(
            lambda: all_ready(cluster, {"web": 9}, ranked=True) and not names(cluster, "web") & old,
            "the rollout to end",
        )
        scale(cluster, "shop", "web", 4)
        wait_until(lambda: all_ready(cluster, {"web": 4}, ranked=True), "the scale-down")
        assert excess(cluster, ZONE) == {"web": 0}
    assert set(patches(cluster).values()) == {1}
