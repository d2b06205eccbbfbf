"""Respread's evicted pods are remembered, and count as changes of a group, until they are deleted."""

from __future__ import annotations

from respread.controller.records.evicted_pods import EvictedPods
from tests.eviction_moves import move
from tests.worlds import NOW, cluster, constraint, node, pod, spec

SPEC = spec(constraint())
NODES = [node("a1", "a"), node("b1", "b")]


def test_an_evicted_pod_counts_until_one_observation_after_its_deletion() -> None:
    evicted_pods = EvictedPods()
    staying, leaving = pod("web-1", "a1", SPEC), pod("web-1", "a1", SPEC, deletion_timestamp=NOW)
    made = move(staying)
    replaced = pod("web-2", "b1", SPEC)
    ours = {made.workload}
    assert evicted_pods.observe([made], cluster(NODES, [staying])) == ours
    assert evicted_pods.uids == {staying.uid}
    assert evicted_pods.observe([made], cluster(NODES, [leaving, replaced])) == ours
    assert evicted_pods.observe([], cluster(NODES, [leaving, replaced])) == ours, "the move has ended before the pod"
    assert evicted_pods.uids == {staying.uid}
    assert evicted_pods.observe([], cluster(NODES, [replaced])) == ours, "its end is a change of ours"
    assert not evicted_pods.uids
    assert evicted_pods.observe([], cluster(NODES, [replaced])) == set()


def test_a_pod_that_another_client_deletes_does_not_count() -> None:
    evicted_pods = EvictedPods()
    assert evicted_pods.observe([], cluster(NODES, [pod("web-1", "a1", SPEC, deletion_timestamp=NOW)])) == set()
    assert not evicted_pods.uids
