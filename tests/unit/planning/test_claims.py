"""Which room is kept while nothing can be planned for those it is for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.cluster.objects import Node
from respread.cluster.pod import Pod
from respread.planning.claims import Claims, Kept
from respread.planning.placement import Placement
from respread.planning.room.demand import Leaving, demands_in
from respread.planning.tasks import Task
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, NOW, cluster, constraint, node, pod, pods, spec

PLAIN = spec()
SPREAD = spec(constraint())


class World:
    """A cluster, of whose groups something is in motion."""

    def __init__(self, nodes: Sequence[Node], there: Sequence[Pod] = (), waiting: Sequence[Pod] = ()) -> None:
        self.snapshot = cluster(nodes, [*there, *waiting])
        self.placement = Placement(Predictor(ClusterView(self.snapshot)))
        self.claims = Claims()
        self.waiting = waiting
        groups = {key: group for key, group in spread_of(self.snapshot).groups.items() if key.namespace == "default"}
        ours = tuple(each for each in (*there, *waiting) if each.spec.topology_spread_constraints)
        self.task = Task(
            groups=tuple(groups.values()),
            cure=dict.fromkeys(groups, "default"),
            pods=ours,
            victims=tuple(each for each in ours if each.node_name and not each.terminating),
            protected=(),
            labels=frozenset(),
            waiting=(),
            returning=(),
            changes_at=None,
        )

    def kept(self, now: datetime = NOW) -> Kept:
        """Return the room that is kept."""
        placement = self.placement
        leaving = Leaving(placement, self.snapshot.leaving_pods.values())
        demands = demands_in(placement, self.waiting, (), leaving, now)
        return self.claims.of(placement, demands, [self.task] if self.task.groups else [], now)

    def taken(self, now: datetime = NOW) -> list[list[str]]:
        """Return the nodes of each claim: first those of pods that wait, then those for moves."""
        names = self.placement.table.names
        return [[names[each.slot] for each in claim.taken] for claim in self.kept(now).claims]


def new(number: int = 0, of: Any = PLAIN, **fields: Any) -> Pod:
    return pod(f"new-{number}", "", of, creation_timestamp=NOW, **fields)


@pytest.mark.parametrize(
    ("rooms", "number", "taken"),
    [
        ((5, 2), 3, ["n0", "n0", "n0"]),
        ((2, 5), 4, ["n1", "n1", "n1", "n0"]),
        ((1, 1), 2, ["n0", "n1"]),
        ((0, 0), 1, []),
        ((20, 0), 20, ["n0"] * 16),
        ((*[1] * 9, 2, *[1] * 55), 1, ["n0"]),  # n9 is the last of 65 nodes by name
    ],
)
def test_pods_that_wait_keep_the_nodes_with_most_room(rooms: Sequence[int], number: int, taken: list[str]) -> None:
    nodes = [node(f"n{at}", "a", pods=room) for at, room in enumerate(rooms)]
    world = World(nodes, waiting=[new(each) for each in range(number)])
    assert world.taken() == ([taken] if taken else [])
    assert world.taken() == ([taken] if taken else []), "the cluster is left as it was"
    assert list(map(id, world.kept().claims)) == list(map(id, world.kept().claims)), "what has not changed is the same"


def test_the_room_is_that_of_the_scarcest_resource() -> None:
    small = node("n0", "a", pods=50)
    small = msgspec.structs.replace(small, allocatable=Map(pods=50, cpu=300))
    assert World([small, node("n1", "a", pods=4)], waiting=[new()]).taken() == [["n1"]]
    assert World([small, node("n1", "a", pods=2)], waiting=[new()]).taken() == [["n0"]]


def test_pods_for_which_only_leaving_pods_make_room_keep_their_nodes() -> None:
    full = [node("n0", "a", pods=1), node("n1", "a", pods=1)]
    there = [pod("stays", "n0", PLAIN), pod("goes", "n1", PLAIN, deletion_timestamp=NOW)]
    assert World(full, there, [new()]).taken() == [["n1"]]
    assert World(full, [pod("stays", "n0", PLAIN), pod("stays-too", "n1", PLAIN)], [new()]).taken() == []


@pytest.mark.parametrize(
    ("counts", "options", "taken"),
    [
        ((5, 1), {}, ["b1", "b1"]),
        ((5, 1), {"max_skew": 2}, ["b1"]),
        ((209, 0), {}, ["b1"] * 100),  # of the 104 that it needs
        ((3, 1), {"max_skew": 2}, []),
        ((2, 1), {}, []),
        ((4, 0, 3), {}, ["b1", "b1"]),
        ((4, 1, 1), {}, ["b1", "c1"]),
        ((2, 1), {"min_domains": 2}, []),
        ((1, 1), {"min_domains": 3}, []),
        ((2, 0), {"min_domains": 3}, ["b1"]),
        ((2, 1), {"min_domains": 3}, ["b1", "a1", "b1"]),  # no pod but these three moves
    ],
)
def test_room_is_kept_for_the_moves_that_a_group_still_needs(
    counts: Sequence[int], options: dict[str, Any], taken: list[str]
) -> None:
    names = dict(zip(("a1", "b1", "c1"), counts, strict=False))
    world = World([node(name, name[0]) for name in names], pods(names, spec(constraint(**options))))
    assert world.taken() == ([taken] if taken else [])
    coming = world.kept().coming
    assert len(coming) == len(taken)
    assert all(each.is_replacement for each in coming)
    assert world.kept().missed == 0


def test_only_pods_that_a_group_counts_are_moved_for_it() -> None:
    others = [pod("another", "a1", SPREAD, labels=Map(app="another")), pod("without-zone", "x1", SPREAD)]
    world = World([node("a1", "a"), node("b1", "b"), node("x1")], [*others, *pods({"a1": 5, "b1": 1}, SPREAD)])
    (claim,) = world.kept().claims
    assert {each.pod.node_name for each in claim.taken} == {"a1"}
    assert {each.pod.labels["app"] for each in claim.taken} == {"web"}
    assert len({each.pod.name for each in claim.taken}) == len(claim.taken) == 2
    assert not claim.is_waiting


@pytest.mark.parametrize(("on_b", "taken"), [(2, []), (3, [["c1"]])])
def test_a_pod_is_moved_only_out_of_a_domain_that_is_too_full(on_b: int, taken: list[list[str]]) -> None:
    world = World([node("a1", "a"), node("b1", "b"), node("c1", "c")], pods({"a1": 4, "b1": on_b, "c1": 1}, SPREAD))
    victims = tuple(each for each in world.task.victims if each.node_name == "b1")
    world.task = msgspec.structs.replace(world.task, victims=victims)
    assert world.taken() == taken


def test_no_room_is_kept_for_groups_that_no_policy_restores() -> None:
    of = spec(constraint(), constraint(HOSTNAME))
    world = World([node("a1", "a"), node("a2", "a"), node("b1", "b")], pods({"a1": 3, "b1": 2}, of))
    assert world.taken() == [["a2"]]
    cure = {key: policy for key, policy in world.task.cure.items() if key.topology_key != HOSTNAME}
    world.task = msgspec.structs.replace(world.task, cure=cure)
    assert world.taken() == []


@pytest.mark.parametrize(("per_node", "taken"), [(9, ["b2"]), (3, ["b2"]), (1, ["b2", "b1"])])
def test_room_for_two_groups_is_kept_where_both_have_fewest_pods(per_node: int, taken: list[str]) -> None:
    of = spec(constraint(), constraint(HOSTNAME, per_node))
    world = World([node("a1", "a"), node("b1", "b"), node("b2", "b")], pods({"a1": 4, "b1": 1}, of))
    assert world.taken() == [taken]
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b", pods=200), node("b2", "b")]
    assert World(nodes, pods({"a1": 3, "a2": 3, "b1": 1}, of)).taken()[0][0] == ("b2" if per_node == 1 else "b1")


def test_room_is_kept_for_the_worse_of_two_groups_though_no_pod_may_be_moved_for_the_other() -> None:
    of = spec(constraint(), constraint(HOSTNAME))
    world = World([node("a1", "a"), node("a2", "a"), node("b1", "b")], pods({"a1": 3, "a2": 1}, of))
    world.task = msgspec.structs.replace(world.task, victims=world.task.victims[3:])
    assert world.taken() == [["b1"]]


def test_a_pod_that_waits_counts_where_it_lands() -> None:
    nodes, there = [node("a1", "a"), node("b1", "b")], pods({"a1": 3, "b1": 1}, SPREAD)
    assert World(nodes, there).taken() == [["b1"]]
    assert World(nodes, there, [new(of=SPREAD)]).taken() == [["b1"]], "it is enough"
    for other in (new(of=SPREAD, namespace="elsewhere"), new(of=PLAIN, labels=Map(app="another"))):
        assert World(nodes, there, [other]).taken() == [["b1"], ["b1"]]


def test_without_room_the_nodes_that_lack_it_are_named() -> None:
    world = World([node("a1", "a"), node("b1", "b", pods=1)], pods({"a1": 4}, SPREAD))
    kept = world.kept()
    assert world.taken() == [["b1"]]
    assert world.placement.names(kept.missed) == ["b1"]


@pytest.mark.parametrize(
    ("moving", "minutes", "is_kept"),
    [("new", 9, True), ("new", 10, False), ("goes", 9, True), ("goes", 10, False), ("", 60, True), ("both", 60, True)],
)
def test_room_is_kept_until_what_moves_has_been_stuck_for_ten_minutes(
    moving: str, minutes: int, *, is_kept: bool
) -> None:
    nodes = [node("a1", "a"), node("b1", "b")]
    there = pods({"a1": 4, "b1": 1}, SPREAD)
    since = NOW - timedelta(minutes=minutes)
    if moving == "goes":
        there.append(pod("goes", "b1", SPREAD, deletion_timestamp=since))
    world = World(nodes, there)
    if moving in {"new", "both"}:
        new_ones = [pod("new", "", SPREAD, creation_timestamp=since), *[new(of=SPREAD)] * (moving == "both")]
        world.task = msgspec.structs.replace(world.task, pods=(*world.task.pods, *new_ones))
    assert bool(world.taken()) is is_kept
