"""Plans for small clusters have the result that is computed by hand."""

from __future__ import annotations

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ConstraintRules, VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import EVICT, OwnerReference
from respread.cluster.objects import Node
from respread.cluster.pod import PodAffinityTerm
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Plan
from tests.plans import plan_cluster
from tests.unit.planning.blocked_plans import default_policy, plan_of
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, pods, spec


def make_plan(snapshot: ClusterSnapshot, *when: str) -> Plan:
    rules = ConstraintRules(when_unsatisfiable=when or ("DoNotSchedule",))  # type: ignore[arg-type]  # literals
    return plan_of(snapshot, default_policy(constraints=rules))


def zones(*counts: int) -> tuple[list[Node], dict[str, int]]:
    """Return a node in each of this many zones, and how many pods it has."""
    placed = {f"{zone}1": count for zone, count in zip("abcdef", counts, strict=False)}
    return [node(name, name[0]) for name in placed], placed


@pytest.mark.parametrize(
    ("counts", "max_skew", "fewest"),
    [
        *(((4, 0, 0), 1, 2), ((4, 4, 0), 2, 2), ((5, 3, 2), 1, 1), ((3, 3, 1), 1, 1), ((2, 2, 1), 1, 0)),
        *(((6, 0, 0, 0, 0), 1, 4), ((7, 1), 1, 3), ((7, 1), 2, 2), ((1, 0, 0), 1, 0)),
    ],
)
def test_one_zone_constraint_takes_the_fewest_moves(counts: tuple[int, ...], max_skew: int, fewest: int) -> None:
    nodes, placed = zones(*counts)
    plan = make_plan(cluster(nodes, pods(placed, spec(constraint(max_skew=max_skew)))))
    assert len(plan.moves) == plan.lower_bound == fewest
    assert not plan.blocked
    assert all(move.certain for move in plan.moves)


def test_a_soft_constraint_is_restored_only_if_selected_and_as_a_prediction() -> None:
    nodes, placed = zones(4, 0, 0)
    snapshot = cluster(nodes, pods(placed, spec(constraint(when="ScheduleAnyway"))))
    assert make_plan(snapshot).moves == ()
    plan = make_plan(snapshot, "DoNotSchedule", "ScheduleAnyway")
    assert len(plan.moves) == 2
    assert not any(move.certain for move in plan.moves)


def test_a_soft_constraint_sends_no_replacement_to_a_node_without_its_key() -> None:
    nodes, placed = zones(4, 1)
    snapshot = cluster([*nodes, node("x", None)], pods(placed, spec(constraint(when="ScheduleAnyway"))))
    plan = make_plan(snapshot, "ScheduleAnyway")
    assert [dict(counts) for counts in plan.counts_after.values()] == [{"a": 3, "b": 2}]


def test_the_pod_with_the_lowest_priority_is_evicted_first() -> None:
    web = spec(constraint())
    nodes, placed = zones(3, 1, 0)
    low = spec(constraint(), priority=-5)
    plan = make_plan(cluster(nodes, [*pods(placed, web), *pods({"a1": 1}, low, prefix="low")]))
    assert plan.moves[0].pod.name == "low-a1-0"


def test_a_move_says_why_its_pod_goes() -> None:
    nodes = [*(node(f"a{at}", "a") for at in (1, 2, 3)), node("b1", "b")]
    of = spec(constraint(), constraint(HOSTNAME, when="ScheduleAnyway"))
    both = spec(constraint(), constraint(HOSTNAME, max_skew=2))
    for there, why in (
        (pods({"a1": 5, "a2": 1}, of), [f"lowest disruption cost of the {left} on its node" for left in (5, 4, 3)]),
        (pods({"a1": 1, "a2": 1, "a3": 1}, of), ["the only one of its template on its node that may go"]),
        (pods({"a1": 3}, of, ready=False), ["it is not Ready"]),
        ([*pods({"a1": 3}, both, controller=None), *pods({"a2": 2}, both, ready=False)], ["it is not Ready"] * 2),
    ):
        moves = make_plan(cluster(nodes, there)).moves
        assert [move.why for move in moves] == why
        assert {group.topology_key for move in moves for group in move.groups} == {ZONE}


def test_a_long_plan_is_cut_at_three_hundred_moves() -> None:
    nodes = [node(name, name[0], pods=1000) for name in ("a1", "b1", "c1")]
    plan = make_plan(cluster(nodes, pods({"a1": 700}, spec(constraint()))))
    assert len(plan.moves) == 300
    (blocked,) = plan.blocked
    assert blocked.reason == Reason.SEARCH_LIMIT
    assert "more than the 300 evictions" in blocked.message


@pytest.mark.parametrize("important", ["all", "canaries"])
def test_a_group_with_pods_of_two_policies_belongs_to_the_more_important_policy(important: str) -> None:
    """The priority of its policy decides which group gets scarce room, not the policy's name."""
    selects = {
        "all": LabelSelector(match_labels=Map(track="stable")),
        "canaries": LabelSelector(match_labels=Map(track="canary")),
    }
    policies = [
        msgspec.structs.replace(
            default_policy(pod_selector=selector, priority=10 * (name == important)), object_name=name
        )
        for name, selector in selects.items()
    ]
    nodes, counts = zones(3, 0)
    of = spec(constraint())
    stable = pods(counts, of, labels=Map(app="web", track="stable"))
    canaries = pods(counts, of, prefix="canary", labels=Map(app="web", track="canary"))
    plan = plan_cluster(cluster(nodes, [*stable, *canaries]), policies, now=NOW)
    assert list(plan.policies.values()) == [important]


@pytest.mark.parametrize("room", [0, 1])
def test_a_pod_stays_if_only_pods_that_go_with_it_let_its_replacement_in(room: int) -> None:
    """Its required affinity is met in its own region by itself, until it is gone, and else in a full region."""
    friends = PodAffinityTerm("region", LabelSelector(Map(role="friend")))
    friend = spec(constraint(), pod_affinity=(friends,))
    labels = Map(app="web", role="friend")
    here, there = Map(region="here"), Map(region="there")
    nodes = [node("a1", "a", labels=here), node("b1", "b", labels=here), node("c1", "c", pods=1 + room, labels=there)]
    stays = pod("stays", "a1", spec(constraint()), annotations=Map({"respread.dev/evict": "never"}))
    plan = make_plan(
        cluster(nodes, [stays, pod("goes", "a1", friend, labels=labels), pod("far", "c1", friend, labels=labels)])
    )
    assert [move.pod.name for move in plan.moves][:1] == ["goes"] * room


@pytest.mark.parametrize(("kind", "is_moved"), [("StatefulSet", True), ("ReplicaSet", False)])
def test_a_pod_that_is_gone_before_its_replacement_comes_does_not_bind_it_by_affinity(
    kind: str, is_moved: bool
) -> None:
    """It is the only pod of its set, so that without it the replacement may go to any zone."""
    solo = Map(app="web", part="solo")
    term = PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector(match_labels=Map(part="solo")))
    nodes = [node("a1", "a"), node("b1", "b")]
    owner = OwnerReference("apps/v1", kind, "solo", "uid-solo")
    there = [
        pod("solo-0", "a1", spec(constraint(), pod_affinity=(term,)), labels=solo, controller=owner),
        *pods({"a1": 2, "b1": 1}, spec(constraint()), annotations=Map({EVICT: "never"})),
    ]
    plan = plan_of(cluster(nodes, there), default_policy(victims=VictimRules(min_replicas=1)))
    assert [move.pod.name for move in plan.moves] == ["solo-0"] * is_moved


@pytest.mark.parametrize("full", ["a1", "b1"])
def test_pods_whose_replacements_are_unknown_stay_beside_one_that_moves(full: str) -> None:
    fancy = pods({full: 4}, spec(constraint(), scheduler_name="fancy"), prefix="fancy")
    plain = pods({full: 1}, spec(constraint()), prefix="plain")
    plan = make_plan(cluster([node("a1", "a"), node("b1", "b")], [*fancy, *plain]))
    assert [move.pod.name for move in plan.moves] == [f"plain-{full}-0"]


def test_a_replacement_may_return_where_the_score_makes_that_unlikely() -> None:
    """Once its pod is gone, the full node of zone a is feasible, too. The score prefers zone b."""
    there = pods({"a1": 3}, spec(constraint(when="ScheduleAnyway")))
    plan = make_plan(cluster([node("a1", "a", pods=3), node("b1", "b")], there), "ScheduleAnyway")
    (move,) = plan.moves
    assert (move.from_domains[0], move.to_domains[0], move.certain) == ("a", ("a", "b"), False)
