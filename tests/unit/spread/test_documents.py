"""The examples of the Kubernetes documentation, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from immutables import Map

from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.group import GroupKey, SpreadGroup
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, pods, spec


def the_group(groups: Mapping[GroupKey, SpreadGroup], topology_key: str = ZONE) -> SpreadGroup:
    (group,) = [each for each in groups.values() if each.key.topology_key == topology_key]
    return group


def skews(group: SpreadGroup) -> dict[str, int]:
    return {domain: count - group.minimum for domain, count in group.all_counts().items()}


def test_skew_of_five_three_and_two_pods_is_three_one_and_zero() -> None:
    web = spec(constraint())
    nodes = [node("a1", "A"), node("b1", "B"), node("c1", "C")]
    group = the_group(spread_of(cluster(nodes, pods({"a1": 5, "b1": 3, "c1": 2}, web))).groups)
    assert skews(group) == {"A": 3, "B": 1, "C": 0}
    assert group.violated
    assert group.excess == 2


def test_two_pods_over_one_in_two_zones_is_within_max_skew_one() -> None:
    web = spec(constraint())
    nodes = [node("node1", "zoneA"), node("node2", "zoneA"), node("node3", "zoneB"), node("node4", "zoneB")]
    group = the_group(spread_of(cluster(nodes, pods({"node1": 1, "node2": 1, "node3": 1}, web))).groups)
    assert group.all_counts() == {"zoneA": 2, "zoneB": 1}
    assert not group.violated


def test_a_zone_that_the_pods_node_affinity_excludes_is_not_eligible() -> None:
    not_in_c = NodeSelector(
        node_selector_terms=(NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(ZONE, "NotIn", ("zoneC",)),)),)
    )
    web = spec(constraint(), node_affinity=not_in_c)
    nodes = [node(f"node{n}", zone) for n, zone in enumerate(["zoneA", "zoneA", "zoneB", "zoneB", "zoneC"], start=1)]
    group = the_group(spread_of(cluster(nodes, pods({"node1": 1, "node2": 1, "node3": 1}, web))).groups)
    assert group.all_counts() == {"zoneA": 2, "zoneB": 1}


def test_unmet_min_domains_make_the_minimum_zero() -> None:
    web = spec(constraint(HOSTNAME, min_domains=5))
    nodes = [node("n1"), node("n2"), node("n3")]
    group = the_group(spread_of(cluster(nodes, pods({"n1": 1, "n2": 1, "n3": 1}, web))).groups, HOSTNAME)
    assert group.minimum == 0
    assert group.skew == 1
    assert not group.violated


def test_match_label_keys_count_one_revision_at_a_time() -> None:
    web = spec(constraint(match_label_keys=("pod-template-hash",)))
    old = pods({"a1": 3}, web, labels=Map({"app": "web", "pod-template-hash": "old"}), prefix="old")
    new = pods({"a1": 1, "b1": 1}, web, labels=Map({"app": "web", "pod-template-hash": "new"}), prefix="new")
    groups = spread_of(cluster([node("a1", "A"), node("b1", "B")], [*old, *new])).groups
    assert sorted((str(group.key.selector), group.skew) for group in groups.values()) == [
        ("app=web,pod-template-hash=new", 0),
        ("app=web,pod-template-hash=old", 3),
    ]


def test_a_selector_that_misses_the_pods_own_labels_does_not_count_them() -> None:
    web = spec(constraint())
    unlabelled = pod("mypod", "a1", web, labels=Map())
    nodes = [node("a1", "zoneA"), node("b1", "zoneB")]
    group = the_group(spread_of(cluster(nodes, [unlabelled, *pods({"a1": 1, "b1": 1}, web)])).groups)
    assert group.all_counts() == {"zoneA": 1, "zoneB": 1}


def feasible(snapshot: ClusterSnapshot, incoming: Pod) -> set[str]:
    return set(Predictor(ClusterView(snapshot)).prepare(incoming).feasible_nodes())


FOUR_NODES = [node("node1", "zoneA"), node("node2", "zoneA"), node("node3", "zoneB"), node("node4", "zoneB")]


@pytest.mark.parametrize(
    ("nodes", "on_node_1_and_3", "also", "expected"),
    [
        pytest.param(4, 1, (), {"node3", "node4"}, id="zone B and not zone A"),
        pytest.param(4, 1, (constraint(HOSTNAME),), {"node4"}, id="with a second one on nodes only the empty node"),
        pytest.param(3, 2, (constraint(HOSTNAME),), set(), id="on three nodes both conflict, it stays Pending"),
    ],
)
def test_the_next_pod_goes_to(nodes: int, on_node_1_and_3: int, also: Any, expected: set[str]) -> None:
    web = spec(constraint(), *also)
    by_node = {"node1": on_node_1_and_3, "node2": 1, "node3": on_node_1_and_3}
    assert feasible(cluster(FOUR_NODES[:nodes], pods(by_node, web)), pod("mypod", "", web)) == expected


def test_the_excluded_zone_c_takes_no_pod_and_zone_b_does() -> None:
    not_in_c = NodeSelector(
        node_selector_terms=(NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(ZONE, "NotIn", ("zoneC",)),)),)
    )
    web = spec(constraint(), node_affinity=not_in_c)
    snapshot = cluster([*FOUR_NODES, node("node5", "zoneC")], pods({"node1": 1, "node2": 1, "node3": 1}, web))
    assert feasible(snapshot, pod("mypod", "", web)) == {"node3", "node4"}
