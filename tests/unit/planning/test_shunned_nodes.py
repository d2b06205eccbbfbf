"""PreferNoSchedule taints count as in the scheduler's score if nothing else decides."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.api.policy import VictimRules
from respread.cluster.objects import Node
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration
from respread.planning.plan import Move
from tests.plans import plan_cluster
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, cluster, constraint, node, pods, spec, taint

CANDIDATE = taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")
SPOT = taint("spot", "PreferNoSchedule")
POLICY = default_policy(victims=VictimRules(min_replicas=1))


def only_in(*pools: str, **fields: Any) -> PodSpec:
    wanted = NodeSelectorRequirement(key="pool", operator="In", values=("a", *pools))
    affinity = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    # All pods have the same eligible domains, so that they form one group.
    return spec(constraint(node_affinity_policy="Ignore"), node_affinity=affinity, **fields)


def moves(nodes: list[Node], *sets: tuple[dict[str, int], PodSpec]) -> list[Move]:
    placed = [each for at, (counts, of) in enumerate(sets) for each in pods(counts, of, prefix=f"set{at}")]
    return list(plan_cluster(cluster(nodes, placed), [POLICY], now=NOW).moves)


def zones(x: Node, y: Node) -> list[Node]:
    return [node("a1", "a", labels=Map(pool="a")), x, y]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("worse", "better"), [((CANDIDATE,), ()), ((SPOT,), ()), ((CANDIDATE,), (SPOT,))])
def test_the_pod_with_the_better_target_node_is_moved(
    worse: tuple[Any, ...], better: tuple[Any, ...], order: int
) -> None:
    nodes = zones(
        node("b1", "b", labels=Map(pool="x"), taints=worse), node("b2", "b", labels=Map(pool="y"), taints=better)
    )
    sets = [({"a1": 2}, only_in("x")), ({"a1": 1}, only_in("y"))]
    (move,) = moves(nodes, *sets[::order])
    assert move.pod.spec is sets[1][1]
    assert "b1" not in moves(nodes, ({"a1": 2}, spec(constraint())))[0].why


def test_the_scheduler_counts_the_taints_of_a_node() -> None:
    """A pod that may use a node with one taint or a node with two gets the one with one."""
    old = taint("old", "PreferNoSchedule")
    nodes = zones(
        node("b1", "b", labels=Map(pool="x"), taints=(SPOT, old)), node("b2", "b", labels=Map(pool="y"), taints=(SPOT,))
    )
    (move,) = moves(nodes, ({"a1": 1}, only_in("x")), ({"a1": 1}, only_in("y")))
    assert move.pod.spec == only_in("y")
    (move,) = moves(nodes, ({"a1": 2}, spec(constraint())))
    assert "such as b2 with spot" in move.why


@pytest.mark.parametrize("shunned", [CANDIDATE, SPOT])
def test_a_move_to_a_prefer_no_schedule_node_says_so(shunned: Any) -> None:
    nodes = [node("a1", "a"), node("b1", "b", taints=(shunned,))]
    (move,) = moves(nodes, ({"a1": 2}, spec(constraint())))
    assert f"such as b1 with {shunned.key}" in move.why
    (move,) = moves(nodes, ({"a1": 2}, spec(constraint(), tolerations=(Toleration(operator="Exists"),))))
    assert "PreferNoSchedule" not in move.why
    (move,) = moves([*nodes, node("b2", "b")], ({"a1": 2}, spec(constraint())))
    assert "PreferNoSchedule" not in move.why
    with_two = node("b2", "b", taints=(taint("old", "PreferNoSchedule"), shunned))
    (move,) = moves([*nodes, with_two], ({"a1": 2}, spec(constraint())))
    assert f"such as b1 with {shunned.key}" in move.why
