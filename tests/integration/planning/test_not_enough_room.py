"""If a zone returns without room for all, as many constraints as possible are restored, the important ones first."""

from __future__ import annotations

import json

import pytest

from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.integration.pools import NO_NODE, Pool
from tests.integration.workloads import ZONE, constraint, scale, wait_until

APPS = [f"app{number}" for number in range(5)]
IMPORTANT = APPS[3:]
REPLICAS = 6
ROOM = 5
"""Each app needs room for two pods in the zone."""


def important_ones_first(pool: Pool, quiet_period: str) -> None:
    spec = {
        "mode": "Enforce",
        "quietPeriod": quiet_period,
        "victims": {"minAge": "0s"},
        "priority": 10,
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": IMPORTANT}]},
    }
    metadata = {"name": "important", "namespace": pool.name}
    policy = {"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicy", "metadata": metadata, "spec": spec}
    pool.sandbox.apply(json.dumps(policy))


def in_zone_c(pool: Pool, zone_c: str) -> dict[str, int]:
    """Return how many pods of each app are there."""
    found = dict.fromkeys(APPS, 0)
    for pod in pool.pods():
        if pod["spec"].get("nodeName") == zone_c:
            found[pod["metadata"]["labels"]["app"]] += 1
    return found


@pytest.mark.parametrize(("terminates_after", "quiet_period"), [("0", "1ms"), ("2", "3s")])
def test_important_groups_are_restored_first_if_room_is_scarce(
    pool: Pool, terminates_after: str, quiet_period: str
) -> None:
    """The important groups keep their room until they are restored, even if their pods terminate late."""
    pool.add_zone("zone-a")
    pool.add_zone("zone-b")
    for app in APPS:
        slowly = {TERMINATE_AFTER_ANNOTATION: terminates_after}
        pool.deploy(app, REPLICAS, constraints=[constraint(ZONE, app)], annotations=slowly)
    important_ones_first(pool, quiet_period)
    pool.rebalance(quietPeriod=quiet_period)
    wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the policy to be in use")
    (zone_c,) = pool.add_zone("zone-c", 1, pods=ROOM)
    wait_until(lambda: pool.counts()["zone-c"] == ROOM, "the room to be used")
    pool.wait_for(REPLICAS * len(APPS))
    found = in_zone_c(pool, zone_c)
    assert [found[app] for app in IMPORTANT] == [2, 2]
    assert len(pool.evicted()) == ROOM
    # The policy reports the remaining groups and the pods that use the room.
    pool.wait_until_blocked(REPLICAS * len(APPS), "NoFeasibleNode", "zone-c", *IMPORTANT)
    assert len(pool.evicted()) == ROOM


def found(pool: Pool) -> list[tuple[str, str]]:
    """Return what the audit finds about the constraint of `web`: rules, and when they keep pods Pending."""
    (of_web,) = pool.explain("deploy/web")["constraints"]
    return [(each["rule"], each["when"]) for each in of_web["group"]["findings"]]


def test_a_full_zone_keeps_the_next_pod_pending_as_the_audit_says(pool: Pool) -> None:
    for zone in ("zone-a", "zone-b"):
        pool.add_zone(zone)
    pool.add_zone("zone-c", 1, pods=1)
    pool.deploy("web", 5, constraints=[constraint(ZONE, "web")])
    assert pool.counts() == {"zone-a": 2, "zone-b": 2, "zone-c": 1}
    pool.rebalance()
    wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the policy to be in use")
    assert found(pool) == [("FullDomains", "NextScaleUp")]
    assert not pool.status().get("unworkable")

    scale(pool.sandbox, pool.name, "web", 6)
    wait_until(lambda: pool.counts().get(NO_NODE) == 1, "a pod without a node")
    wait_until(lambda: bool(pool.status().get("unworkable")), "the policy to report the constraint")
    assert found(pool) == [("FullDomains", "Now")]
    (reported,) = pool.status()["unworkable"]
    assert (reported["rule"], reported["when"]) == ("FullDomains", "Now")

    pool.add_zone("zone-c")
    pool.wait_for(6)
    assert pool.counts() == {"zone-a": 2, "zone-b": 2, "zone-c": 2}
    assert found(pool) == []
    wait_until(lambda: not pool.status().get("unworkable"), "the policy to see that the constraint works")
