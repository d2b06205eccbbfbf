"""A view that was changed, reverted and moved from snapshot to snapshot answers like a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.filters.node_affinity import matches_node_affinity, nodes_with_affinity
from respread.scheduling.filters.pod_topology_spread import eligible_nodes
from respread.scheduling.filters.topology_spread import SpreadConstraint, constraints_in_force, required_keys
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.node_table import NodeTable, node_set
from respread.spread.group import domains_of, eligibility_of
from tests.properties.scheduling.scheduling_worlds import (
    DELETED,
    NODES,
    fixed_objects,
    nodes_named,
    pods,
    rebuilt,
    specs,
)
from tests.spread_profiles import spread_profile

LIST_DEFAULTS = spread_profile(
    {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    }
)
profiles = st.sampled_from([Profile(), LIST_DEFAULTS])


def configured(profile: Profile) -> SchedulerConfiguration:
    return SchedulerConfiguration(profiles=SchedulerConfiguration().profiles.set("default-scheduler", profile))


Known: TypeAlias = tuple[ClusterState, list[PodSpec]]
"""A cluster, and what its pods may be like."""


@st.composite
def clusters(draw: st.DrawFn) -> Known:
    known = draw(st.lists(specs, min_size=1, max_size=4))
    state = ClusterState()
    fixed_objects(state)
    state.replace(
        "nodes", [draw(nodes_named(name)) for name in draw(st.lists(st.sampled_from(NODES), unique=True, min_size=1))]
    )
    state.replace("pods", [draw(pods(known, f"p{number}")) for number in range(draw(st.integers(0, 8)))])
    return state, known


def unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, node_name="", phase="Pending", deletion_timestamp=None)


def answers(predictor: Predictor, pod: Pod) -> dict[str, Any]:
    """Return all answers about a pod, by names."""
    prepared = predictor.prepare(pod)
    table = predictor.view.table
    names = sorted(table.slot_of)
    scores = prepared.scores(prepared.admitted())
    return {
        "admitted": sorted(prepared.names(prepared.admitted())),
        "without spread": sorted(prepared.names(prepared.admitted(spread=False))),
        "rejections": {name: prepared.rejections(name) for name in names},
        "unknown": prepared.unknown,
        "hard": [(each.constraint, each.domains.all_counts(), each.minimum) for each in prepared.hard_constraints],
        "scores": None
        if scores is None
        else sorted(
            (table.names[slot], raw, points)
            for slot, raw, points in zip(scores.slots, scores.raw, scores.normalized, strict=True)
        ),
    }


def assert_same_answers(predictor: Predictor, expected: ClusterSnapshot, pods_asked: Iterable[Pod]) -> None:
    fresh = Predictor(ClusterView(expected), predictor.configuration)
    for pod in pods_asked:
        assert answers(predictor, pod) == answers(fresh, pod)


@given(clusters(), profiles, st.data())
def test_undone_steps_leave_the_view_equal_to_a_new_one(cluster: Known, profile: Profile, data: st.DataObject) -> None:
    state, known = cluster
    snapshot = state.snapshot
    view = ClusterView(snapshot)
    predictor = Predictor(view, configured(profile))
    asked = [data.draw(pods(known, f"new{number}").map(unbound)) for number in range(2)]
    held = dict(snapshot.pods.items())
    objects = dict(held)  # the same object by which the view identifies a pod
    history: list[tuple[int, dict[ObjectKey, Pod], dict[ObjectKey, Pod]]] = []
    for number in range(data.draw(st.integers(0, 6))):
        if data.draw(st.booleans()):
            assert_same_answers(predictor, rebuilt(snapshot, held), asked)  # fills caches that must stay correct
        history.append((view.mark(), dict(held), dict(objects)))
        action = data.draw(st.sampled_from(["evict", "remove", "place", "revert"]))
        bound = sorted(key for key, pod in held.items() if pod.node_name and not pod.finished)
        if action == "place":
            if view.table.slot_of:
                node = data.draw(st.sampled_from(sorted(view.table.slot_of)))
                placed = view.place(data.draw(pods(known, f"placed{number}")), node)
                held[placed.key] = objects[placed.key] = placed
        elif action == "revert":
            mark, held, objects = data.draw(st.sampled_from(history))
            held, objects = dict(held), dict(objects)
            history = [entry for entry in history if entry[0] < mark]
            view.revert(mark)
        elif bound:
            key = data.draw(st.sampled_from(bound))
            if action == "evict":
                view.evict(objects[key])
                held[key] = msgspec.structs.replace(held[key], deletion_timestamp=DELETED)
            else:
                view.remove(objects[key])
                del held[key], objects[key]
    assert_same_answers(predictor, rebuilt(snapshot, held), asked)
    view.revert(0)
    assert_same_answers(predictor, rebuilt(snapshot, dict(snapshot.pods)), asked)


@given(clusters(), profiles, st.data())
def test_an_updated_view_equals_a_new_one(cluster: Known, profile: Profile, data: st.DataObject) -> None:
    state, known = cluster
    view = ClusterView(state.snapshot)
    predictor = Predictor(view, configured(profile))
    asked = [data.draw(pods(known, f"new{number}").map(unbound)) for number in range(2)]
    for _ in range(data.draw(st.integers(1, 4))):
        for pod in asked:
            answers(predictor, pod)
        for _ in range(data.draw(st.integers(0, 2))):
            name = data.draw(st.sampled_from(NODES))
            node = data.draw(st.one_of(st.none(), nodes_named(name)))
            if node is not None or name in state.snapshot.nodes:
                state.apply("nodes", [(ObjectKey("", name), node)])
        for _ in range(data.draw(st.integers(0, 3))):
            pod = data.draw(pods(known, data.draw(st.sampled_from(["p0", "p1", "p2", "other"]))))
            present = data.draw(st.sampled_from([True, True, False]))
            if present or pod.key in state.snapshot.pods:
                state.apply("pods", [(pod.key, pod if present else None)])
        claim = ObjectKey("shop", "data")
        if claim in state.snapshot.persistent_volume_claims and data.draw(st.booleans()):
            state.apply("persistentvolumeclaims", [(claim, None)])
        if data.draw(st.booleans()):
            state.replace("services", [])
        if names := sorted(view.table.slot_of):
            view.place(asked[0], data.draw(st.sampled_from(names)))  # advancing discards this step
        view.advance(state.snapshot)
        assert_same_answers(predictor, rebuilt(state.snapshot, dict(state.snapshot.pods)), asked)


@given(clusters(), profiles, st.data())
def test_predictions_for_all_nodes_equal_those_for_each(cluster: Known, profile: Profile, data: st.DataObject) -> None:
    state, known = cluster
    predictor = Predictor(ClusterView(state.snapshot), configured(profile))
    pod = data.draw(pods(known, "new").map(unbound))
    prepared = predictor.prepare(pod)
    admitted = set(prepared.names(prepared.admitted()))
    for name in predictor.view.table.slot_of:
        rejections = prepared.rejections(name)
        assert (name in admitted) == (not rejections)
        assert prepared.first_rejection(name) == (rejections[0] if rejections else None)
    assert set(prepared.feasible_nodes()) == (admitted if prepared.unknown is None else set())


@given(clusters())
def test_node_sets_equal_the_answers_for_each_node(cluster: Known) -> None:
    state, known = cluster
    table = ClusterView(state.snapshot).table
    nodes = [node for node in table.nodes if node is not None]
    for spec in known:
        matching = [node for node in nodes if matches_node_affinity(spec.node_selector, spec.node_affinity, node)]
        assert nodes_with_affinity(table, spec.node_selector, spec.node_affinity) == slots(table, matching)
        pod = Pod(namespace="shop", name="new", uid="", spec=spec)
        in_force = constraints_in_force(pod, Profile(), state.snapshot)
        whens: list[tuple[WhenUnsatisfiable, Sequence[SpreadConstraint]]] = [
            ("DoNotSchedule", in_force.hard),
            ("ScheduleAnyway", in_force.soft),
        ]
        for when, applied in whens if spec.topology_spread_constraints else ():
            own = [each for each in spec.topology_spread_constraints if each.when_unsatisfiable == when]
            keys = {*required_keys(own, when)}
            for constraint, same in zip(own, applied, strict=True):
                eligible = domains_of(eligibility_of(spec, constraint, own), constraint.topology_key, nodes).of_node
                assert eligible_nodes(table, pod, same, keys) == node_set([table.slot_of[name] for name in eligible])


def slots(table: NodeTable, nodes: Iterable[Node]) -> int:
    return node_set([table.slot_of[node.name] for node in nodes])
