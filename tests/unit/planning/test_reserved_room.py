"""Room is reserved for the later moves of groups that are begun, and pods with few feasible nodes move first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.objects import Node
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec
from respread.moves.ledger import Ledger
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.spread.group import GroupKey
from tests.eviction_moves import move
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec

POLICY = default_policy(victims=VictimRules(min_replicas=1))


def of_app(app: str, *pools: str) -> PodSpec:
    """Return the spec of an application's pods, which may use only nodes of zone a and of some pools."""
    wanted = NodeSelectorRequirement(key="pool", operator="In", values=("a", *pools))
    affinity = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    return spec(constraint(selector=Map(app=app), node_affinity_policy="Ignore"), node_affinity=affinity)


def on(app: str, by_node: dict[str, int], *pools: str, **fields: Any) -> list[Pod]:
    return pods(by_node, of_app(app, *pools), prefix=app, labels=Map(app=app), **fields)


def nodes(**room: int) -> list[Node]:
    """Return a node of zone a and nodes of zone b, each in its own pool, with room for these numbers of pods."""
    return [node("a1", "a", labels=Map(pool="a"))] + [
        node(name, "b", labels=Map(pool=name), pods=number) for name, number in room.items()
    ]


def planned(in_cluster: list[Node], *apps: list[Pod]) -> Plan:
    return plan_cluster(cluster(in_cluster, [each for app in apps for each in app]), [POLICY], now=NOW)


def unplaced(app: str, *pools: str) -> Pod:
    """Return a new pod of an application that somebody else has created."""
    of = spec(
        constraint(selector=Map(app=app), node_affinity_policy="Ignore"),
        node_selector=Map({"pool": pools[0]}) if pools else Map(),
    )
    return pod(f"{app}-new", "", of, labels=Map(app=app), phase="Pending", creation_timestamp=NOW)


def first_moves(plan: Plan) -> list[str]:
    return [move.pod.labels["app"] for move in plan.moves if move.wave == 0]


@pytest.mark.parametrize(("few", "many"), [("api", "web"), ("web", "api")])
def test_the_pod_with_fewer_feasible_nodes_is_moved_first(few: str, many: str) -> None:
    plan = planned(nodes(b1=1, b2=1), on(few, {"a1": 2}, "b2"), on(many, {"a1": 2}, "b1", "b2"))
    assert first_moves(plan) == [few]
    assert [move.pod.labels["app"] for move in plan.moves] == [few, many]


@pytest.mark.parametrize("room", [1, 2])
def test_a_move_waits_if_it_may_take_the_room_for_the_rest_of_a_group_in_motion(room: int) -> None:
    web = [*on("web", {"a1": 4, "b3": 1}, "b2"), unplaced("web", "nowhere")]
    plan = planned(nodes(b1=1, b2=room, b3=1), web, on("api", {"a1": 2}, "b1", "b2"))
    (move,) = plan.moves
    assert move.pod.labels["app"] == "api"
    assert move.wave == (1 if room == 1 else 0)
    if room == 1:
        assert move.waits is not None
        assert "b2" in move.waits.message


@pytest.mark.parametrize(
    ("room", "pending", "waves"),
    [(2, 2, [1, 2]), (3, 1, [0]), (3, 2, []), (3, 3, [1, 2]), (4, 1, [0, 0]), (4, 2, [0]), (4, 3, [])],
)
def test_moves_are_planned_to_wait_for_pending_pods_if_these_alone_leave_the_first_no_room(
    room: int, pending: int, waves: list[int]
) -> None:
    """Two moves of api need the room of b1, one of a group in motion, and pods that may need it only for a time."""
    new = [pod(f"new-{at}", "", spec(node_selector=Map(pool="b1")), creation_timestamp=NOW) for at in range(pending)]
    new = [msgspec.structs.replace(each, labels=Map(app="new")) for each in new]
    web = [*on("web", {"a1": 2}, "b1"), unplaced("web", "nowhere")]
    plan = planned(nodes(b1=room), web, on("api", {"a1": 4}, "b1"), new)
    assert [(move.pod.labels["app"], move.wave) for move in plan.moves] == [("api", wave) for wave in waves]


@pytest.mark.parametrize("room", [2, 3])
def test_a_move_waits_if_it_may_take_the_room_for_the_rest_of_a_group_that_is_begun(room: int) -> None:
    plan = planned(nodes(b1=1, b2=room), on("web", {"a1": 4}, "b2"), on("api", {"a1": 2}, "b1", "b2"))
    assert sorted(first_moves(plan)) == (["web", "web"] if room == 2 else ["api", "web", "web"])
    (move,) = (move for move in plan.moves if move.pod.labels["app"] == "api")
    if room == 2:
        assert move.waits is not None
        assert "b2" in move.waits.message


@pytest.mark.parametrize("min_domains", [1, 3])
def test_room_is_kept_for_a_group_in_motion_that_lacks_domains(min_domains: int) -> None:
    """With minDomains 3 in two zones, no zone may have more than one pod."""
    of = spec(constraint(selector=Map(app="web"), min_domains=min_domains, node_affinity_policy="Ignore"))
    nowhere = msgspec.structs.replace(of, node_selector=Map(pool="nowhere"))
    waiting = pod("web-new", "", nowhere, labels=Map(app="web"), phase="Pending", creation_timestamp=NOW)
    web = [*pods({"a1": 2, "b2": 1}, of, labels=Map(app="web")), waiting]
    plan = planned(nodes(b1=1, b2=1), web, on("api", {"a1": 2}, "b1"))
    assert first_moves(plan) == ["api"] * (min_domains == 1)


def test_a_replacement_takes_room_from_the_moment_that_an_eviction_is_sent() -> None:
    """The watch does not show the deletion yet. Node b1 has room for it, and for one more."""
    evicted, *others = on("web", {"a1": 5, "b2": 1}, "b1", "b2")
    shown = cluster(nodes(b1=2, b2=1), [evicted, *others, *on("api", {"a1": 2}, "b1")])
    moves = Ledger().sent(move(evicted), shown, 0.0, NOW.timestamp())
    snapshot = moves.overlay(shown)
    plan = Planner().plan(
        snapshot, spread_of(snapshot), PolicySetting((POLICY,)), now=NOW, under_way=moves.for_planning(shown)
    )
    assert first_moves(plan) == ["web"]


@pytest.mark.parametrize("reason", [Reason.QUIET_PERIOD, Reason.BACKING_OFF])
@pytest.mark.parametrize("group", ["in motion", "begun", "neither"])
def test_room_is_kept_for_a_group_in_motion_or_begun_during_its_quiet_period(group: str, reason: Reason) -> None:
    """The quiet period restarts when another client changes a pod of the group. A group in back-off gets no room.

    Of a begun one, the evicted pod is deleted, and its replacement is Ready.
    """
    web, api = on("web", {"a1": 4, "b2": 1}, "b1"), on("api", {"a1": 2}, "b1")
    snapshot = cluster(nodes(b1=1, b2=1), [*web, *api, *[unplaced("web", "nowhere")] * (group == "in motion")])
    begun = {key for key in spread_of(snapshot).groups if group == "begun" and "web" in str(key)}

    def on_hold(key: GroupKey, _policy: str) -> Held | None:
        return Held(reason, "not now") if "web" in str(key) else None

    plan = plan_cluster(snapshot, [POLICY], now=NOW, on_hold=on_hold, begun=begun)
    assert first_moves(plan) == ["api"] * (group == "neither" or reason is Reason.BACKING_OFF)


@pytest.mark.parametrize("minutes", [1, 10, 11])
def test_no_room_is_reserved_for_a_group_that_stays_in_motion(minutes: int) -> None:
    unschedulable = of_app("web", "nowhere")
    since = NOW - timedelta(minutes=minutes)
    pending = pod("web-pending", "", unschedulable, labels=Map(app="web"), phase="Pending", creation_timestamp=since)
    plan = planned(nodes(b1=1), [*on("web", {"a1": 3}, "b1"), pending], on("api", {"a1": 2}, "b1"))
    assert first_moves(plan) == ["api"] * (minutes >= 10)
    reasons = {each.reason for each in plan.blocked}
    assert (Reason.WAITING_FOR_ROOM in reasons) == (minutes < 10)


@pytest.mark.parametrize("in_motion", [True, False])
def test_a_group_that_cannot_be_restored_waits_for_groups_in_motion_that_may_need_its_room(in_motion: bool) -> None:
    """Zone c never has room, so group api stays violated. Group web needs the room in zone a that a pod of api uses."""
    of = {app: spec(constraint(selector=Map(app=app))) for app in ("api", "web")}
    in_cluster = [node("a1", "a", pods=2), node("b1", "b"), node("c1", "c", pods=0), node("d1", "d", pods=2)]
    api = pods({"a1": 2, "b1": 2}, of["api"], prefix="api", labels=Map(app="api"))
    web = [*pods({"b1": 2, "d1": 1}, of["web"], labels=Map(app="web")), *[unplaced("web", "nowhere")] * in_motion]
    plan = planned(in_cluster, api, web)
    assert first_moves(plan) == ["api"] * (not in_motion)
    if in_motion:
        (planned_move,) = plan.moves
        assert planned_move.waits is not None
        assert planned_move.waits.message.startswith("it can't be restored now")
        assert first_moves(planned(in_cluster, api[:2], web)) == ["api"], "it is restored"
        staying = [msgspec.structs.replace(each, spec=of_app("api")) for each in api]
        assert not planned(in_cluster, staying, web).awaits_nodes, "it has no move that waits"
    else:
        assert [(move.pod.labels["app"], move.pod.node_name) for move in plan.moves] == [("api", "a1"), ("web", "b1")]
