"""Argo Rollouts with their own controller: at rest they are restored, during an update they are not evicted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.custom_workloads.conftest import Run
from tests.go_programs import PROGRAMS, find_or_build, source_of
from tests.integration.pools import POOL, Pool
from tests.integration.prevention_cluster import PREVENTS, RIGHT
from tests.integration.workloads import ZONE, constraint, deployment, wait_for_ready_pods, wait_until

REPLICAS = 4
QUIET_SECONDS = 4.0
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ROLLOUTS = "/apis/argoproj.io/v1alpha1/namespaces/{}/rollouts"

pytestmark = pytest.mark.timeout(1800)
"""The fixture builds the controller first if it is not in the cache."""


@pytest.fixture(scope="module", autouse=True)
def _argo(cluster: Sandbox, run: Run) -> None:
    program = PROGRAMS["argo-rollouts"]
    definitions = source_of(program) / "manifests" / "crds"
    for file in sorted(definitions.glob("*-crd.yaml")):
        cluster.apply(file)
    cluster.wait_for_definitions("rollouts.argoproj.io")
    ports = ("--metricsport=0", "--healthzPort=0")
    run(find_or_build(program), f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false", *ports)


def rollout(pool: Pool, strategy: dict[str, Any]) -> None:
    """Create a Rollout and wait until its pods are Ready and it is healthy."""
    manifest = deployment(
        "web", replicas=REPLICAS, constraints=[constraint(ZONE, "web")], nodeSelector={POOL: pool.name}
    )
    spec = {name: manifest["spec"][name] for name in ("replicas", "selector", "template")}
    body = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": "web"},
        "spec": {**spec, "strategy": strategy},
    }
    pool.sandbox.api.request("POST", ROLLOUTS.format(pool.name), body)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", REPLICAS)
    wait_until(lambda: phase(pool) == "Healthy", "the Rollout to be healthy")


def phase(pool: Pool) -> str:
    found = pool.sandbox.api.get(f"{ROLLOUTS.format(pool.name)}/web").get("status", {})
    return str(found.get("phase", ""))


def update(pool: Pool) -> None:
    """Change a field of the template that does not affect placement."""
    change = {"spec": {"template": {"metadata": {"annotations": {"revision": "2"}}}}}
    pool.sandbox.api.request("PATCH", f"{ROLLOUTS.format(pool.name)}/web", change)


def violation(pool: Pool) -> tuple[str, str]:
    """Return reason and message of the violation; empty if there is none."""
    found = pool.status().get("violations") or [{}]
    return str(found[0].get("reason", "")), str(found[0].get("message", ""))


def test_pods_of_a_rollout_at_rest_are_moved_by_default(pool: Pool) -> None:
    rollout(pool, {"canary": {}})
    pool.add_zone("zone-b")
    pool.rebalance()
    pool.wait_until_balanced(REPLICAS, 2)
    assert len(pool.evicted()) == 2
    assert phase(pool) == "Healthy"


def test_pods_of_a_canary_stay_until_it_is_promoted(pool: Pool) -> None:
    rollout(pool, {"canary": {"steps": [{"setWeight": 50}, {"pause": {}}]}})
    update(pool)
    wait_until(lambda: phase(pool) == "Paused", "the canary to wait for its promotion")
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance()
    wait_until(lambda: "Rollout web is being rolled out" in violation(pool)[1], lambda: f"{violation(pool)}")
    assert violation(pool)[0] == "InMotion"
    assert pool.status()["violations"][0]["workloads"] == [{"kind": "Rollout", "name": "web"}]
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    assert pool.uids() == before
    pool.sandbox.api.request("PATCH", f"{ROLLOUTS.format(pool.name)}/web/status", {"status": {"promoteFull": True}})
    wait_until(lambda: phase(pool) == "Healthy", "the Rollout to be promoted")
    pool.wait_until_balanced(REPLICAS, 0)


def test_a_scale_down_of_a_rollout_follows_the_deletion_costs(pool: Pool) -> None:
    """Without costs, its ReplicaSet would delete the newest pods, which are all in the zone that was added last."""
    rollout(pool, {"canary": {}})
    pool.add_zone("zone-b")
    pool.sandbox.apply(RIGHT)
    pool.rebalance(mode="DryRun", **PREVENTS)
    pool.sandbox.api.request("PATCH", f"{ROLLOUTS.format(pool.name)}/web", {"spec": {"replicas": 2 * REPLICAS}})
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 2 * REPLICAS)
    assert pool.counts() == {"zone-a": REPLICAS, "zone-b": REPLICAS}

    def all_have_costs() -> bool:
        return all(DELETION_COST in pod["metadata"].get("annotations", {}) for pod in pool.pods())

    wait_until(all_have_costs, "all pods to have a cost")
    pool.sandbox.api.request("PATCH", f"{ROLLOUTS.format(pool.name)}/web", {"spec": {"replicas": 2}})
    pool.wait_for(2)
    assert pool.counts() == {"zone-a": 1, "zone-b": 1}


def test_pods_stay_before_a_blue_green_promotion(pool: Pool) -> None:
    for name in ("active", "preview"):
        service = {"metadata": {"name": name}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
        pool.sandbox.api.request("POST", f"/api/v1/namespaces/{pool.name}/services", service)
    strategy = {"activeService": "active", "previewService": "preview", "autoPromotionEnabled": False}
    rollout(pool, {"blueGreen": strategy})
    update(pool)
    wait_until(lambda: phase(pool) == "Paused", "the new pods to wait for their promotion")
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 2 * REPLICAS)
    pool.add_zone("zone-b")
    pool.rebalance()
    wait_until(lambda: "Rollout web is being rolled out" in violation(pool)[1], lambda: f"{violation(pool)}")
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
