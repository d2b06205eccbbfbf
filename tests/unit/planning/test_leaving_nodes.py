"""Pods on leaving nodes are evicted first, and nothing is evicted if their leaving restores the spread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.objects import Node
from respread.cluster.pod import PodSpec, Toleration
from respread.cluster.state import ClusterSnapshot
from respread.planning.moving_pods import NOTHING_UNDER_WAY, UnderWay
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import HOSTNAME, NOW, cluster, constraint, node, pods, spec, taint

WEB = spec(constraint())
LEAVING: list[dict[str, Any]] = [
    {"taints": (taint("karpenter.sh/disrupted"),)},
    {"taints": (taint("ToBeDeletedByClusterAutoscaler"),)},
    {"taints": (taint("node.kubernetes.io/out-of-service", "NoExecute"),)},
    {"taints": (taint("maintenance", "NoExecute"),)},
]


def planned(
    snapshot: ClusterSnapshot,
    since: Mapping[str, datetime] = Map(),
    under_way: UnderWay = NOTHING_UNDER_WAY,
    **spec: Any,
) -> Plan:
    setting = PolicySetting((default_policy(victims=VictimRules(min_replicas=1), **spec),))
    return Planner().plan(snapshot, spread_of(snapshot), setting, now=NOW, leaving_since=since, under_way=under_way)


def zones(**of_a2: Any) -> list[Node]:
    return [node("a1", "a"), node("a2", "a", **of_a2), node("b1", "b"), node("c1", "c")]


@pytest.mark.parametrize("fields", LEAVING, ids=lambda each: each["taints"][0].key)
def test_nothing_is_evicted_if_the_drain_alone_restores_the_spread(fields: dict[str, Any]) -> None:
    snapshot = cluster(zones(**fields), pods({"a1": 2, "a2": 4, "b1": 2, "c1": 0}, WEB))
    plan = planned(snapshot)
    assert plan.moves == ()
    (blocked,) = plan.blocked
    assert blocked.reason == Reason.NODE_LEAVING
    assert "node a2 " in blocked.message
    assert fields["taints"][0].key in blocked.message
    unknown = spec(constraint(), scheduler_name="fancy")
    assert reasons(zones(**fields), {"a1": 2, "a2": 4, "b1": 2, "c1": 1}, unknown) == [Reason.UNKNOWN_REPLACEMENT]


def test_a_leaving_node_is_waited_for_only_for_its_patience() -> None:
    snapshot = cluster(zones(**LEAVING[0]), pods({"a1": 2, "a2": 4, "b1": 2}, WEB))
    assert planned(snapshot, {"a2": NOW - timedelta(minutes=9)}).changes_at == NOW + timedelta(minutes=1)
    late = planned(snapshot, {"a2": NOW - timedelta(minutes=10)})
    assert {move.pod.node_name for move in late.moves} == {"a2"}
    assert planned(snapshot, leaving_node_patience=timedelta()).moves


@pytest.mark.parametrize("fields", [*LEAVING, {}], ids=lambda each: each["taints"][0].key if each else "drained")
def test_pods_of_a_leaving_node_are_evicted_first_among_equals(fields: dict[str, Any]) -> None:
    """Without another move the spread would stay violated, so a pod must be evicted."""
    snapshot = cluster(zones(**fields), pods({"a1": 8, "a2": 1, "b1": 2, "c1": 0}, WEB))
    plan = planned(snapshot)
    assert plan.moves
    if fields:
        assert plan.moves[0].pod.node_name == "a2"


FOR_A_MINUTE = Toleration("maintenance", "Exists", effect="NoExecute", toleration_seconds=60)
FOR_AN_HOUR = Toleration("maintenance", "Exists", effect="NoExecute", toleration_seconds=3600)
FOR_EVER = Toleration("maintenance", "Exists")


def reasons(nodes: list[Node], by_node: Mapping[str, int], of: PodSpec = WEB, **more: Any) -> list[Reason]:
    return [each.reason for each in planned(cluster(nodes, pods(by_node, of)), **more).blocked]


@pytest.mark.parametrize(
    ("tolerations", "minutes", "leaves"),
    [
        ((), 10, True),
        ((FOR_A_MINUTE,), 10, True),
        ((FOR_AN_HOUR,), 10, False),
        ((FOR_AN_HOUR,), 60, True),
        ((FOR_EVER,), 10, False),
        ((FOR_EVER, FOR_A_MINUTE), 10, False),
    ],
)
def test_pods_leave_when_their_toleration_of_a_taint_ends_within_the_patience(
    tolerations: tuple[Toleration, ...], minutes: int, leaves: bool
) -> None:
    nodes, by_node = zones(**LEAVING[3]), {"a1": 2, "a2": 4, "b1": 2}
    of = spec(constraint(), tolerations=tolerations)
    plan = planned(cluster(nodes, pods(by_node, of)), leaving_node_patience=timedelta(minutes=minutes))
    assert [each.reason for each in plan.blocked] == [Reason.NODE_LEAVING] * leaves
    assert bool(plan.moves) != leaves
    if tolerations == (FOR_AN_HOUR,):
        assert {move.pod.node_name for move in plan.moves} <= {"a2"}
    if tolerations == (FOR_A_MINUTE,):
        assert "node a2 will lose its pods (it has the taint maintenance, which they tolerate for 60 s)" in (
            plan.blocked[0].message
        )


def test_cluster_autoscaler_evicts_pods_that_tolerate_its_taint() -> None:
    of = spec(constraint(), tolerations=(Toleration(operator="Exists"),))
    # Such pods may return to the node while it exists, so the drain does not certainly restore the spread.
    plan = planned(cluster(zones(**LEAVING[1]), pods({"a1": 8, "a2": 1, "b1": 2}, of)))
    assert plan.moves[0].pod.node_name == "a2"


def test_the_zone_of_an_only_node_is_eligible_unless_it_is_deleted() -> None:
    two_taints: dict[str, Any] = {"taints": (*LEAVING[3]["taints"], *LEAVING[0]["taints"])}
    for fields, is_deleted in ((LEAVING[3], False), *((each, True) for each in (*LEAVING[:2], two_taints))):
        nodes = [node("a1", "a"), node("b1", "b"), node("c1", "c", **fields)]
        assert reasons(nodes, {"a1": 4, "b1": 2, "c1": 2}) == [Reason.NODE_LEAVING] * is_deleted
    assert planned(cluster(nodes, pods({"a1": 6, "b1": 2, "c1": 2}, WEB))).moves
    # Each constraint closes other nodes, and a soft one none.
    several = [constraint(), constraint(HOSTNAME, max_skew=3), constraint("type", when="ScheduleAnyway")]
    more = [*nodes, node("a2", "a"), node("b2", "b"), node("b3", "b", labels={"type": "x"}, unschedulable=True)]
    nodes = [msgspec.structs.replace(each, labels=Map({"type": "y", **each.labels})) for each in more]
    assert reasons(nodes, {"a1": 2, "a2": 2, "b1": 1, "b2": 1, "c1": 2}, spec(*several)) == [Reason.NODE_LEAVING]
    looser, stricter = (spec(constraint(), constraint(HOSTNAME, max_skew=each)) for each in (5, 2))  # This closes b1.
    there = [*pods({"c1": 2}, looser), *pods({"a1": 2, "a2": 2, "b1": 2}, stricter, prefix="other")]
    assert [each.reason for each in planned(cluster([*nodes[:4], nodes[5]], there)).blocked] == [Reason.NODE_LEAVING]


def test_a_node_whose_drain_has_stopped_does_not_hide_another() -> None:
    """A budget may block one of two drains."""
    nodes = [*zones(**LEAVING[0]), node("a3", "a", **LEAVING[3])]
    by_node = {"a1": 2, "a2": 4, "a3": 0, "b1": 2}
    stuck = {"a3": NOW - timedelta(hours=1), "a2": NOW}
    assert reasons(nodes, by_node, since=stuck) == [Reason.NODE_LEAVING]
    # The pod on the other node stays, so one more pod has to move.
    assert reasons(nodes, {**by_node, "a3": 1}, since=stuck) == [Reason.NODE_LEAVING]
    assert reasons(nodes, {**by_node, "a3": 4}, since=stuck) == []
    assert reasons(nodes, {**by_node, "a3": 4}, since={}) == [Reason.NODE_LEAVING]


def test_a_cordon_without_a_drain_is_not_waited_for() -> None:
    cordoned = {"unschedulable": True, "taints": (taint("node.kubernetes.io/unschedulable"),)}
    plan = planned(cluster(zones(**cordoned), pods({"a1": 2, "a2": 4, "b1": 2}, WEB)))
    assert plan.moves
    assert plan.blocked == ()


def replaced(counts: dict[str, int], pods_on_it: int) -> dict[str, int]:
    """Return the counts after the scheduler has replaced this many pods, each in the emptiest domain (maxSkew 1)."""
    for _ in range(pods_on_it):
        counts = {**counts, (emptiest := min(counts, key=counts.__getitem__)): counts[emptiest] + 1}
    return counts


def test_the_plan_waits_for_a_drain_only_if_that_restores_the_spread() -> None:
    waited = 0
    for seed in range(300):
        random = Random(seed)
        by_node = {name: random.randint(0, 5) for name in ("a1", "a2", "b1", "b2", "c1")}
        snapshot = cluster(
            [node(name, name[0], **(random.choice(LEAVING) if name == "a2" else {})) for name in by_node],
            pods(by_node, WEB),
        )
        counts = {zone: sum(each for name, each in by_node.items() if name[0] == zone) for zone in "abc"}
        if max(counts.values()) - min(counts.values()) <= 1:
            continue
        after = replaced({**counts, "a": by_node["a1"]}, by_node["a2"])
        restored = max(after.values()) - min(after.values()) <= 1
        assert [each.reason for each in planned(snapshot).blocked] == [Reason.NODE_LEAVING] * restored, by_node
        assert bool(planned(snapshot).moves) != restored
        waited += restored
    assert waited > 30


def test_a_cordoned_node_is_leaving_while_its_pods_are_deleted() -> None:
    drained: dict[str, Any] = {"unschedulable": True, "taints": (taint("node.kubernetes.io/unschedulable"),)}
    of_others = pods({"a2": 1}, spec(), namespace="other", deletion_timestamp=NOW)
    web = pods({"a1": 2, "a2": 4, "b1": 2}, WEB)
    assert planned(cluster(zones(**drained), web)).moves
    assert planned(cluster(zones(**drained), [*web, *of_others])).moves == ()
    elsewhere = [*zones(), node("x1", **drained)]
    assert planned(cluster(elsewhere, [*web, *of_others])).moves, "a scale-down is no drain"
    assert planned(cluster(zones(**drained), [*web, *of_others]), under_way=UnderWay(tuple(of_others))).moves
    assert planned(cluster(zones(**drained), web), {"a2": NOW}).moves == ()


def test_a_planner_prefers_the_pods_of_a_node_from_when_its_drain_begins_until_it_ends() -> None:
    snapshot, planner = cluster(zones(unschedulable=True), pods({"a1": 8, "a2": 1, "b1": 2}, WEB)), Planner()
    spread, setting = spread_of(snapshot), PolicySetting((default_policy(victims=VictimRules(min_replicas=1)),))
    for since in ({}, {"a2": NOW}, {}):
        plan = planner.plan(snapshot, spread, setting, now=NOW, leaving_since=since)
        assert plan.moves[0].pod.node_name == ("a2" if since else "a1")


@pytest.mark.parametrize("room", [2, 4])
def test_a_move_waits_if_it_may_take_the_room_that_a_drain_needs(room: int) -> None:
    nodes = [node("a1", "a"), node("a2", "a", **LEAVING[0]), node("b1", "b", pods=room)]
    web = pods({"a1": 2, "a2": 2}, WEB)
    api = pods({"a1": 2}, spec(constraint(selector=Map(app="api"))), prefix="api", labels=Map(app="api"))
    plan = planned(cluster(nodes, [*web, *api]))
    assert [each.reason for each in plan.blocked] == [Reason.NODE_LEAVING]
    (move,) = plan.moves
    assert (move.pod.labels["app"], move.wave) == ("api", 1 if room == 2 else 0)
