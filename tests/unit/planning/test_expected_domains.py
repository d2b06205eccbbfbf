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
    found = blocked(cluster([node("a1", "a")], three_in_a()), expecting("a", "b", "c"))
    assert found.reason == Reason.DOMAIN_HAS_NO_NODE
    assert found.message == (
        "b and c have no node, so the scheduler does not know them, and a holds 3 pods, where maxSkew 1 would not "
        f"allow it with them there: add nodes labelled {ZONE}=b, or take them out of "
        "spec.constraints.expectedDomains of policy default"
    )


def test_the_message_says_that_the_policy_requests_nodes() -> None:
    asked = ExpectedDomains(topology_key=ZONE, values=("b",), provision="Request", priority_class_name="low")
    policy = default_policy(constraints=ConstraintRules(expected_domains=(asked,)))
    found = blocked(cluster([node("a1", "a")], three_in_a()), policy)
    assert found.message.endswith(
        "policy default asks for nodes there, and its condition RoomMissing says how that goes"
    )


def test_the_group_is_restored_where_possible_and_the_expected_domain_is_reported() -> None:
    found = blocked(cluster(two_zones(), pods({"a1": 6}, WEB)), expecting("a", "b", "c"), moves=3)
    assert found.reason == Reason.DOMAIN_HAS_NO_NODE


def test_an_expected_domain_explains_unmet_min_domains() -> None:
    found = blocked(cluster(two_zones(), pods({"a1": 2, "b1": 2}, spec(constraint(min_domains=3)))), expecting("c"))
    assert found.reason == Reason.DOMAIN_HAS_NO_NODE
    assert found.message.startswith("c has no node")


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


def test_node_affinity_on_other_labels_does_not_exclude_the_expected_domain() -> None:
    with_gpu = [node("a1", "a", labels={"gpu": ""})]
    found = blocked(cluster(with_gpu, three_in_a(spec(constraint(), node_affinity=GPU))), expecting("c"))
    assert found.reason == Reason.DOMAIN_HAS_NO_NODE
