"""Pod deletion costs compared with every order of deletion, with a model of the ReplicaSet controller's ordering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.objects import Node
from respread.cluster.pod import Pod
from respread.prevention.ranks import Costs, rank_new, rerank, roles_of
from respread.prevention.replica_set import ReplicaSetIndex, ReplicaSetPods
from tests.properties.prevention.replica_set_model import (
    Model,
    ModelNode,
    ModelPod,
    ModelRule,
    Violation,
    deletion_order,
)
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, pod, spec

RACK = "example.com/rack"
ROW = "example.com/row"


class World(NamedTuple):
    """A ReplicaSet in its surroundings."""

    model: Model
    pods: tuple[ModelPod, ...]
    foreign: frozenset[str] = frozenset()
    """Pods whose cost another writer set."""


# The product's view of a cluster


def replica_set_of(world: World, costs: Mapping[str, int] = Map()) -> ReplicaSetPods:
    """Return the ReplicaSet for the product, with Respread's costs of its pods by name."""
    nodes = [Node(name=node.name, labels=Map(node.labels), allocatable=Map(pods=110)) for node in world.model.nodes]
    of = spec(
        *(
            constraint(
                rule.key,
                rule.max_skew,
                "DoNotSchedule" if rule.hard else "ScheduleAnyway",
                min_domains=rule.min_domains if rule.min_domains > 1 else None,
            )
            for rule in world.model.rules
        )
    )
    own = [_pod(each, world, of, costs) for each in world.pods]
    plain = spec()
    others = [
        pod(f"other-{number}", world.model.nodes[at].name, plain, controller=None)
        for number, at in enumerate(world.model.others)
    ]
    snapshot = cluster(nodes, [*own, *others])
    index = ReplicaSetIndex()
    index.update(snapshot, spread_of(snapshot))
    return index.by_uid["uid-web"]


def _pod(each: ModelPod, world: World, of: object, costs: Mapping[str, int]) -> Pod:
    ours = each.name in costs
    annotations: dict[str, str] = {}
    if ours:
        annotations[POD_DELETION_COST] = str(costs[each.name])
    elif each.name in world.foreign:
        annotations[POD_DELETION_COST] = str(each.cost)
    return pod(
        each.name,
        world.model.nodes[each.node].name,
        of,  # type: ignore[arg-type]  # a PodSpec, which this need not know
        annotations=Map(annotations),
        deletion_cost_is_ours=ours,
        ready=each.ready,
        phase=each.phase,
        creation_timestamp=NOW - timedelta(seconds=each.age_seconds),
    )


def named(replica_set: ReplicaSetPods, costs: Costs) -> dict[str, int]:
    """Return costs by the pods' names."""
    return {each.name: costs[each.uid] for each in replica_set.pods if each.uid in costs}


def ranked(world: World) -> dict[str, int]:
    """Return the costs for pods without costs, after reranking."""
    fresh = replica_set_of(world)
    costs = named(fresh, rank_new(fresh, roles_of(fresh)))
    current = replica_set_of(world, costs)
    again = rerank(current, roles_of(current))
    return costs if again is None else {**costs, **named(current, again)}


def order_under(world: World, costs: Mapping[str, int]) -> list[ModelPod]:
    """Return the order in which the controller deletes pods with these costs."""
    return deletion_order(
        [each if each.name in world.foreign else each._replace(cost=costs.get(each.name, 0)) for each in world.pods]
    )


def best_within_bands(world: World, order: Sequence[ModelPod]) -> Violation:
    """Return the least violations of any ranking, given the criteria before costs.

    Pods are deleted in bands: by phase, by readiness, and then first those with a negative cost of another writer, then
    ours, then the other ones of other writers. Our costs decide only within our bands.
    """
    hard = soft = 0
    left = list(order)
    while left:
        first = left[0]
        if first.name in world.foreign:
            left.pop(0)
            now = world.model.violation(each.node for each in left)
        else:
            band = [each for each in left if each.name not in world.foreign and _band(each) == _band(first)]
            left = [each for each in left if each not in band]
            now = world.model.best([each.node for each in band], [each.node for each in left])
        hard, soft = hard + now[0], soft + now[1]
    return hard, soft


def _band(each: ModelPod) -> tuple[str, bool]:
    return each.phase, each.ready


# Worlds


@st.composite
def worlds(draw: st.DrawFn, keys: Sequence[str], *, most_pods: int = 8, crossing: bool = False) -> World:
    """Draw a ReplicaSet, with everything that affects ranking."""
    zones = draw(st.integers(1, 4))
    nodes = []
    for number in range(draw(st.integers(2, 7))):
        zone = draw(st.integers(0, zones - 1))
        row = draw(st.integers(0, 2)) if crossing else f"{zone}"
        rack = draw(st.integers(0, 2)) if crossing else f"{zone}-{draw(st.integers(0, 1))}"
        labels = {ZONE: f"zone-{zone}", ROW: f"row-{row}", RACK: f"rack-{rack}", HOSTNAME: f"node-{number}"}
        for key in keys:
            if draw(st.integers(0, 14)) == 0:
                del labels[key]
        nodes.append(ModelNode(f"node-{number}", labels))
    rules = tuple(
        ModelRule(
            key,
            draw(st.sampled_from((1, 1, 1, 2, 3))),
            hard := draw(st.booleans()),
            draw(st.sampled_from((1, 1, 1, 3))) if hard else 1,
        )
        for key in keys
    )
    at = st.integers(0, len(nodes) - 1)
    others = draw(st.lists(at, max_size=6)) if draw(st.booleans()) else []
    pods = tuple(
        ModelPod(
            f"web-{number}",
            draw(at),
            ready_seconds=draw(st.integers(0, 3)),
            restarts=draw(st.integers(0, 1)),
            age_seconds=draw(st.integers(0, 3)),
        )
        for number in range(draw(st.integers(2, most_pods)))
    )
    return World(Model(tuple(nodes), rules, tuple(others)), pods)


KEYS = st.sampled_from(
    ((ZONE,), (HOSTNAME,), (ZONE, HOSTNAME), (ZONE, RACK, HOSTNAME), (ROW, HOSTNAME), (RACK, HOSTNAME))
)


@st.composite
def disturbed(draw: st.DrawFn) -> World:
    """Draw a ReplicaSet with some unready pods and some costs of another writer."""
    world = draw(worlds(draw(KEYS)))
    foreign: set[str] = set()
    pods = []
    for each in world.pods:
        cost = each.cost
        if draw(st.integers(0, 4)) == 0:
            foreign.add(each.name)
            cost = draw(st.sampled_from((-5000, 0, 7)))
        ready = draw(st.integers(0, 3)) > 0
        phase = "Running" if ready else draw(st.sampled_from(("Running", "Pending")))
        pods.append(each._replace(cost=cost, ready=ready, phase=phase))
    return world._replace(pods=tuple(pods), foreign=frozenset(foreign))


# Properties


@given(st.one_of(worlds((ZONE,), most_pods=9), worlds((HOSTNAME,), most_pods=9)))
def test_with_one_constraint_every_scale_down_leaves_the_least_possible_skew(world: World) -> None:
    order = order_under(world, ranked(world))
    for left in range(len(order)):
        remaining = [each.node for each in order[len(order) - left :]]
        assert world.model.violation(remaining) == world.model.least([each.node for each in order], left)


@given(worlds((ZONE, HOSTNAME)))
def test_with_zone_and_hostname_no_order_is_better(world: World) -> None:
    assert world.model.total(order_under(world, ranked(world))) == world.model.best([each.node for each in world.pods])


@given(worlds((ZONE, RACK, HOSTNAME)))
def test_with_three_keys_no_order_is_better(world: World) -> None:
    assert world.model.total(order_under(world, ranked(world))) == world.model.best([each.node for each in world.pods])


@given(st.one_of(worlds((ROW, RACK), crossing=True), worlds((ZONE, ROW, RACK), crossing=True)))
def test_with_domains_that_cross_no_order_is_better(world: World) -> None:
    assert world.model.total(order_under(world, ranked(world))) == world.model.best([each.node for each in world.pods])


@given(disturbed())
def test_the_order_is_the_best_one_with_unready_pods_and_costs_of_others(world: World) -> None:
    order = order_under(world, ranked(world))
    assert world.model.total(order) == best_within_bands(world, order)


@given(disturbed())
def test_costs_of_others_are_never_overwritten(world: World) -> None:
    fresh = replica_set_of(world)
    roles = roles_of(fresh)
    costs = named(fresh, rank_new(fresh, roles))
    assert costs.keys() == {each.name for each in world.pods} - world.foreign
    assert len(set(costs.values())) == len(costs)
    negative = [each.cost for each in world.pods if each.name in world.foreign and each.cost < 0]
    assert all(max(negative, default=-(2**31)) < cost < 0 for cost in costs.values())


@given(st.one_of(worlds((ZONE,)), worlds((HOSTNAME,))), st.data())
def test_new_pods_do_not_change_the_costs_of_other_pods(world: World, data: st.DataObject) -> None:
    """Pods come and go. Each is patched once, unless some nodes are in no domain; every order is optimal."""
    costs: dict[str, int] = {}
    for change in range(3):
        replica_set = replica_set_of(world, costs)
        new = named(replica_set, rank_new(replica_set, roles_of(replica_set)))
        assert new.keys() == {each.name for each in world.pods} - costs.keys()
        current = replica_set_of(world, costs := costs | new)
        again = rerank(current, roles_of(current))
        assert again is None or any(world.model.rules[0].key not in node.labels for node in world.model.nodes)
        order = order_under(world, costs := costs | named(current, again or {}))
        assert world.model.total(order) == world.model.best([each.node for each in order])
        kept = order[data.draw(st.integers(0, len(order) - 1)) :]
        costs = {each.name: costs[each.name] for each in kept}
        coming = data.draw(
            st.lists(st.integers(0, len(world.model.nodes) - 1), min_size=2 if len(kept) < 2 else 0, max_size=3)
        )
        world = world._replace(
            pods=(*kept, *(ModelPod(f"new-{change}-{number}", at) for number, at in enumerate(coming)))
        )


@given(disturbed())
def test_reranking_twice_changes_nothing(world: World) -> None:
    current = replica_set_of(world, ranked(world))
    assert rerank(current, roles_of(current)) is None


@given(worlds((ZONE, HOSTNAME)), st.data())
def test_reranking_reaches_the_optimum(world: World, data: st.DataObject) -> None:
    costs = dict(
        zip(
            [each.name for each in world.pods],
            data.draw(st.lists(st.integers(-20, -1), min_size=8, max_size=8, unique=True)),
            strict=False,
        )
    )
    current = replica_set_of(world, costs)
    before = world.model.total(order_under(world, costs))
    found = rerank(current, roles_of(current))
    best = world.model.best([each.node for each in world.pods])
    if found is None:
        assert before == best
        return
    after = order_under(world, {**costs, **named(current, found)})
    assert world.model.total(after) == best < before
