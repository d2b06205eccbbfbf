"""A policy's expected domains without a node are reported if they would help."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.api.policy import ConstraintRules, ExpectedDomains, Policy
from respread.api.reasons import Reason
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from tests.unit.planning.blocked_plans import WEB, blocked, default_policy, plan_of, three_in_a, two_zones
from tests.worlds import ZONE, cluster, constraint, node, pods, spec


def expecting(*values: str, key: str = ZONE, **rules: Any) -> Policy:
    expected = ExpectedDomains(topology_key=key, values=values)
    return default_policy(constraints=ConstraintRules(expected_domains=(expected,), **rules))


def test_an_expected_domain_without_a_node_is_reported() -> None:
    """Also if others can be restored, instead of minDomains, and beside affinity for other labels."""
    in_a, in_both = [node("a1", "a", labels={"gpu": ""})], pods({"a1": 2, "b1": 2}, spec(constraint(min_domains=3)))
    assert blocked(cluster(in_a, three_in_a()), expecting("a", "b", "c")).message == (
        "b and c have no node, so the scheduler does not know them, and a holds 3 pods, where maxSkew 1 would not "
        f"allow it with them there: add nodes labelled {ZONE}=b, or take them out of "
        "spec.constraints.expectedDomains of policy default"
    )
    asked = ExpectedDomains(topology_key=ZONE, values=("c",), provision="Request", priority_class_name="low")
    requesting = default_policy(constraints=ConstraintRules(expected_domains=(asked,)))
    requests = "policy default asks for nodes there, and its condition RoomMissing says how that goes"
    for nodes, there, policy, moves, end in (
        (in_a, three_in_a(), requesting, 0, requests),
        (two_zones(), pods({"a1": 6}, WEB), expecting("a", "b", "c"), 3, "of policy default"),
        (two_zones(), in_both, expecting("c"), 0, "of policy default"),
        (in_a, three_in_a(spec(constraint(), node_affinity=GPU)), expecting("c"), 0, "of policy default"),
    ):
        found = blocked(cluster(nodes, there), policy, moves=moves)
        assert (found.reason, found.message[:13]) == (Reason.DOMAIN_HAS_NO_NODE, "c has no node")
        assert found.message.endswith(end)


def test_the_current_obstacle_is_reported_before_the_expected_domain() -> None:
    found = blocked(cluster(two_zones(pods=0), three_in_a()), expecting("c"))
    assert found.reason == Reason.NO_FEASIBLE_NODE


ZONE_A_OR_B = NodeSelector((NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(ZONE, "In", ("a", "b")),)),))
GPU = NodeSelector((NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("gpu", "Exists"),)),))


@pytest.mark.parametrize(
    ("of", "policy"),
    [
        (WEB, expecting("a")),  # the domain has a node
        (WEB, expecting("c", key="rack")),  # the domain is of another key
        (WEB, expecting("c", when_unsatisfiable=("ScheduleAnyway",))),  # the policy does not restore the constraint
        (spec(constraint(max_skew=3)), expecting("c")),  # the constraint would hold with the domain
        (spec(constraint(), node_selector=Map({ZONE: "a"})), expecting("c")),  # no pod of the group may go there
        (spec(constraint(), node_affinity=ZONE_A_OR_B), expecting("c")),
    ],
)
def test_expected_domains_that_would_not_help_are_not_reported(of: PodSpec, policy: Policy) -> None:
    assert plan_of(cluster([node("a1", "a")], three_in_a(of)), policy).blocked == ()
