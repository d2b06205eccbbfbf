"""Respread waits for pods whose node does not exist any more, because they are replaced within about a minute."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Node
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterState
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.worlds import NOW, ZONE, cluster, constraint, node, pod, pods, spec

WEB = spec(constraint())
POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())


def zones(room: int = 110) -> list[Node]:
    return [node("a1", "a"), node("b1", "b"), node("c1", "c", pods=room)]


def planned(nodes: list[Node], *placed: Pod) -> Plan:
    return plan_cluster(cluster(nodes, placed), [POLICY], now=NOW)


def test_a_group_whose_pods_have_lost_their_node_is_left_alone() -> None:
    """With the three replacements in zone c, the constraint holds again without an eviction."""
    planner, setting = Planner(), PolicySetting((POLICY,))
    state = ClusterState(cluster([*zones(), node("c2", "c")], pods({"a1": 3, "b1": 3, "c2": 3}, WEB)))

    def moves() -> int:
        return len(plan().moves)

    def plan() -> Plan:
        return planner.plan(state.snapshot, spread_of(state.snapshot), setting, now=NOW)

    assert moves() == 0
    state.replace("nodes", zones())
    assert moves() == 0
    (blocked,) = plan().blocked
    assert blocked.reason is Reason.IN_MOTION
    assert blocked.message.startswith("node c2 of web-c2-")
    assert "no longer exists" in blocked.message
    state.replace("pods", pods({"a1": 3, "b1": 3}, WEB))
    assert moves() == 2
    state.replace("pods", pods({"a1": 3, "b1": 3, "c2": 1}, WEB))
    assert moves() == 0
    state.replace("nodes", [*zones(), node("c2", "c")])
    assert moves() == 1


@pytest.mark.parametrize(
    ("fields", "moved"),
    [
        ({}, 0),
        ({"controller": OwnerReference("apps/v1", "StatefulSet", "other", "uid-other")}, 0),
        ({"controller": OwnerReference("apps/v1", "DaemonSet", "other", "uid-other")}, 1),
        ({"controller": None}, 1),
        ({"deletion_timestamp": NOW}, 1),
        ({"phase": "Succeeded"}, 1),
    ],
    ids=["ReplicaSet", "StatefulSet", "DaemonSet", "bare", "deleted already", "finished"],
)
def test_room_is_reserved_for_the_replacements_of_lost_pods(fields: dict[str, Any], moved: int) -> None:
    lost = pod("other", "c2", spec(node_selector=Map({ZONE: "c"})), labels=Map(app="other"))
    lost = msgspec.structs.replace(lost, **fields)
    skewed = pods({"a1": 2, "b1": 1}, WEB)
    assert sum(each.wave == 0 for each in planned(zones(1), lost, *skewed).moves) == moved
    assert sum(each.wave == 0 for each in planned(zones(2), lost, *skewed).moves) == 1
