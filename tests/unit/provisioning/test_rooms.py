"""The room that is requested in domains without a node, and its placeholder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.policy import ConstraintRules, ExpectedDomains, Policy, Provision
from respread.api.reasons import Held, Reason
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration
from respread.cluster.state import ClusterSnapshot
from respread.provisioning.room_objects import PLACEHOLDER_LABEL, buffer, placeholder
from respread.provisioning.rooms import WantedRoom, is_short, wanted_rooms
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import WEB, default_policy, plan_of
from tests.worlds import ZONE, cluster, constraint, node, pods, spec, taint


def asking(*values: str, key: str = ZONE, provision: Provision = "Request", **fields: Any) -> Policy:
    expected = ExpectedDomains(topology_key=key, values=values, provision=provision, priority_class_name="low")
    return default_policy(constraints=ConstraintRules(expected_domains=(expected,)), **fields)


def rooms(snapshot: ClusterSnapshot, policy: Policy, **options: Any) -> list[WantedRoom]:
    plan = plan_of(snapshot, policy, **options)
    labels = [each.labels for each in snapshot.nodes.values()]
    return list(wanted_rooms(plan, spread_of(snapshot).groups, {policy.name: policy}, labels))


def in_zones(counts: Iterable[int], of: Any = WEB) -> ClusterSnapshot:
    """Return a cluster with these numbers of pods in zone a, b, …, with one node each."""
    placed = {f"{zone}1": count for zone, count in zip("abcdef", counts, strict=False)}
    return cluster([node(name, name[0]) for name in placed], pods(placed, of))


@pytest.mark.parametrize(
    ("counts", "expected", "max_skew", "lacking"),
    [
        ([3], "ab", 1, {"b": 1}),
        ([4], "ab", 1, {"b": 2}),
        ([2, 2], "abc", 1, {"c": 1}),
        ([6, 6], "abc", 1, {"c": 4}),
        ([6], "abc", 1, {"b": 2, "c": 2}),
        ([9], "ab", 5, {"b": 2}),
        ([1], "ab", 1, {}),
        ([5], "ab", 5, {}),
    ],
)
def test_a_placeholder_has_as_many_pods_as_the_domain_lacks(
    counts: list[int], expected: str, max_skew: int, lacking: dict[str, int]
) -> None:
    found = rooms(in_zones(counts, spec(constraint(max_skew=max_skew))), asking(*expected))
    assert {each.key.domain: each.pods for each in found} == lacking
    for domain, count in lacking.items():
        level = max(counts[0] - sum(lacking.values()) // len(counts), count)
        assert level - count <= max_skew, domain


@pytest.mark.parametrize(
    "policy", [asking("a", "b", provision="Report"), asking("a"), asking("c", key="rack"), default_policy()]
)
def test_a_policy_without_provision_requests_nothing(policy: Policy) -> None:
    assert rooms(in_zones([3]), policy) == []


def test_nothing_is_requested_while_a_group_is_blocked_for_another_reason() -> None:
    world = in_zones([3, 0])
    held = Held(Reason.BACKING_OFF, "its evictions have improved nothing")
    assert rooms(world, asking("a", "b", "c"), on_hold=lambda *_: held) == []
    assert len(rooms(world, asking("a", "b", "c"))) == 1


def test_nothing_is_requested_in_a_domain_that_the_pods_exclude() -> None:
    pinned = spec(constraint(), node_selector=Map({ZONE: "a"}))
    assert rooms(in_zones([3], pinned), asking("a", "b")) == []


def full(of: Any = WEB, counts: Iterable[int] = (3,), **fields: Any) -> ClusterSnapshot:
    """Return a cluster with pods in zone a, b, … and zone z, whose node has no place for one more pod."""
    placed = {f"{zone}1": count for zone, count in zip("abcdef", counts, strict=False)}
    nodes = [node("z1", "z", pods=0, **fields), *(node(name, name[0]) for name in placed)]
    return cluster(nodes, pods(placed, of))


def test_room_is_requested_in_a_domain_whose_nodes_are_full() -> None:
    policy = asking("a", "z")
    (room,) = rooms(full(), policy)
    assert (room.key.domain, room.pods) == ("z", 1)
    (blocked,) = plan_of(full(), policy).blocked
    assert blocked.reason is Reason.NO_FEASIBLE_NODE
    assert blocked.message.endswith(
        "; policy default asks for nodes there, and its condition RoomMissing says how that goes"
    )


@pytest.mark.parametrize(
    ("counts", "max_skew", "lacking"), [([4], 1, 2), ([6, 6], 1, 4), ([9], 5, 2), ([6, 6], 3, 2), ([1], 1, 0)]
)
def test_a_full_domain_gets_the_fewest_pods_with_which_the_constraint_holds(
    counts: list[int], max_skew: int, lacking: int
) -> None:
    found = rooms(full(spec(constraint(max_skew=max_skew)), counts), asking("a", "b", "z"))
    assert [each.pods for each in found] == ([lacking] if lacking else [])
    total, others = sum(counts), len(counts)
    assert -(-(total - lacking) // others) - lacking <= max_skew
    assert lacking == 0 or -(-(total - lacking + 1) // others) - (lacking - 1) > max_skew, "no fewer would do"


@pytest.mark.parametrize(
    "world",
    [
        full(unschedulable=True),
        full(taints=(taint(),)),
        cluster([node("a1", "a"), node("z1", "z", taints=(taint(),))], pods({"a1": 3}, WEB)),
    ],
)
def test_nothing_is_requested_in_a_domain_where_another_node_would_not_accept_the_pods_either(
    world: ClusterSnapshot,
) -> None:
    assert rooms(world, asking("a", "z")) == []


def test_nothing_is_requested_in_a_full_domain_that_no_policy_names_or_only_reports() -> None:
    for policy in (asking("a"), asking("a", "z", provision="Report"), default_policy()):
        assert rooms(full(), policy) == []
        (blocked,) = plan_of(full(), policy).blocked
        assert "RoomMissing" not in blocked.message


def test_nothing_is_requested_in_a_full_domain_before_the_plan_has_filled_it() -> None:
    """Zone z has room for one of the two pods that it lacks."""
    nodes, policy = [node("a1", "a"), node("z1", "z", pods=1)], asking("a", "z")
    before = cluster(nodes, pods({"a1": 5}, WEB))
    assert len(plan_of(before, policy).moves) == 1
    assert rooms(before, policy) == []
    (room,) = rooms(cluster(nodes, pods({"a1": 4, "z1": 1}, WEB)), policy)
    assert room.pods == 1


def test_the_placeholder_has_the_size_of_the_largest_template() -> None:
    small, large = (spec(constraint(), requests=Map(cpu=cpu)) for cpu in (100, 900))
    world = cluster([node("a1", "a")], [*pods({"a1": 2}, small), *renamed(pods({"a1": 2}, large))])
    (room,) = rooms(world, asking("a", "b"))
    assert room.spec.requests == Map(cpu=900)


def renamed(found: Iterable[Pod]) -> list[Pod]:
    return [msgspec.structs.replace(each, name=f"large-{each.name}", uid=f"large-{each.uid}") for each in found]


def test_a_group_is_short_until_the_constraint_would_hold_with_the_domain() -> None:
    policy = asking("a", "b")
    policies = {policy.name: policy}
    (room,) = rooms(in_zones([4]), policy)
    for counts, short in (([4], True), ([4, 0], True), ([3, 1], True), ([2, 2], False), ([1], False)):
        world = in_zones(counts)
        assert is_short(room.key, plan_of(world, policy), spread_of(world).groups, policies) is short, counts
    world = in_zones([4])
    assert not is_short(room.key, plan_of(world, policy), spread_of(world).groups, {})
    report = asking("a", "b", provision="Report")
    assert not is_short(room.key, plan_of(world, report), spread_of(world).groups, {report.name: report})
    namesake = msgspec.structs.replace(policy, uid="created-again")
    assert not is_short(room.key, plan_of(world, namesake), spread_of(world).groups, {policy.name: namesake})


def test_a_room_has_the_same_name_in_every_process() -> None:
    (room,) = rooms(in_zones([4]), asking("a", "b"))
    assert room.key.id == "95aa65301cd9"


def test_only_a_cluster_policy_owns_the_placeholders_that_it_requests() -> None:
    """The garbage collector deletes objects whose owner is in another namespace."""
    policy = msgspec.structs.replace(asking("a", "b"), uid="uid-of-the-policy")
    (room,) = rooms(in_zones([4]), policy)
    owner = {"apiVersion": "respread.dev/v1alpha1", "kind": "ClusterRebalancePolicy"}
    for made in (placeholder(room, "respread-system", "pause"), buffer(room, "respread-system")):
        assert made["metadata"]["ownerReferences"] == [{**owner, "name": "default", "uid": "uid-of-the-policy"}]
    in_namespace = msgspec.structs.replace(policy, kind="RebalancePolicy", namespace="default")
    (room,) = rooms(in_zones([4]), in_namespace)
    for made in (placeholder(room, "respread-system", "pause"), buffer(room, "respread-system")):
        assert "ownerReferences" not in made["metadata"]


GPU = NodeSelector((NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("gpu", "Exists"),)),))


def test_the_placeholder_has_the_node_constraints_of_the_pods() -> None:
    of = spec(
        constraint(),
        requests=Map({"cpu": 1500, "memory": 1 << 30, "example.com/gpu": 1}),
        node_selector=Map(pool="shop"),
        node_affinity=GPU,
        tolerations=(Toleration("dedicated", "Exists"),),
        scheduler_name="own",
    )
    world = cluster([node("a1", "a", labels={"gpu": "", "pool": "shop"})], pods({"a1": 4}, of))
    (room,) = rooms(world, asking("a", "b"))
    manifest = placeholder(room, "respread-system", "pause:1")
    assert manifest["metadata"]["namespace"] == "respread-system"
    assert manifest["metadata"]["labels"][PLACEHOLDER_LABEL] == room.key.id
    assert manifest["spec"]["replicas"] == 2
    template = manifest["spec"]["template"]
    assert template["metadata"]["annotations"] == {"respread.dev/evict": "false"}
    assert manifest["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["nodeSelector"] == {"pool": "shop", ZONE: "b"}
    assert template["spec"]["priorityClassName"] == "low"
    assert template["spec"]["schedulerName"] == "own"
    assert [each["key"] for each in template["spec"]["tolerations"]] == ["dedicated"]
    (term,) = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [each["key"] for each in term["matchExpressions"]] == ["gpu"]
    (container,) = template["spec"]["containers"]
    amounts = {"cpu": "1500m", "memory": str(1 << 30), "example.com/gpu": "1"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert template["spec"]["terminationGracePeriodSeconds"] == 0
