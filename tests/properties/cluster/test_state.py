"""The incremental state equals one built from scratch, and snapshots never change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot, ClusterState

SPEC = PodSpec()

pods = st.builds(
    lambda namespace, name, app, owner, node, phase, nominated: Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{namespace}-{name}",
        spec=SPEC,
        labels=Map(app=app),
        controller=OwnerReference("apps/v1", "ReplicaSet", owner, f"uid-{owner}") if owner else None,
        node_name=node,
        phase=phase,
        nominated_node_name=nominated,
    ),
    st.sampled_from(["shop", "blog"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["web", "api"]),
    st.sampled_from(["", "web-1", "web-2"]),
    st.sampled_from(["", "node-1", "node-2"]),
    st.sampled_from(["Running", "Succeeded", "Pending"]),
    st.sampled_from(["", "node-1"]),
)
batches = st.lists(st.lists(st.tuples(pods, st.booleans()), max_size=4), max_size=8)


def as_dicts(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    def plain(value: object) -> object:
        return {key: plain(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value

    return (
        plain(snapshot.pods),
        plain(snapshot.pods_by_labels),
        plain(snapshot.pods_by_controller),
        plain(snapshot.pods_by_node),
        plain(snapshot.nominated_pods),
    )


def from_scratch(held: Mapping[ObjectKey, Pod]) -> tuple[object, ...]:
    by_labels: dict[str, dict[object, dict[str, Pod]]] = {}
    by_controller: dict[str, dict[str, dict[str, Pod]]] = {}
    by_node: dict[str, dict[ObjectKey, Pod]] = {}
    for key, pod in held.items():
        by_labels.setdefault(pod.namespace, {}).setdefault(pod.labels, {})[pod.name] = pod
        if pod.controller is not None:
            by_controller.setdefault(key.namespace, {}).setdefault(pod.controller.uid, {})[key.name] = pod
        if pod.node_name and pod.phase != "Succeeded":
            by_node.setdefault(pod.node_name, {})[key] = pod
    nominated = {
        key: pod
        for key, pod in held.items()
        if pod.nominated_node_name and not pod.node_name and pod.phase != "Succeeded"
    }
    return dict(held), by_labels, by_controller, by_node, nominated


@given(batches)
def test_indices_equal_those_built_from_scratch_and_snapshots_never_change(
    history: list[list[tuple[Pod, bool]]],
) -> None:
    state = ClusterState()
    held: dict[ObjectKey, Pod] = {}
    taken: list[tuple[ClusterSnapshot, tuple[object, ...]]] = []
    for batch in history:
        before = dict(held)
        for pod, present in batch:
            if present:
                held[pod.key] = pod
            else:
                held.pop(pod.key, None)
        changed = state.apply("pods", [(pod.key, pod if present else None) for pod, present in batch])
        assert (changed > 0) or before == held
        assert as_dicts(state.snapshot) == from_scratch(held)
        taken.append((state.snapshot, from_scratch(held)))
    for snapshot, expected in taken:
        assert as_dicts(snapshot) == expected


@given(st.lists(pods), st.lists(pods))
def test_a_complete_list_replaces_the_stored_objects(first: list[Pod], second: list[Pod]) -> None:
    state = ClusterState()
    state.replace("pods", first)
    state.replace("pods", second)
    assert as_dicts(state.snapshot) == from_scratch({pod.key: pod for pod in second})


def test_pods_with_labels_unique_to_one_controller_are_indexed_once() -> None:
    def of(owner: str, name: str, app: str, node: str = "") -> tuple[ObjectKey, Pod]:
        made = Pod(
            namespace="shop",
            name=name,
            uid=f"uid-{name}",
            spec=SPEC,
            labels=Map(app=app),
            controller=OwnerReference("apps/v1", "ReplicaSet", owner, f"uid-{owner}") if owner else None,
            node_name=node,
        )
        return made.key, made

    def kept_once(owner: str, app: str) -> bool:
        snapshot = state.snapshot
        return snapshot.pods_by_controller["shop"][f"uid-{owner}"] is snapshot.pods_by_labels["shop"][Map(app=app)]

    state = ClusterState()
    state.apply("pods", [of("web-1", "a", "web"), of("web-1", "b", "web"), of("api-1", "c", "api")])
    assert kept_once("web-1", "web")
    assert kept_once("api-1", "api")
    state.apply("pods", [of("web-1", "a", "web", "node-1"), of("", "bare", "api")])
    assert kept_once("web-1", "web")
    assert not kept_once("api-1", "api")


def test_an_equal_object_changes_nothing() -> None:
    state = ClusterState()
    node = Node(name="node-1", labels=Map(zone="a"))
    assert state.apply("nodes", [(ObjectKey("", "node-1"), node)]) == 1
    before = state.snapshot
    assert state.apply("nodes", [(ObjectKey("", "node-1"), Node(name="node-1", labels=Map(zone="a")))]) == 0
    assert state.snapshot is before


def test_unknown_resources_are_rejected_by_name() -> None:
    with pytest.raises(ValueError, match="unknown resource 'secrets'"):
        ClusterState().apply("secrets", [])
