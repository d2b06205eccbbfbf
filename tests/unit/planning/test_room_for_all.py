"""Moves are made at the same time only if every pod that needs a node has room, for any choice of the scheduler."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import ClaimReference, Node, PersistentVolume, PersistentVolumeClaim, Taint
from respread.cluster.pod import (
    GCEPersistentDisk,
    HostPort,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from respread.eviction.answers import Answer, EvictionResult
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from respread.planning.moving_pods import UnderWay
from respread.planning.plan import Plan
from tests.eviction_moves import move
from tests.plans import plan_cluster
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, spec, taint

LIMITS = Limits(in_flight=50, in_flight_per_namespace=50, in_flight_per_node=50)
POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(limits=LIMITS))
EVICTED = Answer(result=EvictionResult.EVICTED)
IN_C: dict[str, Any] = {"node_selector": Map({ZONE: "c"})}
PORT: dict[str, Any] = {"host_ports": (HostPort("TCP", 80),)}
DISK: dict[str, Any] = {"disks": (GCEPersistentDisk("disk", read_only=True),)}


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


def matching(key: str, value: str, *, is_field: bool = False) -> NodeSelector:
    """Return a selector of nodes by a label, or by a field as the DaemonSet controller uses it."""
    wanted = (NodeSelectorRequirement(key=key, operator="In", values=(value,)),)
    return NodeSelector((NodeSelectorTerm(match_fields=wanted) if is_field else NodeSelectorTerm(wanted),))


def planned(nodes: list[Node], *others: Pod, **options: Any) -> Plan:
    return plan_cluster(cluster(nodes, others), [POLICY], now=NOW, **options)


def at_once(plan: Plan) -> int:
    return sum(move.wave == 0 for move in plan.moves)


def test_the_wave_has_as_many_moves_as_fit() -> None:
    apps = [each for number in range(6) for each in application(f"web-{number}")]
    assert at_once(planned(zones(3), *apps)) == 3
    assert at_once(planned(zones(4, nodes=2), *apps)) == 4


@pytest.mark.parametrize(("pending", "room", "nodes", "moves"), [(260, 320, 80, 1), (300, 400, 4, 1), (300, 300, 4, 0)])
def test_ample_room_is_shown_for_many_pending_pods(pending: int, room: int, nodes: int, moves: int) -> None:
    """With a look at each of many nodes for each pod, the looks would not suffice, and the move would wait."""
    others = [waiting(f"other-{number}") for number in range(pending)]
    assert at_once(planned(zones(room, nodes), *others, *application("web"))) == moves


@pytest.mark.parametrize(
    ("room", "moves", "keys"), [(1, 0, 1), (2, 1, 1), (3, 1, 1), (5, 2, 1), (6, 3, 1), (7, 3, 1), (7, 0, 2)]
)
def test_each_pod_that_is_let_in_opens_other_domains_to_one_more(room: int, moves: int, keys: int) -> None:
    """Many pods wait for a place in zone a, which is full and has the fewest of them."""
    of, labels = spec(*[constraint(key, selector=Map(app="many")) for key in (ZONE, HOSTNAME)[:keys]]), Map(app="many")
    many = [
        pod(f"many-{on}-{number}", on, of, labels=labels, controller=owner("many"))
        for on, count in {"a1": 4, "b1": 5, "c1": 5, "": 50}.items()
        for number in range(count)
    ]
    apps = [each for number in range(3) for each in application(f"web-{number}")]
    nodes = [node("a1", "a", pods=10), node("b1", "b"), node("c1", "c", pods=5 + room)]
    assert at_once(planned(nodes, *many, *apps)) == moves


@pytest.mark.parametrize(("counted", "moves"), [(["p"], 0), (["p", "none"], 0), (["none", "p"], 0), (["none"], 1)])
def test_a_pending_pod_that_one_constraint_of_another_counts_may_close_its_node(counted: list[str], moves: int) -> None:
    """Only a1 accepts them now, and the first one there may close it to the other one. What opens is not counted on."""
    of = spec(*(constraint(selector=Map(app=each)) for each in counted))
    apps = [
        pod(f"p-{number}", on, of, labels=Map(app="p"), controller=owner("p"), creation_timestamp=NOW)
        for number, on in enumerate(("b1", "c1", "", ""))
    ]
    nodes = [node("a1", "a", pods=4), node("b1", "b", pods=2), node("c1", "c", pods=4)]
    assert at_once(planned(nodes, *apps, *application("web"))) == moves


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
@pytest.mark.parametrize(("room", "moves"), [(2, 0), (3, 1)])
def test_a_pod_that_is_let_in_by_one_that_is_let_in_reserves_room(order: str, room: int, moves: int) -> None:
    """The first waits for the room of the move, the second for the first, and the third for the second."""

    def following(app: str, **fields: Any) -> PodSpec:
        return spec(constraint(selector=Map(app=app), node_affinity_policy="Ignore"), **fields)

    elsewhere = {"elsewhere": "yes"}
    waiting = {
        "first": spec(node_selector=Map({ZONE: "a"})),
        "second": following("first", node_selector=Map(elsewhere), tolerations=(Toleration(operator="Exists"),)),
        "third": following("second", node_selector=Map(elsewhere)),
    }
    numbers = {"a1": (4, 6), "b1": (6, 4), "c1": (6, 6)}
    there = [
        pod(f"{app}-{on}-{number}", on, spec(), labels=Map(app=app), controller=owner(app))
        for on, of_each in numbers.items()
        for app, count in zip(("first", "second"), of_each, strict=True)
        for number in range(count)
    ]
    pending = [
        pod(name, "", of, labels=Map(app=app), creation_timestamp=NOW)
        for name, (app, of) in zip(order, waiting.items(), strict=True)
    ]
    nodes = [
        node("a1", "a", pods=12),
        node("b1", "b", taints=(taint(),), labels=elsewhere),
        node("c1", "c", pods=12 + room, labels=elsewhere),
    ]
    assert at_once(planned(nodes, *there, *pending, *application("web"))) == moves


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
    plan = planned(zones(1), *moving[1:], *other, under_way=UnderWay(unreplaced=(moving[0],)))
    assert at_once(plan) == 0
    (move,) = plan.moves
    assert move.waits is not None
    assert "the replacement of pod default/moving-0 has a node" in move.waits.message
    assert at_once(planned(zones(2), *moving[1:], *other, under_way=UnderWay(unreplaced=(moving[0],)))) == 1
    new = msgspec.structs.replace(moving[0], node_name="", phase="Pending", creation_timestamp=NOW)
    assert at_once(planned(zones(2), *moving[1:], new, *other, under_way=UnderWay(replacements=(new,)))) == 1


def test_a_group_is_left_alone_while_a_replacement_of_an_earlier_move_finds_no_node() -> None:
    web = spec(constraint())
    left = [pod(f"web-{at}", "a1", web) for at in range(3)]
    nodes = [node("a1", "a", pods=4), node("b1", "b", pods=0)]
    plan = planned(nodes, *left, under_way=UnderWay(unreplaced=(pod("web-gone", "a1", web),)))
    assert not plan.moves
    assert [each.message for each in plan.blocked] == [
        "the replacement of an earlier move finds no node now: it is left alone until it has one"
    ]


def test_a_replacement_that_its_own_pod_keeps_off_every_node_is_expected_once_that_is_gone() -> None:
    """So the next move of its group is planned."""
    alone = PodAffinityTerm("region", LabelSelector(match_labels=Map(pod="db-0")))
    terms: list[dict[str, Any]] = [{"pod_anti_affinity": (alone,)}, *({},) * 4]
    db = [
        pod(
            f"db-{at}",
            "b1" if at == 4 else "a1",
            spec(constraint(selector=Map(app="db")), **of),
            labels=Map(app="db", pod=f"db-{at}"),
            controller=owner("db", "StatefulSet"),
        )
        for at, of in enumerate(terms)
    ]
    going = msgspec.structs.replace(db[0], deletion_timestamp=NOW)
    nodes = [node(f"{zone}1", zone, labels={"region": "r"}) for zone in "abc"]
    plan = planned(nodes, going, *db[1:], under_way=UnderWay(in_flight=(going,), unreplaced=(going,)))
    assert [each.pod.name for each in plan.moves] == ["db-1"]


def test_replacements_that_are_alike_are_named_once() -> None:
    moving = application("moving", **IN_C)
    plan = planned(zones(2), moving[2], *application("other"), under_way=UnderWay(unreplaced=tuple(moving[:2])))
    (move,) = plan.moves
    assert move.waits is not None
    assert "until the replacement of pod default/moving-0 and 1 more like it has a node" in move.waits.message


def test_a_group_with_moves_in_flight_gets_those_that_are_still_to_be_made_and_no_more() -> None:
    """Of [4, 1, 0] two pods have to go. One is on its way."""
    web = application("web")
    web += [pod(f"web-{at}", "a1", web[0].spec, labels=Map(app="web"), controller=owner("web")) for at in range(3, 5)]
    assert at_once(planned(zones(9), *web)) == 2
    (move,) = planned(zones(9), *web[1:], under_way=UnderWay(unreplaced=(web[0],))).moves
    assert move.wave == 0
    new = pod("web-new", "", web[0].spec, labels=Map(app="web"), controller=owner("web"), phase="Pending")
    assert at_once(planned(zones(9), *web[1:], new, under_way=UnderWay(replacements=(new,)))) == 1
    ordered = [msgspec.structs.replace(each, controller=owner("web", "StatefulSet")) for each in web]
    going = msgspec.structs.replace(ordered[0], deletion_timestamp=NOW)
    under_way = UnderWay(in_flight=(going,), unreplaced=(going,))
    assert [at_once(planned(zones(room), going, *ordered[1:], under_way=under_way)) for room in (1, 2)] == [0, 1]
    for labels in (web[0].labels, Map(app="web", revision="gone")):  # which no pod has any more
        both = tuple(msgspec.structs.replace(each, labels=labels) for each in web[:2])
        assert planned(zones(9), *web[2:], under_way=UnderWay(unreplaced=both)).moves == ()
    of_two, in_b = [node("a1", "a"), node("b1", "b", pods=2), *zones(1)[2:]], waiting(node_selector=Map({ZONE: "b"}))
    (move,) = planned(of_two, *web[1:], in_b, under_way=UnderWay(unreplaced=(web[0],))).moves
    assert move.waits is not None, "the Pending pod takes the place that is left in zone b"


def test_a_deleted_pod_of_a_stateful_set_reserves_room_for_its_replacement() -> None:
    deleted = pod(
        "db-0", "b1", spec(**IN_C), labels=Map(app="db"), controller=owner("db", "StatefulSet"), deletion_timestamp=NOW
    )
    assert at_once(planned(zones(1), deleted, *application("web"))) == 0
    assert at_once(planned(zones(2), deleted, *application("web"))) == 1


LONG_AGO = NOW - timedelta(minutes=11)
ON_C0 = matching("metadata.name", "c0", is_field=True)


@pytest.mark.parametrize(
    ("other", "room_needed"),
    [
        pytest.param(waiting(), 2, id="any"),
        pytest.param(waiting(priority=-10), 2, id="of lower priority"),
        pytest.param(waiting(scheduler_name="another"), 2, id="of another scheduler"),
        pytest.param(waiting(scheduler_name="another", creation_timestamp=LONG_AGO), 1, id="of one that does nothing"),
        pytest.param(waiting(creation_timestamp=LONG_AGO), 2, id="old"),
        pytest.param(waiting(has_scheduling_gates=True), 1, id="gated"),
        pytest.param(waiting(node_selector=Map(), node_affinity=ON_C0), 2, id="of a DaemonSet"),
        pytest.param(waiting(node_selector=Map({ZONE: "b"})), 1, id="elsewhere"),
        pytest.param(waiting(node_selector=Map({ZONE: "x"})), 1, id="selecting no node"),
        pytest.param(waiting(requests=Map(cpu=1 << 40)), 1, id="too large for any node"),
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


@pytest.mark.parametrize(("cpu", "moves"), [(299, 0), (300, 1)])
def test_pending_pods_reserve_cpu_too(cpu: int, moves: int) -> None:
    small = Node(name="c1", labels=Map({ZONE: "c"}), allocatable=Map(pods=110, cpu=cpu))
    assert at_once(planned([*zones(0)[:2], small], waiting(requests=Map(cpu=200)), *application("web"))) == moves


def test_a_pending_pod_reserves_room_where_its_volume_is() -> None:
    claim = PersistentVolumeClaim(
        namespace="default", name="data", uid="uid-data", volume_name="disk", bind_completed=True, phase="Bound"
    )
    disk = PersistentVolume(
        name="disk", phase="Bound", claim=ClaimReference("default", "data"), node_affinity=matching(ZONE, "c")
    )
    other = waiting(node_selector=Map(), shared_claims=("data",))
    for room in (1, 2):
        snapshot = cluster(
            zones(room), [other, *application("web")], persistentvolumeclaims=[claim], persistentvolumes=[disk]
        )
        assert at_once(plan_cluster(snapshot, [POLICY], now=NOW)) == room - 1


@pytest.mark.parametrize(
    ("web", "other", "nodes", "moves"),
    [
        (PORT, PORT, 1, 0),
        (PORT, PORT, 2, 1),
        (PORT, {}, 1, 1),
        (DISK, DISK, 2, 0),
        (DISK, PORT, 1, 1),
        (PORT, DISK, 1, 1),
        ({}, DISK, 1, 1),
    ],
)
def test_pending_pods_reserve_host_ports_and_disks_too(
    web: dict[str, Any], other: dict[str, Any], nodes: int, moves: int
) -> None:
    assert at_once(planned(zones(8, nodes), waiting(**other), *application("web", **web))) == moves


def test_pending_pods_reserve_host_ports_only_where_they_may_go() -> None:
    for_web, for_others = {"for": "web"}, {"other": "yes"}
    nodes = [
        *(node(f"{zone}1", zone, labels=for_web) for zone in "ab"),
        node("c0", "c", labels=for_web),
        node("c1", "c", labels=for_web | for_others),
        *(node(f"c{at}", "c", labels=for_others) for at in (2, 3)),
    ]
    elsewhere = [waiting(f"other-{at}", **PORT, node_selector=Map(for_others)) for at in range(2)]
    assert at_once(planned(nodes, *elsewhere, *application("web", **PORT, node_selector=Map(for_web)))) == 1


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
    on_a2: dict[str, Any] = {"node_selector": Map({HOSTNAME: "a2"})}
    nodes.append(node("a2", "a", pods=2))
    there = [
        pod("low-there", "a2", spec(priority=-1, **on_a2), labels=Map(app="low")),
        pod("equal-there", "a2", spec(priority=9, **IN_C), labels=Map(app="equal")),
    ]
    both = waiting(
        "both",
        node_selector=Map(),
        node_affinity=NodeSelector(tuple(matching(HOSTNAME, name).node_selector_terms[0] for name in ("a2", "c0"))),
        priority=9,
    )
    assert at_once(planned([*nodes[-1:], *nodes[:-1]], held, *there, both, *application("web"))) == 0
    for name in ("before", "next"):  # the other one is named important
        elsewhere = waiting(name, priority=9, **on_a2)
        assert at_once(planned(nodes, *there, elsewhere, *application("web"))) == 1
        assert at_once(planned(nodes, held, *there, elsewhere, important(), *application("web"))) == 0
    there[0] = pod("low-there", "a2", spec(priority=-1, **IN_C), labels=Map(app="low"))
    assert at_once(planned(nodes, *there, elsewhere, *application("web"))) == 0, "it may be preempted, and go to c"


def test_a_nominated_pod_reserves_its_node_even_against_a_higher_priority() -> None:
    preempted = pod("low", "c0", spec(priority=-1, **IN_C), labels=Map(app="low"), deletion_timestamp=NOW)
    nominated = waiting(nominated_node_name="c0")
    web = application("web", priority=5)
    assert at_once(planned(zones(2), preempted, nominated, *web)) == 0
    assert at_once(planned(zones(3), preempted, nominated, *web)) == 1
    on_x1 = waiting(nominated_node_name="x1", node_selector=Map({HOSTNAME: "x1"}), priority=9)
    preempted = msgspec.structs.replace(preempted, node_name="x1")
    assert at_once(planned([*zones(1), node("x1", pods=1)], preempted, on_x1, *web)) == 1, "it preempts no more"


def near(app: str, topology_key: str = ZONE) -> dict[str, Any]:
    """Return fields of a spec with affinity to an application's pods."""
    return {"pod_affinity": (PodAffinityTerm(topology_key, label_selector=LabelSelector(match_labels=Map(app=app))),)}


def far_from(app: str, topology_key: str = ZONE) -> dict[str, Any]:
    return {"pod_anti_affinity": near(app, topology_key)["pod_affinity"]}


@pytest.mark.parametrize("constraints", [(), (constraint(selector=Map(app="crowd"), node_affinity_policy="Ignore"),)])
@pytest.mark.parametrize(("room", "moved"), [(2, 1), (3, 2)])
def test_a_move_whose_replacement_lets_a_pending_pod_in_reserves_its_room_too(
    room: int, moved: int, constraints: tuple[TopologySpreadConstraint, ...]
) -> None:
    """The pod waits for a pod of web in zone c. Once one is there, it may take the room of the other replacement."""
    of = {**near("web"), "topology_spread_constraints": constraints}  # Others may leave the zone, too.
    follower = waiting("follower", creation_timestamp=NOW - timedelta(hours=1), **of)
    crowd = [pod(f"crowd-{at}", "c9", spec(), labels=Map(app="crowd")) for at in range(2)]
    in_cluster = [*zones(room), node("c9", "c", unschedulable=True)]
    plan = planned(in_cluster, follower, *crowd, *application("web"), *application("api"))
    assert (len(plan.moves), at_once(plan)) == (2, moved)
    assert at_once(planned(zones(2), follower, *application("api"), *application("shop"))) == 2


@pytest.mark.parametrize("whose", ["its own", "the move's"])
@pytest.mark.parametrize(("room", "rack_of_a1", "moved"), [(1, "r0", 1), (2, "r0", 2), (2, "r1", 1)])
def test_a_move_whose_pod_repels_a_pending_pod_reserves_its_room_too(
    whose: str, room: int, rack_of_a1: str, moved: int
) -> None:
    """Once web-b1 has left the rack, the pod may take the room on b2 that the replacement of the other move needs.

    If a1 is in the same rack, it keeps the replacement of web-b1 off it too.
    """
    rack = "example.com/rack"
    nodes = [
        node("a1", "a", labels={rack: rack_of_a1}),
        node("b1", "b", labels={rack: "r1"}, unschedulable=True),
        node("b2", "b", labels={rack: "r1"}, pods=room),
        node("b3", "b", labels={rack: "r2"}, pods=1),
    ]
    on_b2 = {"node_selector": Map({HOSTNAME: "b2"})}
    repelled = waiting("other", **on_b2, **(far_from("web", rack) if whose == "its own" else {}))
    web = spec(constraint(selector=Map(app="web")), **(far_from("other", rack) if whose == "the move's" else {}))
    api = spec(constraint(selector=Map(app="api")))
    pods = [
        pod("web-b1", "b1", web, labels=Map(app="web"), controller=owner("web")),
        pod("web-b3", "b3", web, labels=Map(app="web"), controller=None),
        *(pod(f"api-{at}", "a1", api, labels=Map(app="api"), controller=owner("api")) for at in range(2)),
    ]
    plan = planned(nodes, repelled, *pods)
    assert (len(plan.moves), at_once(plan)) == (2, moved)


@pytest.mark.parametrize(("room", "moved"), [(1, 0), (2, 1)])
def test_pending_pods_that_keep_off_each_others_nodes_reserve_a_node_each(room: int, moved: int) -> None:
    crowd = [waiting(f"crowd-{at}", **far_from("crowd", HOSTNAME)) for at in range(2)]
    crowd = [msgspec.structs.replace(each, labels=Map(app="crowd")) for each in crowd]
    nodes = [*zones(9), node("c1", "c", pods=room)]
    assert at_once(planned(nodes, *crowd, *application("web"))) == moved


@pytest.mark.parametrize("whose", ["its own", "the terminating pod's"])
@pytest.mark.parametrize(("room", "taints", "moved"), [(1, (), 1), (2, (), 2), (1, (taint(),), 2)])
def test_a_replacement_that_a_terminating_pod_repels_may_land_there_once_that_is_gone(
    whose: str, room: int, taints: tuple[Taint, ...], moved: int
) -> None:
    """Once the pod has left the rack, the replacement of web may take the room on c1 that the other one needs."""
    rack, api = "example.com/rack", {"api": "yes"}
    nodes = [
        node("a1", "a", labels=api),
        node("b1", "b", labels=api),
        node("c0", "c"),
        node("c1", "c", labels={rack: "r1", **api}, pods=room, taints=taints),
        node("c2", "c", labels={rack: "r1"}, unschedulable=True),
    ]
    web = spec(constraint(selector=Map(app="web")), **(far_from("other", rack) if whose == "its own" else {}))
    other = spec(**({} if whose == "its own" else far_from("web", rack)))
    pods = [
        *(msgspec.structs.replace(each, spec=web) for each in application("web")),
        *application("api", node_selector=Map(api), tolerations=(Toleration(operator="Exists"),)),
        pod("other", "c2", other, labels=Map(app="other"), controller=owner("other"), deletion_timestamp=NOW),
    ]
    plan = planned(nodes, *pods)
    assert (len(plan.moves), at_once(plan)) == (2, moved)


@pytest.mark.parametrize(("room", "moved"), [(2, 0), (3, 1)])
def test_a_pending_pod_that_follows_another_pending_pod_reserves_room(room: int, moved: int) -> None:
    """The follower has a node only once the other one has landed."""
    plan = planned(zones(room), waiting("leader"), waiting("follower", **near("leader")), *application("web"))
    assert at_once(plan) == moved


@pytest.mark.parametrize("track", ["stable", "canary"])
@pytest.mark.parametrize(("room", "moved"), [(2, 0), (3, 1)])
def test_pending_pods_with_affinity_to_one_another_reserve_room_in_each_zone(room: int, moved: int, track: str) -> None:
    """They may begin in any zone, and the second can only follow the first. The replacement may use zone c or d."""
    of, labels = spec(**near("crowd")), [Map(app="crowd", track=each) for each in ("stable", track)]
    crowd = [pod(f"crowd-{at}", "", of, labels=each, creation_timestamp=NOW) for at, each in enumerate(labels)]
    assert at_once(planned([*zones(room), node("d1", "d")], *crowd, *application("web"))) == moved
    assert at_once(planned([*zones(1), node("d1", "d")], crowd[0], *application("web"))) == 1, "it follows none"
    there = pod("crowd-there", "d1", of, labels=Map(app="crowd"))
    assert at_once(planned([*zones(room), node("d1", "d")], there, *crowd, *application("web"))) == 1


def test_a_replacement_with_scheduling_gates_reserves_room_until_it_has_a_node() -> None:
    """Such as those that a webhook adds to each new pod; other gated pods may stay so for days."""
    moving, other = application("moving"), application("other")
    before = cluster(zones(1), [*moving, *other])
    gated = pod("moving-new", "", spec(has_scheduling_gates=True), labels=Map(app="moving"), controller=owner("moving"))
    after = cluster(zones(1), [*moving[1:], *other, gated])
    in_flight = Ledger().sent(move(moving[0]), before, 0.0).answered(move(moving[0]), EVICTED.made, 0.0)
    in_flight, _ = in_flight.updated(after, 1.0, lambda *_: Outcome.IMPROVED)
    (flight,) = in_flight.in_flight
    assert flight.replacement is not None
    under_way = in_flight.for_planning(after)._replace(replacements=())
    plan = plan_cluster(in_flight.overlay(after), [POLICY], now=NOW, under_way=under_way)
    assert at_once(plan) == 0
    assert at_once(plan_cluster(after, [POLICY], now=NOW)) == 1


@pytest.mark.parametrize(
    ("fields", "moved"),
    [
        pytest.param({}, 0, id="preempting"),
        pytest.param({"preempts": False}, 1, id="never preempting"),
        pytest.param({"priority": 0}, 1, id="lowest priority"),
        pytest.param({"requests": Map(cpu=100)}, 1, id="needs web's room alone"),
        pytest.param({"priority": 9}, 0, id="web's priority"),
        pytest.param({"low": 200}, 1, id="could before"),
    ],
)
def test_no_move_lets_a_pending_pod_preempt_another(fields: dict[str, Any], moved: int) -> None:
    """On a1, the Pending pod needs the room of a pod of web besides that of `low`, and can't preempt web."""
    low = fields.pop("low", 100)
    small = Node(name="a1", labels=Map({ZONE: "a", HOSTNAME: "a1"}), allocatable=Map(pods=110, cpu=200 + low))
    web = spec(constraint(selector=Map(app="web")), priority=9)
    pods = [
        *(pod(f"web-{at}", "a1", web, labels=Map(app="web"), controller=owner("web")) for at in range(2)),
        pod("low", "a1", spec(priority=1, requests=Map(cpu=low)), labels=Map(app="low"), controller=owner("low")),
    ]
    on_a1: dict[str, Any] = {"node_selector": Map({HOSTNAME: "a1"}), "creation_timestamp": NOW - timedelta(hours=1)}
    pending = waiting("middle", **{"requests": Map(cpu=200), "priority": 5, **on_a1, **fields})
    plan = planned([small, node("b1", "b")], pending, *pods)
    assert (len(plan.moves), at_once(plan)) == (1, moved)


def test_a_large_pod_that_can_only_go_elsewhere_takes_no_room() -> None:
    nodes = [
        node("a1", "a"),
        node("b1", "b"),
        node("large", "a", labels={"large": "yes"}),
        msgspec.structs.replace(node("c1", "c"), allocatable=Map(pods=110, cpu=1000, memory=1 << 38)),
    ]
    large = spec(requests=Map(cpu=900), node_selector=Map(large="yes"))
    others = [
        pod("large", "", large, labels=Map(app="large"), controller=owner("large")),
        *(pod(f"small-{at}", "", spec(), labels=Map(app="small"), controller=owner("small")) for at in range(2)),
    ]
    plan = plan_cluster(cluster(nodes, [*application("web"), *others]), [POLICY], now=NOW)
    assert [each.wave for each in plan.moves] == [0]


@pytest.mark.parametrize(("room", "moves"), [(1, 0), (2, 1)])
def test_room_is_kept_in_each_zone_that_may_be_the_only_one_which_anti_affinity_leaves(room: int, moves: int) -> None:
    """Zone a has room for each of the pods that wait, but not for both."""
    apart = waiting("apart", node_selector=Map(pool="both"), **far_from("other"))
    other = waiting("other", node_selector=Map({ZONE: "a"}))
    in_both = {"pool": "both"}
    in_a = [node(f"a{at}", "a", labels=in_both) for at in (1, 2, 3)]
    in_c = [node("c1", "c", pods=room, labels=in_both), node("c2", "c")]
    nodes = [*in_a, node("b1", "b"), *in_c]
    assert at_once(planned(nodes, other, apart, *application("web"))) == moves
    assert at_once(planned(nodes, other, *application("web"))) == 1, "the other one takes no room there"


def test_a_pod_that_is_replaced_when_it_is_gone_may_count_on_its_own_place_beside_others() -> None:
    """It keeps one of c1, where it is, and c2. The replacement of web may take c2, or c3."""
    pool = {"pool": "db"}
    nodes = [*zones(0), *(node(f"c{at}", "c", pods=1, labels=pool if at < 3 else {}) for at in (1, 2, 3))]
    db = pod("db-0", "c1", spec(node_selector=Map(pool)), labels=Map(app="db"), controller=owner("db", "StatefulSet"))
    gone = msgspec.structs.replace(db, deletion_timestamp=NOW)
    assert at_once(planned(nodes, gone, *application("web"))) == 1


def test_groups_that_can_only_come_nearer_share_the_room_that_there_is() -> None:
    """Of four pods in zone a, none can go to zone b but one, so no group is within maxSkew then."""
    apps = [
        pod(f"{app}-{at}", "a1", spec(constraint(selector=Map(app=app))), labels=Map(app=app), controller=owner(app))
        for app in ("web", "api")
        for at in range(6)
    ]
    plan = planned([node("a1", "a"), node("b1", "b", pods=1)], *apps)
    assert len(plan.moves) == 1
