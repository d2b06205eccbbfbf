"""The room for replacements of moves in flight and for Pending pods is reserved.

Six applications have two pods in zone-a and one in zone-b, and zone-c has room for three. With default limits three
can be restored, and the other three have to stay as they are: a fourth move would leave a pod Pending.
"""

from __future__ import annotations

import time
from typing import Any

from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.integration.pools import POOL, Pool
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    scale,
    wait_for_ready_pods,
    wait_until,
)

SCHEDULER = "kube-scheduler"
APPLICATIONS = 6
PODS = 3 * APPLICATIONS
QUIET_SECONDS = 3
ROOM = 3


def deploy_all(pool: Pool, **fields: Any) -> None:
    """Deploy the applications into two zones, two pods of each in zone-a. The third zone is added later."""
    pool.add_zone("zone-a", 3)  # so that inFlightPerNode does not limit the moves
    for number in range(APPLICATIONS):
        name = f"web-{number}"
        pool.deploy(name, 2, constraints=[constraint(ZONE, name)], **fields)
    pool.add_zone("zone-b")
    for number in range(APPLICATIONS):
        scale(pool.sandbox, pool.name, f"web-{number}", 3)
    pool.wait_for(PODS)
    assert pool.counts() == {"zone-a": 2 * APPLICATIONS, "zone-b": APPLICATIONS}


def assert_restored_as_far_as_there_is_room(pool: Pool) -> None:
    wait_until(lambda: len(pool.evicted()) >= ROOM, f"{ROOM} evictions")  # blocked groups are reported earlier too
    pool.wait_until_blocked(PODS, "NoFeasibleNode")
    assert len(pool.evicted()) == ROOM
    assert pool.counts()["zone-c"] == ROOM


def test_only_as_many_groups_are_started_as_have_room(pool: Pool) -> None:
    deploy_all(pool)
    pool.add_zone("zone-c", pods=ROOM)
    pool.sandbox.freeze_component(SCHEDULER)
    try:
        pool.rebalance(limits={"inFlightPerNode": ROOM})  # the scheduler may have put the pods of all moves on one node
        wait_until(lambda: pool.status().get("summary", {}).get("inFlight") == ROOM, f"{ROOM} moves under way")
        time.sleep(QUIET_SECONDS)  # the operator reconciles many times while replacements have no node
    finally:
        pool.sandbox.thaw_component(SCHEDULER)
    assert_restored_as_far_as_there_is_room(pool)


def test_pods_that_terminate_slowly_leave_no_pod_pending(pool: Pool) -> None:
    deploy_all(pool, annotations={TERMINATE_AFTER_ANNOTATION: "4"})
    pool.add_zone("zone-c", pods=ROOM)
    pool.rebalance()
    assert_restored_as_far_as_there_is_room(pool)


def test_late_replacements_of_stateful_sets_leave_no_pod_pending(pool: Pool) -> None:
    pool.add_zone("zone-a")
    names = [f"db-{number}" for number in range(APPLICATIONS)]
    for name in names:
        create_stateful_set(pool, name, 2)
        wait_for_ready_pods(pool.sandbox, pool.name, name, 2)
    pool.add_zone("zone-b")
    for name in names:
        path = f"/apis/apps/v1/namespaces/{pool.name}/statefulsets/{name}/scale"
        pool.sandbox.api.request("PATCH", path, {"spec": {"replicas": 3}})
    pool.wait_for(PODS)
    pool.add_zone("zone-c", pods=ROOM)
    pool.rebalance()
    assert_restored_as_far_as_there_is_room(pool)


def create_stateful_set(pool: Pool, name: str, replicas: int) -> None:
    """Create a StatefulSet whose pods take three seconds to terminate and are recreated then."""
    manifest = deployment(
        name,
        replicas=replicas,
        constraints=[constraint(ZONE, name)],
        nodeSelector={POOL: pool.name},
        annotations={TERMINATE_AFTER_ANNOTATION: "3"},
    )
    manifest["kind"] = "StatefulSet"
    manifest["spec"].update(serviceName=name, podManagementPolicy="Parallel")
    pool.sandbox.api.request("POST", f"/apis/apps/v1/namespaces/{pool.name}/statefulsets", manifest)


def test_pending_pods_of_other_workloads_get_their_room(pool: Pool) -> None:
    deploy_all(pool)
    pool.add_zone("zone-c", pods=ROOM)
    pool.sandbox.freeze_component(SCHEDULER)
    try:
        in_zone_c = {POOL: pool.name, ZONE: "zone-c"}
        create_deployment(pool.sandbox, pool.name, deployment("other", replicas=ROOM, nodeSelector=in_zone_c))
        wait_until(lambda: len(pods(pool.sandbox, pool.name, "other")) == ROOM, "the other pods to exist")
        pool.rebalance()
        # A move is planned for three applications. The other three have no room beside these.
        wait_until(lambda: len(waiting_for_others(pool)) == ROOM, "moves to wait for the other pods")
        explained = [pool.explain(f"deploy/web-{number}")["pods"] for number in range(APPLICATIONS)]
        assert sum(f"it waits until pod {pool.name}/other" in str(each) for each in explained) == ROOM
        assert pool.evicted() == []
    finally:
        pool.sandbox.thaw_component(SCHEDULER)
    wait_for_ready_pods(pool.sandbox, pool.name, "other", ROOM)
    pool.wait_until_blocked(PODS + ROOM, "NoFeasibleNode")
    assert pool.evicted() == []


def waiting_for_others(pool: Pool) -> list[dict[str, Any]]:
    """Return the violated constraints that wait for pods of other workloads, according to the status."""
    return [
        each
        for each in pool.status().get("violations", ())
        if each.get("reason") == "InMotion" and f"{pool.name}/other" in each.get("message", "")
    ]
