"""Taints that Cluster Autoscaler and others put on starting and leaving nodes, and the operator's reaction."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from respread_sandbox.nodes import READY_AFTER_ANNOTATION
from tests.integration.pools import Pool
from tests.integration.workloads import HOSTNAME, ZONE, constraint, wait_until

QUIET_SECONDS = 3
"""The time without a change after which a scenario counts as finished."""

TO_BE_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1795000000", "effect": "NoSchedule"}
CANDIDATE = {"key": "DeletionCandidateOfClusterAutoscaler", "value": "1795000000", "effect": "PreferNoSchedule"}
STARTUP = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}


def set_taints(pool: Pool, node: str, *taints: dict[str, str]) -> None:
    """Set exactly these taints on a node."""
    pool.sandbox.api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": list(taints) or None}})


def restored(pool: Pool) -> Mapping[str, int]:
    """Return the pods on each node once three moves have restored the constraint."""
    pool.wait_until_balanced(6, 3)
    assert len(pool.evicted()) == 3
    return pool.counts(HOSTNAME)


def test_no_pod_is_moved_to_a_node_to_be_deleted(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    (leaving,) = pool.add_zone("zone-b", taints=(TO_BE_DELETED,))
    pool.rebalance()
    taint = f"{leaving} has the taint ToBeDeletedByClusterAutoscaler=1795000000:NoSchedule"
    pool.wait_until_blocked(6, "NoFeasibleNode", taint)
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    (staying,) = pool.add_zone("zone-b")
    hosts = restored(pool)
    assert (hosts[leaving], hosts[staying]) == (0, 3)


def test_a_deletion_candidate_gets_no_pod_if_its_zone_has_another_node(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    (candidate,) = pool.add_zone("zone-b", taints=(CANDIDATE,))
    (staying,) = pool.add_zone("zone-b")
    pool.rebalance()
    hosts = restored(pool)
    assert (hosts[candidate], hosts[staying]) == (0, 3)


def test_a_starting_node_gets_no_pod_until_its_startup_taint_is_removed(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    (starting,) = pool.add_zone("zone-b", taints=(STARTUP,))
    pool.rebalance()
    pool.wait_until_blocked(6, "NoFeasibleNode", f"{starting} has the taint {STARTUP['key']}=true:NoExecute")
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    set_taints(pool, starting)
    restored(pool)


def test_a_node_that_leaves_after_one_move_gets_no_second_pod(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    slowly = {READY_AFTER_ANNOTATION: "15"}  # the second move waits for the first, and the taint is set meanwhile
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")], annotations=slowly)
    (leaving,) = pool.add_zone("zone-b")
    pool.rebalance(limits={"inFlight": 1})
    wait_until(lambda: pool.counts(HOSTNAME)[leaving] == 1, "the first replacement to have its node")
    set_taints(pool, leaving, TO_BE_DELETED)
    # Without its only node, the zone is not a domain any more, and the constraint holds.
    wait_until(
        lambda: [each["reason"] for each in pool.status().get("violations", ())] == ["NodeLeaving"],
        lambda: f"the reason NodeLeaving; it says {pool.status()}",
    )
    pool.wait_for(6)
    time.sleep(QUIET_SECONDS)
    assert len(pool.evicted()) == 1


def test_as_last_resort_a_deletion_candidate_gets_pods_and_explain_says_so(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    (candidate,) = pool.add_zone("zone-b", taints=(CANDIDATE,))
    pool.rebalance(mode="DryRun")
    said = f"can only go to nodes with a PreferNoSchedule taint, such as {candidate} with {CANDIDATE['key']}"
    assert said in json.dumps(pool.explain("deploy/web"))
    (staying,) = pool.add_zone("zone-b")
    assert "PreferNoSchedule" not in json.dumps(pool.explain("deploy/web"))
    pool.sandbox.nodes.remove(staying)
    pool.rebalance()
    assert restored(pool)[candidate] == 3
