"""How many moves of one group a plan makes at once, for one shape of constraints after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, product
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ConstraintRules, Limits, VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Node, Workload
from respread.cluster.pod import Pod, PodAffinityTerm, TopologySpreadConstraint
from respread.planning.moving_pods import UnderWay
from respread.planning.plan import Plan
from respread.scheduling.configuration import SchedulerConfiguration
from respread.spread.carried import ALL_DEFAULTS, DefaultConstraints
from tests.counting import calls
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy, plan_of
from tests.unit.planning.test_budgets import budget
from tests.worlds import HOSTNAME, NOW, cluster, constraint, node, pod, pods, spec, taint

POLICY = default_policy(
    limits=Limits(in_flight=500),
    victims=VictimRules(min_replicas=1),
    constraints=ConstraintRules(when_unsatisfiable=("DoNotSchedule", "ScheduleAnyway")),
)
OF_WEB = Map(app="web")
CAPACITY_TYPE = "karpenter.sh/capacity-type"


def controlled(by: str) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", by, f"uid-{by}")


WEB = controlled("web")


def zonal(**options: Any) -> TopologySpreadConstraint:
    return constraint(selector=OF_WEB, **options)


def per_node(**options: Any) -> TopologySpreadConstraint:
    return constraint(HOSTNAME, selector=OF_WEB, **options)


def by_capacity_type(**options: Any) -> TopologySpreadConstraint:
    return constraint(CAPACITY_TYPE, selector=OF_WEB, **options)


def of_web(by_zone: Mapping[str, int], nodes: int, *constraints: TopologySpreadConstraint) -> list[Pod]:
    """Return pods spread over the nodes of each zone."""
    by_node = {
        f"{zone}{at}": count // nodes + (at < count % nodes) for zone, count in by_zone.items() for at in range(nodes)
    }
    return pods(by_node, spec(*constraints), labels=OF_WEB, controller=WEB)


def zones(names: str, nodes: int, **options: Any) -> list[Node]:
    return [node(f"{zone}{at}", zone, **options) for zone in names for at in range(nodes)]


def planned(nodes: list[Node], web: list[Pod], **options: Any) -> Plan:
    return plan_cluster(cluster(nodes, web), [POLICY], now=NOW, **options)


def at_once(plan: Plan) -> tuple[int, int]:
    """Return how many moves are made now, and how many in all."""
    return sum(move.wave == 0 for move in plan.moves), len(plan.moves)


SOFT = {"when": "ScheduleAnyway"}


@pytest.mark.parametrize(
    ("constraints", "nodes"),
    [
        ([zonal()], 6),
        ([zonal()], 1),
        ([zonal(max_skew=2)], 6),
        ([zonal(**SOFT)], 6),
        ([zonal(), per_node()], 20),
        ([zonal(), per_node(**SOFT)], 20),
        ([zonal(**SOFT), per_node()], 20),
        ([zonal(), per_node()], 1),
        ([zonal(min_domains=3)], 6),
    ],
)
def test_all_moves_of_a_zone_that_is_too_full_are_made_at_once(
    constraints: list[TopologySpreadConstraint], nodes: int
) -> None:
    plan = planned(zones("abc", nodes), of_web({"a": 12}, nodes, *constraints))
    now, in_all = at_once(plan)
    assert now == in_all >= 6
    assert not plan.awaits_nodes


@pytest.mark.parametrize(("soft", "nodes"), [([], 1), ([], 2), ([per_node(**SOFT)], 4)])
def test_all_moves_are_made_at_once_if_zones_have_room_for_just_what_they_lack(
    soft: list[TopologySpreadConstraint], nodes: int
) -> None:
    plan = planned([*zones("a", nodes), *zones("bc", nodes, pods=4 // nodes)], of_web({"a": 12}, nodes, zonal(), *soft))
    assert at_once(plan) == (8, 8)


@pytest.mark.parametrize("nodes", [12, 140])
@pytest.mark.parametrize("by_part", [(), (constraint(HOSTNAME, max_skew=2, selector=Map(part="x")),)])
def test_all_moves_from_nodes_that_are_too_full_are_made_at_once(
    by_part: tuple[TopologySpreadConstraint, ...], nodes: int
) -> None:
    """Also of more nodes than domains that are looked at one by one, and if other constraints are about nodes, too."""
    web = pods({f"a{at}": 2 for at in range(nodes // 2)}, spec(per_node(), *by_part), labels=OF_WEB.set("part", "x"))
    other = pods({"a0": 1, "a1": 1}, spec(), labels=Map(part="x"), controller=controlled("other"), prefix="other")
    assert at_once(planned(zones("a", nodes), [*web, *other])) == (nodes // 2, nodes // 2)


def softly(part: str) -> TopologySpreadConstraint:
    """Return a soft constraint of one of several workloads of web."""
    return constraint(selector=Map(part=part), when="ScheduleAnyway")


def part_of_web(part: str, nodes: int, *constraints: TopologySpreadConstraint) -> list[Pod]:
    """Return 18 pods of zone a that are one of several workloads of web."""
    by_node = {f"a{at}": 18 // nodes for at in range(nodes)}
    return pods(by_node, spec(*constraints), labels=OF_WEB.set("part", part), prefix=part, controller=controlled(part))


@pytest.mark.parametrize("nodes", [1, 6])
@pytest.mark.parametrize(
    ("of_x", "of_y"),
    [([], []), ([softly("x")], [softly("y")]), ([softly("x")], []), ([per_node(**SOFT)], [])],
    ids=["alike", "each with a soft one of its own", "one with a soft one of its own", "one with a soft one of both"],
)
def test_workloads_of_one_group_take_turns(
    of_x: list[TopologySpreadConstraint], of_y: list[TopologySpreadConstraint], nodes: int
) -> None:
    """So that limits of a workload, and the few with which each begins, bind late."""
    plan = planned(
        zones("abc", nodes), [*part_of_web("x", nodes, zonal(), *of_x), *part_of_web("y", nodes, zonal(), *of_y)]
    )
    assert at_once(plan) == (24, 24)
    if of_x == of_y:
        assert Counter(move.workload.name for move in plan.moves) == {"x": 12, "y": 12}
        assert Counter(move.workload.name for move in plan.moves[:6]) == {"x": 3, "y": 3}


@pytest.mark.parametrize(
    "constraints",
    [
        (zonal(**SOFT), per_node(**SOFT)),
        (zonal(max_skew=5, **SOFT), per_node(max_skew=3, **SOFT)),
        (zonal(), per_node(max_skew=5, **SOFT)),
        (),
    ],
    ids=["soft", "soft, 5 and 3", "hard and soft", "defaults"],
)
@pytest.mark.parametrize("pods_in", [{"a": 36}, {"a": 36, "b": 2, "c": 4}, {"a": 12, "b": 12}])
@pytest.mark.parametrize("nodes", [2, 6])
def test_all_moves_are_made_at_once_beside_soft_constraints(
    constraints: tuple[TopologySpreadConstraint, ...], pods_in: Mapping[str, int], nodes: int
) -> None:
    """They leave nodes with too many pods, or their nodes take several before they have too many."""
    now, in_all = at_once(planned_by_default(zones("abc", nodes), of_web(pods_in, nodes, *constraints)))
    assert now == in_all >= 5


def test_pods_go_from_all_nodes_in_turn_if_soft_constraints_spread_them() -> None:
    """If a node were left with one pod, none of zone c might take five."""
    nodes = [*zones("ab", 6), *zones("c", 3)]
    assert at_once(planned_by_default(nodes, of_web({"a": 24, "b": 24}, 6))) == (13, 13)


@pytest.mark.parametrize(("max_skew", "in_c", "expected"), [(1, 4, (12, 12)), (8, 12, (4, 12))])
def test_a_broader_constraint_of_another_workload_lets_those_go_at_once_that_improve_it(
    max_skew: int, in_c: int, expected: tuple[int, int]
) -> None:
    team = Map(team="t")
    web = pods({f"{zone}{at}": 3 for zone in "ab" for at in range(6)}, spec(zonal()), labels=team.set("app", "web"))
    broader = spec(constraint(max_skew=max_skew, selector=team))
    api = pods({"a0": 4, "b0": 4, "c0": in_c}, broader, labels=team, prefix="api", controller=controlled("api"))
    assert at_once(planned(zones("abc", 6), [*web, *api])) == expected


def planned_by_default(nodes: list[Node], web: list[Pod]) -> Plan:
    """Return the plan with the scheduler's own default constraints, for pods that have none."""
    owner = Workload(namespace="default", name="web", selector=LabelSelector(match_labels=OF_WEB))
    snapshot = cluster(nodes, web, replicasets=[owner])
    spread = spread_of(snapshot, DefaultConstraints(SchedulerConfiguration(), ALL_DEFAULTS))
    return plan_cluster(snapshot, [POLICY], now=NOW, spread=spread)


def test_default_constraints_let_only_one_go_if_a_node_lacks_a_label() -> None:
    """The scheduler scores such a node by the other default constraint alone."""
    nodes = [*zones("abc", 6), node("d0", None), node("b9", "b", pods=1)]
    plan = planned_by_default(nodes, of_web({"a": 36}, 6))
    assert at_once(plan)[0] == 1
    assert (waits := plan.moves[1].waits) is not None
    assert "the move before it has a node: that several at once are safe can't be proven" in waits.message
    gone = pod("gone", "b9", spec(), labels=Map(app="gone"), deletion_timestamp=NOW)
    assert (waits := planned_by_default(nodes, [*of_web({"a": 6}, 6), gone]).moves[0].waits) is not None
    assert "until terminating pods are gone: replacements may land on the nodes that they leave" in waits.message


@pytest.mark.parametrize("key", [HOSTNAME, "rack"])
@pytest.mark.parametrize("nodes_of_b", [1, 2, 6])
def test_a_soft_constraint_that_each_eviction_improves_keeps_no_move_waiting(key: str, nodes_of_b: int) -> None:
    """Each of these evictions takes from its excess as much as a landing adds, so it may be anywhere."""
    sizes = {"a": 6, "b": nodes_of_b, "c": 3}
    nodes = [
        node(f"{zone}{at}", zone, labels={"rack": f"{zone}{at % 2}"})
        for zone, size in sizes.items()
        for at in range(size)
    ]
    constraints = zonal(), constraint(key, selector=OF_WEB, when="ScheduleAnyway")
    now, in_all = at_once(planned(nodes, of_web({"a": 36}, 6, *constraints)))
    assert now == in_all >= 15


def test_moves_for_which_a_budget_has_room_are_of_as_many_nodes_as_possible() -> None:
    """Limits of a node would hold most of them otherwise, beside places that the budget leaves."""
    of_web_pods = budget(allowed=6, current_healthy=60, desired_healthy=54, expected_pods=60)
    web = of_web({"a": 60}, 10, zonal())
    snapshot = cluster(zones("abc", 10), web, poddisruptionbudgets=[of_web_pods])
    now = [move.pod.node_name for move in plan_cluster(snapshot, [POLICY], now=NOW).moves if move.wave == 0]
    assert len(now) == len(set(now)) == 6


@pytest.mark.parametrize("places", [1, 2, 3, 4])
def test_a_group_with_little_room_costs_no_search(places: int) -> None:
    """As many pods move as there are places. That no plan is better follows from these, without a search."""

    def planning(places: int) -> int:
        nodes = [*zones("a", 10), *zones("bc", 4, pods=places)]
        return calls(lambda: planned(nodes, of_web({"a": 60}, 10, zonal())))

    assert planning(places) <= 2 * planning(110)


@pytest.mark.parametrize("max_skew", [1, 2])
def test_a_constraint_that_workloads_share_beside_their_own_costs_no_search(max_skew: int) -> None:
    def planning(*shared: TopologySpreadConstraint) -> int:
        parts = (part_of_web(part, 6, constraint(selector=Map(part=part)), *shared) for part in "xy")
        return calls(lambda: planned(zones("abc", 6), list(chain.from_iterable(parts))))

    assert planning(zonal(max_skew=max_skew)) <= 3 * planning()


@pytest.mark.parametrize("of_x", [[], [softly("z")]], ids=["", "and a soft one of others"])
def test_workloads_that_share_a_constraint_beside_their_own_are_moved_at_once(
    of_x: list[TopologySpreadConstraint],
) -> None:
    x, y = (part_of_web(part, 6, zonal(), constraint(selector=Map(part=part)), *of_x * (part == "x")) for part in "xy")
    z = pods({"b0": 2}, spec(), labels=Map(part="z"), prefix="z", controller=controlled("z"))
    assert at_once(planned(zones("ab", 6), [*x, *y, *z])) == (18, 18)


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"taints": (taint(),)}], ids=["cordoned", "tainted"])
def test_pods_that_could_be_moved_may_stay_on_a_node_that_takes_no_more(closed: dict[str, Any]) -> None:
    nodes = [*zones("a", 1), node("b0", "b", **closed), node("b1", "b", pods=3)]
    web = pods({"a0": 10, "b0": 4}, spec(zonal()), labels=OF_WEB, controller=WEB)
    plan = planned(nodes, web)
    assert [(move.from_domains, move.to_domains) for move in plan.moves] == [(("a",), (("b",),))] * 3


@pytest.mark.parametrize(("in_flight", "under_way", "expected"), [(2, 0, 8), (2, 1, 4), (2, 2, 4), (3, 2, 6)])
def test_moves_beyond_what_limits_allow_at_once_wait_for_limits(in_flight: int, under_way: int, expected: int) -> None:
    policy = default_policy(limits=Limits(in_flight=in_flight))
    beside = UnderWay(of_policies=Map({policy.name: under_way} if under_way else {}))
    plan = plan_of(cluster(zones("abc", 6), of_web({"a": 60}, 6, zonal())), policy, under_way=beside)
    assert at_once(plan) == (expected, 40)
    assert {move.waits.reason for move in plan.moves if move.wave > 0 and move.waits} == {Reason.LIMIT_REACHED}
    assert all(move.waits for move in plan.moves if move.wave > 0)


@pytest.mark.parametrize(
    ("full", "nodes", "constraints", "expected"),
    [
        ("as ao", 12, [zonal(), by_capacity_type()], (16, 16)),
        ("as ao", 12, [zonal(), by_capacity_type(max_skew=5)], (16, 16)),
        ("as bs cs", 12, [zonal(), by_capacity_type()], (18, 18)),
        ("as ao", 12, [zonal(), by_capacity_type(), per_node()], (16, 16)),
        ("as ao", 12, [zonal(), by_capacity_type(**SOFT)], (16, 16)),
        ("as ao", 12, [zonal(**SOFT), by_capacity_type()], (16, 16)),
        ("as ao", 12, [zonal(**SOFT), by_capacity_type(**SOFT)], (16, 16)),
        ("as ao", 12, [zonal(), by_capacity_type(max_skew=5, **SOFT)], (16, 16)),
        ("as ao", 3, [zonal(), by_capacity_type(), per_node()], (6, 16)),
        ("as ao", 3, [zonal(), by_capacity_type(), per_node(max_skew=2)], (11, 16)),
    ],
)
def test_all_moves_are_made_at_once_where_zones_and_capacity_types_cross(
    full: str, nodes: int, constraints: list[TopologySpreadConstraint], expected: tuple[int, int]
) -> None:
    """Or as many as are proven to have nodes beside one another."""
    there = [
        node(f"{zone}{kind}{at}", zone, labels={CAPACITY_TYPE: kind})
        for zone, kind, at in product("abc", "so", range(nodes))
    ]
    plan = planned(there, of_web(dict.fromkeys(full.split(), 12), nodes, *constraints))
    assert at_once(plan) == expected
    assert {move.waits.reason for move in plan.moves if move.waits} <= {Reason.IN_MOTION}, "not for limits"


@pytest.mark.parametrize("max_skew", [2, 3])
def test_a_soft_constraint_with_many_domains_keeps_no_move_waiting(max_skew: int) -> None:
    """If each replacement lands where the fewest are, no excess grows, even where an eviction lowers the minimum."""
    types = "wxyz"
    nodes = [
        node(f"{zone}{at}", zone, labels={CAPACITY_TYPE: each}) for zone in "abcd" for at, each in enumerate(types)
    ]
    web = of_web({"a": 20}, len(types), zonal(), by_capacity_type(max_skew=max_skew, **SOFT))
    assert at_once(planned(nodes, web)) == (15, 15)


@pytest.mark.parametrize(("in_c", "expected"), [(2, (16, 16)), (3, (8, 16))])
def test_all_moves_are_made_at_once_where_each_zone_has_as_many_racks(in_c: int, expected: tuple[int, int]) -> None:
    """If zone c has more racks than the others, these come to have fewer pods than the racks of the others need."""
    nodes = [
        node(f"{zone}{at}", zone, labels={"rack": f"{zone}-{at % (in_c if zone == 'c' else 2)}"})
        for zone, at in product("abc", range(6))
    ]
    racks = constraint("rack", max_skew=2, selector=OF_WEB)
    assert at_once(planned(nodes, of_web({"a": 24}, 6, zonal(), racks))) == expected


@pytest.mark.parametrize(("in_c", "expected"), [(10, 40), (11, 19)])
def test_other_workloads_with_a_pod_on_each_node_take_only_room_from_one(in_c: int, expected: int) -> None:
    """If zone c has more nodes than b, one replacement of each workload may land on each of b's for sure."""
    nodes = [*zones("ab", 10), *zones("c", in_c)]
    web, api = (
        pods({f"a{at}": 6 for at in range(10)}, spec(*own), labels=app, prefix=app["app"], controller=controlled(of))
        for app, of in ((OF_WEB, "web"), (Map(app="api"), "api"))
        for own in [(constraint(selector=app), constraint(HOSTNAME, selector=app))]
    )
    alone, both = planned(nodes, web), planned(nodes, [*web, *api])
    assert at_once(alone) == (expected, 40)
    assert at_once(both) == (2 * expected, 80)
    assert both.awaits_nodes == (expected < 40)


def test_pods_with_anti_affinity_to_other_workloads_are_moved_at_once() -> None:
    term = PodAffinityTerm(HOSTNAME, label_selector=LabelSelector(match_labels=Map(app="db")))
    web = pods({f"a{at}": 2 for at in range(6)}, spec(zonal(), pod_anti_affinity=(term,)), labels=OF_WEB)
    assert at_once(planned(zones("abc", 6), web)) == (8, 8)


@pytest.mark.parametrize(("free", "expected"), [((800,), (4, 4)), ((500, 300), (2, 4))])
def test_pods_of_several_templates_are_moved_at_once_where_all_have_room_in_any_order(
    free: tuple[int, ...], expected: tuple[int, int]
) -> None:
    """Two large pods and two small ones have to go to zone b. A small one may take a place that a large one needs."""
    large, small = (
        pods({"a0": number}, spec(zonal(), requests=Map(cpu=cpu)), labels=OF_WEB, prefix=of, controller=controlled(of))
        for of, cpu, number in (("large", 300, 6), ("small", 100, 2))
    )
    used = [spec(requests=Map(cpu=64_000 - cpu)) for cpu in free]
    fillers = [pod(f"filler-{at}", f"b{at}", each, labels=Map(app="filler")) for at, each in enumerate(used)]
    assert at_once(planned([*zones("a", 1), *zones("b", len(free))], [*large, *small, *fillers])) == expected


def test_pods_that_need_large_nodes_keep_one_beside_small_pods_with_the_same_preferences() -> None:
    """Two small ones might take both large nodes of zone b, whatever room these have."""
    small = [msgspec.structs.replace(each, allocatable=Map(cpu=100, pods=9)) for each in zones("b", 4)[2:]]
    specs = [spec(zonal(**SOFT), per_node(**SOFT), requests=Map(cpu=cpu)) for cpu in (300, 100)]
    web = [
        pod(f"{name}-{at}", f"a{at}", of, labels=OF_WEB.set("part", name), controller=controlled(name))
        for name, of, on in zip(("large", "small"), specs, ("01", "2345"), strict=True)
        for at in on
    ]
    assert at_once(planned([*zones("a", 6), *zones("b", 2), *small], web)) == (2, 3)


@pytest.mark.parametrize("pods_of_b0", ["web", "other"])
def test_nothing_waits_for_the_room_that_terminating_pods_leave(pods_of_b0: str) -> None:
    """The nodes of zone a are full, as after the loss of a zone, and b0 is until pods of a scale-down are gone."""
    gone = pods({"b0": 3}, spec(), labels=Map(app=pods_of_b0), prefix="gone", deletion_timestamp=NOW)
    nodes = [*zones("a", 6, pods=2), node("b0", "b", pods=3), *zones("c", 6)]
    nodes += [node("b1", "b")]
    assert at_once(planned(nodes, [*of_web({"a": 12}, 6, zonal()), *gone])) == (8, 8)


def test_pods_that_keep_off_each_others_nodes_are_moved_at_once_while_each_zone_has_nodes_for_all() -> None:
    apart = spec(zonal(), pod_anti_affinity=(PodAffinityTerm(HOSTNAME, LabelSelector(match_labels=OF_WEB)),))
    web = pods({f"a{at}": 1 for at in range(6)}, apart, labels=OF_WEB, controller=WEB)
    gone = pods({"a6": 1}, apart, labels=OF_WEB, controller=WEB, prefix="gone", deletion_timestamp=NOW)
    in_a = zones("a", 7, pods=1)  # a6 opens, but not for the constraint
    assert at_once(planned([*in_a, *zones("bc", 4)], [*web, *gone])) == (4, 4)
    assert at_once(planned([*in_a, *zones("b", 4), *zones("c", 2)], [*web, *gone])) == (4, 4)
    assert at_once(planned([*in_a, *zones("b", 4), *zones("c", 1)], [*web, *gone])) == (2, 3)


def test_pods_go_before_those_that_wait_for_their_budget() -> None:
    """Of the 20 moves, 15 are of the workload that comes first, whose budget allows one."""
    fifteen: dict[str, Any] = {"current_healthy": 15, "expected_pods": 15}
    one, other = (
        pods({"a0": 15}, spec(zonal()), labels=OF_WEB.set("part", name), prefix=name, controller=controlled(name))
        for name in ("one", "other")
    )
    budgets = [
        budget(name, selector=LabelSelector(Map(part=name)), allowed=allowed, **fifteen, desired_healthy=15 - allowed)
        for name, allowed in (("one", 1), ("other", 3))
    ]
    plan = plan_cluster(cluster(zones("abc", 1), [*one, *other], poddisruptionbudgets=budgets), [POLICY], now=NOW)
    assert at_once(plan) == (4, 20)
    assert [move.wave for move in plan.moves] == [*[0] * 4, *range(1, 17)]
    labels = Map(app="api", part="one")  # It goes first, and takes the budget of the workload that comes first.
    of = spec(constraint(selector=Map(app="api")), node_selector=Map(pool="api"))
    in_cluster = [*one, *other, *pods({"a0": 2}, of, labels=labels, prefix="api")]
    nodes = [*zones("ab", 1, labels={"pool": "api"}), *zones("c", 1)]
    beside = plan_cluster(cluster(nodes, in_cluster, poddisruptionbudgets=budgets), [POLICY], now=NOW)
    now = Counter(move.pod.labels["app"] + move.pod.labels["part"] for move in beside.moves if move.wave == 0)
    assert now == {"apione": 1, "webother": 3}


def test_new_nodes_of_each_zone_get_a_pod_each_at_once() -> None:
    before = {f"{zone}{at}": 3 - at // 2 for zone in "abc" for at in range(3)}
    web = pods(before, spec(zonal(), per_node()), labels=OF_WEB, controller=WEB)
    assert at_once(planned(zones("abc", 4), web)) == (3, 6)


@pytest.mark.parametrize(
    ("nodes", "pods_in", "nodes_of_a", "constraints", "expected"),
    [
        ([*zones("a", 6), node("b0", "b", pods=3), node("b1", "b", pods=1)], {"a": 12}, 6, [zonal()], 4),
        ([*zones("a", 12), *zones("b", 4)], {"a": 12}, 12, [zonal(), per_node()], 4),
        ([*zones("a", 12), *zones("b", 4)], {"a": 12}, 12, [zonal(), per_node(max_skew=2)], 6),
        (zones("ab", 6), {"a": 18, "b": 9}, 6, [zonal(), per_node(max_skew=2)], 4),
        (zones("abc", 6), {"a": 30, "b": 30}, 6, [zonal(), per_node()], 20),
        ([*zones("ab", 6), *zones("c", 5)], {"a": 30, "b": 30}, 6, [zonal(), per_node()], 20),
        ([*zones("ab", 5), *zones("c", 6)], {"a": 30, "b": 30}, 5, [zonal(), per_node()], 20),
        (zones("abc", 6), {"a": 60}, 6, [zonal(), per_node()], 40),
        (zones("abc", 6), {"a": 60}, 6, [zonal(), per_node(max_skew=2)], 40),
        (zones("abc", 2), {"a": 120}, 2, [zonal(), per_node()], 80),
        (zones("abc", 6), {"a": 41, "b": 12, "c": 7}, 6, [zonal(), per_node()], 21),
        (zones("abc", 6), {"a": 4}, 6, [zonal(min_domains=4)], 2),
        ([*zones("ab", 6), node("c0", "c", taints=(taint(),))], {"a": 8}, 6, [zonal()], 1),
    ],
)
def test_as_many_are_made_at_once_as_there_are_places(
    nodes: list[Node], pods_in: Any, nodes_of_a: int, constraints: list[TopologySpreadConstraint], expected: int
) -> None:
    """With minDomains 4, no zone may have more than one. A zone that takes no pods, and counts, is no place."""
    assert at_once(planned(nodes, of_web(pods_in, nodes_of_a, *constraints))) == (expected, expected)


def test_an_eviction_that_lowers_the_minimum_of_another_constraint_waits() -> None:
    """Each of the nodes has a pod. Without the one on a0, zone b's node would have one too many for its constraint."""
    nodes = [*zones("a", 3), *zones("b", 1)]
    plan = planned(
        nodes,
        of_web({"a": 3}, 3, zonal(), per_node())
        + pods({"b0": 1}, spec(zonal(), per_node()), labels=OF_WEB, controller=WEB, prefix="web-b"),
    )
    assert plan.moves == ()


def test_moves_that_may_lower_the_minimum_of_one_of_two_constraints_are_not_made_at_once() -> None:
    """Once six have come to the six nodes of zone b, each node has a pod unless one of zone a has lost both of its."""
    nodes, web = zones("ab", 6), of_web({"a": 12}, 6, zonal(), per_node(max_skew=2))
    assert at_once(planned(nodes, web)) == (6, 6), "one of each node of zone a"
    kept = {"annotations": Map({"respread.dev/evict": "never"})}
    of_three = [each if each.node_name in ("a0", "a1", "a2") else msgspec.structs.replace(each, **kept) for each in web]
    plan = planned(nodes, of_three)
    assert at_once(plan) == (5, 6)
    assert (waits := plan.moves[-1].waits) is not None
    assert waits.message.endswith("until the replacements of the moves before it have a node: it is safe only then")


def test_replacements_on_their_way_count_wherever_they_land() -> None:
    """Eight of twelve have to go. Five are on their way: two of the replacements exist, and three do not."""
    web = of_web({"a": 12}, 6, zonal())
    new = [pod(f"web-new-{at}", "", web[0].spec, labels=OF_WEB, controller=WEB, phase="Pending") for at in range(2)]
    plan = planned(
        zones("abc", 6), [*web[5:], *new], under_way=UnderWay(unreplaced=tuple(web[:3]), replacements=tuple(new))
    )
    assert at_once(plan) == (3, 3)
