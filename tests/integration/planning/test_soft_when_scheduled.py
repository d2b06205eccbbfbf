"""Soft when scheduled, hard at rest: a rollout in an outage is not blocked, and the spread comes back afterwards."""

from __future__ import annotations

from typing import Any

from tests.integration.pools import Pool, holds
from tests.integration.workloads import ZONE, constraint, is_ready, pods, wait_until

REPLICAS = 6
NEW = "example.com/new"


def rolled_out(pool: Pool, name: str) -> list[dict[str, Any]]:
    """Return the pods of the new template."""
    found = pods(pool.sandbox, pool.name, name)
    return [pod for pod in found if NEW in pod["metadata"].get("annotations", {})]


def is_unschedulable(pod: dict[str, Any]) -> bool:
    """Whether kube-scheduler has found no node for a pod."""
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))


def zones(pool: Pool, name: str, zone_of: dict[str, str]) -> list[int]:
    places = [zone_of.get(pod["spec"].get("nodeName", "")) for pod in rolled_out(pool, name)]
    return [places.count(zone) for zone in ("zone-a", "zone-b", "zone-c")]


def test_a_soft_constraint_blocks_no_rollout_in_an_outage_and_is_restored_after_it(pool: Pool) -> None:
    zone_of = {node: zone for zone in ("zone-a", "zone-b", "zone-c") for node in pool.add_zone(zone, 2)}
    for name, when in (("soft", "ScheduleAnyway"), ("hard", "DoNotSchedule")):
        of_revision = constraint(ZONE, name, when_unsatisfiable=when, matchLabelKeys=["pod-template-hash"])
        pool.deploy(name, REPLICAS, constraints=[of_revision])
    lost = [node for node, zone in zone_of.items() if zone == "zone-c"]
    pool.sandbox.nodes.cordon(*lost)
    for name in ("soft", "hard"):
        template = {"metadata": {"annotations": {NEW: "yes"}}}
        path = f"/apis/apps/v1/namespaces/{pool.name}/deployments/{name}"
        pool.sandbox.api.request("PATCH", path, {"spec": {"template": template}})

    wait_until(
        lambda: sum(map(is_ready, rolled_out(pool, "soft"))) == REPLICAS, "the rollout of the soft Deployment to end"
    )
    assert zones(pool, "soft", zone_of)[2] == 0
    wait_until(lambda: any(map(is_unschedulable, rolled_out(pool, "hard"))), "the hard rollout to block")
    assert sum(map(is_ready, rolled_out(pool, "hard"))) < REPLICAS

    pool.sandbox.nodes.uncordon(*lost)
    pool.rebalance(constraints={"whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"]})
    wait_until(
        lambda: holds(zones(pool, "soft", zone_of)) and holds(zones(pool, "hard", zone_of)),
        lambda: f"the spread to come back; it is {zones(pool, 'soft', zone_of)}",
    )
    pool.wait_for(2 * REPLICAS)
    assert zones(pool, "soft", zone_of) == zones(pool, "hard", zone_of) == [2, 2, 2]
    assert 0 < len(pool.evicted()) <= 4
