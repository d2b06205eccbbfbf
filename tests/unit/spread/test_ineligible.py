"""Exactly the nodes that are ineligible for a constraint have a reason."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from immutables import Map

from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration
from respread.spread.group import domains_of, ineligible_nodes, why_ineligible
from respread.spread.index import SpreadIndex
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, pods, spec, taint

NOT_C = NodeSelector((NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(ZONE, "NotIn", ("c",)),)),))
NODES = [
    node(f"n{number}", zone, labels=labels, taints=taints)
    for number, (zone, labels, taints) in enumerate(
        product(
            ("a", "b", "c", None),
            ({}, {"disk": "ssd"}),
            ((), (taint(),), (taint(effect="PreferNoSchedule"),), (taint("other", "NoExecute", "x"),)),
        )
    )
]


@pytest.mark.parametrize("affinity_policy", ["Honor", "Ignore"])
@pytest.mark.parametrize("taints_policy", ["Honor", "Ignore"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"node_selector": Map(disk="ssd")},
        {"node_affinity": NOT_C},
        {"tolerations": (Toleration(key="dedicated", operator="Exists"),)},
    ],
)
def test_a_node_has_a_reason_if_and_only_if_it_is_ineligible(
    affinity_policy: str, taints_policy: str, fields: dict[str, Any]
) -> None:
    policies: dict[str, Any] = {"node_affinity_policy": affinity_policy, "node_taints_policy": taints_policy}
    of: PodSpec = spec(constraint(ZONE, **policies), constraint(HOSTNAME, **policies), **fields)
    groups = spread_of(cluster(NODES, pods({"n0": 1}, of))).groups
    assert len(groups) == 2
    for key, group in groups.items():
        eligible = domains_of(key.eligibility, key.topology_key, NODES).of_node
        reasons = {each.name: why_ineligible(key.eligibility, key.topology_key, each) for each in NODES}
        assert {name for name, why in reasons.items() if why is None} == set(eligible)
        told = [name for each in ineligible_nodes(group, NODES) for name in each.nodes]
        assert sorted(told) == sorted(reasons.keys() - eligible.keys())


def test_each_constraint_has_the_policies_of_its_own() -> None:
    of = spec(
        constraint(ZONE, node_taints_policy="Honor", node_affinity_policy="Ignore"),
        constraint(HOSTNAME, node_taints_policy="Honor", node_affinity_policy="Honor"),
        constraint(HOSTNAME, 2, node_taints_policy="Ignore", node_affinity_policy="Honor"),
    )
    keys = spread_of(cluster(NODES, pods({"n0": 1}, of))).groups
    policies = {(each.eligibility.node_taints_policy, each.eligibility.node_affinity_policy) for each in keys}
    assert policies == {("Honor", "Ignore"), ("Honor", "Honor"), ("Ignore", "Honor")}


def test_nodes_with_the_same_reason_are_reported_together() -> None:
    of = spec(constraint(node_taints_policy="Honor"))
    nodes = [
        node("a1", "a"),
        node("b2", "b", taints=(taint("dedicated", value="gpu"),)),
        node("b1", "b", taints=(taint("dedicated", value="gpu"),)),
        node("x1"),
    ]
    (group,) = spread_of(cluster(nodes, pods({"a1": 1}, of))).groups.values()
    assert [(each.domain, each.nodes, each.why) for each in ineligible_nodes(group, nodes)] == [
        (None, ("x1",), f"has no label {ZONE}"),
        ("b", ("b1", "b2"), "has the taint dedicated=gpu:NoSchedule, and nodeTaintsPolicy is Honor"),
    ]


@pytest.mark.parametrize("fields", [{}, {"node_affinity": NOT_C}])
def test_a_group_that_is_known_follows_the_nodes_that_come_and_go(fields: dict[str, Any]) -> None:
    """The minimum is 0 where there are no pods. A pod without a node comes in between, whose labels match too."""
    web, another = pods({"a1": 2}, spec(constraint(), **fields)), pod("p", "", spec(), labels=Map(app="web", tier="x"))
    index = SpreadIndex()
    for at, zones in enumerate(("a", "ab", "ab", "abc", "ab", "a")):
        snapshot = cluster([node(f"{zone}1", zone) for zone in zones], [*web, another] if at > 1 else web)
        (group,) = index.update(snapshot).groups.values()
        ((_, expected),) = spread_of(snapshot).groups.items()
        assert (dict(group.domains.nodes), group.skew) == (dict(expected.domains.nodes), expected.skew)
        assert set(group.matched) == set(expected.matched)
