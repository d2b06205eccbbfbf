"""Moves are made at the same time only if every pod that needs a node has room, for any choice of the scheduler."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.node import Node
from respread.cluster.pod import HostPort, Pod, PodSpec
from respread.planning.plan import Plan
from tests.plans import plan_cluster
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, spec

LIMITS = Limits(in_flight=50, in_flight_per_namespace=50, in_flight_per_node=50)
POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(limits=LIMITS))
IN_C: dict[str, Any] = {"node_selector": Map({ZONE: "c"})}


def zones(room: int, nodes: int = 1) -> list[Node]:
    """Return nodes in three zones; those of the third have room for this many pods in total."""
    return [node("a1", "a"), node("b1", "b"), *(node(f"c{at}", "c", pods=room // nodes) for at in range(nodes))]


def application(name: str, **fields: Any) -> list[Pod]:
    """Return two pods in zone a and one in zone b."""
    of = spec(constraint(selector=Map(app=name)), **fields)
    return [
        pod(f"{name}-{number}", on, of, labels=Map(app=name), controller=owner(name))
        for number, on in enumerate(("a1", "a1", "b1"))
    ]


def owner(name: str, kind: str = "ReplicaSet") -> OwnerReference:
    return OwnerReference("apps/v1", kind, name, f"uid-{name}")


def waiting(name: str = "other", **fields: Any) -> Pod:
    """Return a new pod without a node that may use only zone c."""
    meta = {name: fields.pop(name) for name in ("nominated_node_name", "creation_timestamp") if name in fields}
    of = PodSpec(**{"requests": Map(cpu=100), **IN_C, **fields})
    return pod(name, "", of, labels=Map(app=name), **{"creation_timestamp": NOW, **meta})


def planned(nodes: list[Node], *others: Pod, **options: Any) -> Plan:
    return plan_cluster(cluster(nodes, others), [POLICY], now=NOW, **options)


def at_once(plan: Plan) -> int:
    return sum(move.wave == 0 for move in plan.moves)


def test_the_wave_has_as_many_moves_as_fit() -> None:
    apps = [each for number in range(6) for each in application(f"web-{number}")]
    assert at_once(planned(zones(3), *apps)) == 3
    assert at_once(planned(zones(4, nodes=2), *apps)) == 4


def test_two_pods_that_fit_only_in_each_others_room_are_not_swapped() -> None:
    """An evicted pod uses its room until it is deleted, so the replacement would be Pending until then."""
    of = {app: spec(constraint(selector=Map(app=app))) for app in ("web", "api")}
    pods = [
        pod(f"{app}-{number}", on, of[app], labels=Map(app=app), controller=owner(app))
        for app, on in (("web", "a1"), ("api", "b1"))
        for number in range(2)
    ]
    full = planned([node("a1", "a", pods=2), node("b1", "b", pods=2)], *pods)
    assert full.moves == ()
    assert len(full.blocked) == 2
    with_room = planned([node("a1", "a", pods=3), node("b1", "b", pods=3)], *pods)
    assert {move.workload.name for move in with_room.moves} == {"web", "api"}


@pytest.mark.parametrize(("api_on", "moved"), [("b1", 0), ("b2", 0), ("a1", 1)], ids=["unlikely", "likely", "nowhere"])
def test_nothing_is_moved_if_the_scheduler_might_break_another_constraint(api_on: str, moved: int) -> None:
    """Because of a soft constraint, the replacement of web prefers b2 to b1, but it may use either."""
    rack = "example.com/rack"
    soft = constraint(HOSTNAME, when="ScheduleAnyway", selector=Map(crowd="yes"))
    web = spec(constraint(selector=Map(app="web")), soft)
    api = spec(constraint(rack, selector=Map(tier="front")))
    pods = [
        *(
            pod(f"web-{at}", "a1", web, labels=Map(app="web", tier="front", crowd="yes"), controller=owner("web"))
            for at in range(2)
        ),
        pod("api-0", api_on, api, labels=Map(app="api", tier="front"), controller=owner("api")),
        *(pod(f"crowd-{at}", "b1", spec(), labels=Map(crowd="yes"), controller=owner("crowd")) for at in range(3)),
    ]
    nodes = [node("a1", "a"), node("b1", "b", labels={rack: "r1"}), node("b2", "b", labels={rack: "r2"})]
    assert len(planned(nodes, *pods).moves) == moved


def test_a_move_in_flight_reserves_its_room_until_its_replacement_has_a_node() -> None:
    moving, other = application("moving"), application("other")
    plan = planned(zones(1), *moving[1:], *other, unreplaced=[moving[0]])
    assert at_once(plan) == 0
    (move,) = plan.moves
    assert move.waits is not None
    assert "the replacement of pod default/moving-0 has a node" in move.waits.message
    assert at_once(planned(zones(2), *moving[1:], *other, unreplaced=[moving[0]])) == 1


def test_a_group_with_a_move_in_flight_is_not_planned_for() -> None:
    web = application("web")
    web.append(pod("web-3", "a1", web[0].spec, labels=Map(app="web"), controller=owner("web")))
    plan = planned(zones(9), *web[1:], unreplaced=[web[0]])
    assert plan.moves == ()
    assert [each.message for each in plan.blocked if "yet to be created" in each.message]


def test_a_deleted_pod_of_a_stateful_set_reserves_room_for_its_replacement() -> None:
    deleted = pod(
        "db-0",
        "b1",
        spec(**IN_C),
        labels=Map(app="db"),
        controller=owner("db", "StatefulSet"),
        deletion_timestamp=NOW,
    )
    assert at_once(planned(zones(1), deleted, *application("web"))) == 0
    assert at_once(planned(zones(2), deleted, *application("web"))) == 1


@pytest.mark.parametrize(
    ("other", "room_needed"),
    [
        (waiting(), 2),
        (waiting(priority=-10), 2),
        (waiting(scheduler_name="another"), 2),
        (waiting(scheduler_name="another", creation_timestamp=NOW - timedelta(minutes=11)), 1),
        (waiting(creation_timestamp=NOW - timedelta(minutes=11)), 2),
        (waiting(has_scheduling_gates=True), 1),
        (waiting(node_selector=Map({ZONE: "x"})), 1),
        (waiting(requests=Map(cpu=1 << 40)), 1),
    ],
    ids=[
        "any",
        "of lower priority",
        "of another scheduler",
        "of another scheduler that does nothing",
        "old",
        "gated",
        "selecting no node",
        "too large for any node",
    ],
)
def test_a_pending_pod_reserves_the_room_that_it_may_take(other: Pod, room_needed: int) -> None:
    assert at_once(planned(zones(room_needed - 1), other, *application("web"))) == 0
    assert at_once(planned(zones(room_needed), other, *application("web"))) == 1


@pytest.mark.parametrize(
    ("room", "pending", "moved", "waits"), [(3, 0, 3, 0), (3, 1, 2, 0), (3, 2, 1, 0), (3, 3, 0, 3), (2, 3, 0, 2)]
)
def test_only_moves_that_pending_pods_may_displace_wait(room: int, pending: int, moved: int, waits: int) -> None:
    apps = [each for number in range(6) for each in application(f"web-{number}")]
    plan = planned(zones(room), *(waiting(f"other-{number}") for number in range(pending)), *apps)
    assert at_once(plan) == moved
    held = [move.waits.message for move in plan.moves if move.waits is not None]
    assert (len(held), len(plan.moves)) == (waits, moved + waits)
    assert all("it waits until pod default/other-" in message for message in held)
    assert [each.reason for each in plan.blocked] == [Reason.WAITING_FOR_ROOM] * (6 - moved - waits)
    assert all("taken first by" in each.message for each in plan.blocked)


def test_pending_pods_reserve_cpu_too() -> None:
    def with_cpu(cpu: int) -> list[Node]:
        small = Node(name="c1", labels=Map({ZONE: "c"}), allocatable=Map(pods=110, cpu=cpu))
        return [*zones(0)[:2], small]

    assert at_once(planned(with_cpu(299), waiting(requests=Map(cpu=200)), *application("web"))) == 0
    assert at_once(planned(with_cpu(300), waiting(requests=Map(cpu=200)), *application("web"))) == 1


def test_pending_pods_reserve_host_ports_too() -> None:
    port: dict[str, Any] = {"host_ports": (HostPort("TCP", 80),)}
    assert at_once(planned(zones(9), waiting(**port), *application("web", **port))) == 0
    assert at_once(planned(zones(9), waiting(), *application("web", **port))) == 1
    assert at_once(planned(zones(8, nodes=2), waiting(**port), *application("web", **port))) == 1


def test_nothing_is_moved_while_the_scheduler_may_preempt() -> None:
    """The scheduler preempts a pod on c0 for the nominated pod. The preempted pod and the replacement may use c1."""
    nodes = [*zones(2, nodes=2)]
    held = pod("low", "c0", spec(priority=-1, **IN_C), labels=Map(app="low"))

    def important(**fields: Any) -> Pod:
        return waiting("important", node_selector=Map({"kubernetes.io/hostname": "c0"}), priority=9, **fields)

    assert at_once(planned(nodes, held, *application("web"))) == 1
    assert at_once(planned(nodes, held, important(), *application("web"))) == 0
    assert at_once(planned(nodes, held, important(preempts=False), *application("web"))) == 1
    of_long_ago = important(creation_timestamp=NOW - timedelta(minutes=11))
    assert at_once(planned(nodes, held, of_long_ago, *application("web"))) == 1


def test_a_nominated_pod_reserves_its_node_even_against_a_higher_priority() -> None:
    preempted = pod("low", "c0", spec(priority=-1, **IN_C), labels=Map(app="low"), deletion_timestamp=NOW)
    nominated = waiting(nominated_node_name="c0")
    web = application("web", priority=5)
    assert at_once(planned(zones(2), preempted, nominated, *web)) == 0
    assert at_once(planned(zones(3), preempted, nominated, *web)) == 1


def test_hundreds_of_pending_pods_hold_nothing_if_there_is_enough_room() -> None:
    others = [waiting(f"other-{number}") for number in range(300)]
    assert at_once(planned(zones(400, nodes=4), *others, *application("web"))) == 1
    assert at_once(planned(zones(300, nodes=4), *others, *application("web"))) == 0


def test_pending_pods_reserve_room_only_on_feasible_nodes() -> None:
    elsewhere = waiting(node_selector=Map({ZONE: "b"}))
    assert at_once(planned(zones(1), elsewhere, *application("web"))) == 1
