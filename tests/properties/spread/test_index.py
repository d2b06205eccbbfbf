"""Spread groups count what the scheduler's filter counts, and stay correct from one snapshot to the next."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from respread.api.fields import LabelSelector
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Service, Workload
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterState
from respread.scheduling.configuration import Profile
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS, DefaultConstraints
from respread.spread.group import template_of
from respread.spread.index import Spread, SpreadIndex
from tests.properties.scheduling.scheduling_worlds import NAMESPACES, NODES, label_maps, nodes_named, pods
from tests.properties.scheduling.test_view import LIST_DEFAULTS, Known, clusters, configured, unbound
from tests.spreads import spread_of

Counted: TypeAlias = tuple[str, str, int, int, tuple[tuple[str, int], ...], int]
"""Topology key, selector, maxSkew, minDomains, pods by domain, global minimum."""

defaults = st.builds(
    DefaultConstraints,
    st.sampled_from([Profile(), LIST_DEFAULTS]).map(configured),
    st.sampled_from([HARD_DEFAULTS, ALL_DEFAULTS]),
)
changes = st.lists(st.sampled_from(["node", "pod", "pod", "service", "owner"]), max_size=4)


def change(data: st.DataObject, state: ClusterState, known: list[PodSpec], what: str) -> None:
    """Change one thing in the cluster, or remove it."""
    there = data.draw(st.sampled_from([True, True, False]))
    namespace = data.draw(st.sampled_from(NAMESPACES))
    key = ObjectKey(namespace, "web")
    match what:
        case "node":
            key = ObjectKey("", data.draw(st.sampled_from(NODES)))
            if there or key.name in state.snapshot.nodes:
                state.apply("nodes", [(key, data.draw(nodes_named(key.name)) if there else None)])
        case "pod":
            pod = data.draw(pods(known, data.draw(st.sampled_from(["p0", "p1", "p2", "other"]))))
            if there or pod.key in state.snapshot.pods:
                state.apply("pods", [(pod.key, pod if there else None)])
        case "service":
            if there or key.name in state.snapshot.services.get(namespace, {}):
                service = Service(namespace=namespace, name="web", selector=data.draw(label_maps))
                state.apply("services", [(key, service if there else None)])
        case _:
            if there or key in state.snapshot.replica_sets:
                owner = Workload(namespace=namespace, name="web", selector=LabelSelector(data.draw(label_maps)))
                state.apply("replicasets", [(key, owner if there else None)])


@given(clusters(), defaults, st.data())
def test_the_index_equals_a_new_one(cluster: Known, rules: DefaultConstraints, data: st.DataObject) -> None:
    state, known = cluster
    index = SpreadIndex(rules)
    for _ in range(data.draw(st.integers(1, 4))):
        found = index.update(state.snapshot)
        from_scratch = spread_of(state.snapshot, rules)
        assert plain(found) == plain(from_scratch)
        for what in data.draw(changes):
            change(data, state, known, what)


def plain(spread: Spread) -> object:
    """Return the comparable parts. The order of label sets is that of their creation."""
    groups = {
        key: (
            group.domains,
            dict(group.counts),
            set(group.matched),
            group.workloads,
            Counter(template.identity for template in group.carriers),
        )
        for key, group in spread.groups.items()
    }
    return groups, {name: set(each) for name, each in spread.by_namespace.items()}, dict(spread.owners)


@given(clusters(), defaults)
def test_groups_count_the_pods_that_the_scheduler_counts(cluster: Known, rules: DefaultConstraints) -> None:
    snapshot = cluster[0].snapshot
    spread = spread_of(snapshot, rules)
    predictor = Predictor(ClusterView(snapshot), rules.configuration)
    for pod in snapshot.pods.values():
        if not pod.finished:
            assert of_groups(spread, pod) == of_filter(predictor, pod)


def of_groups(spread: Spread, pod: Pod) -> set[Counted]:
    identity = template_of(pod).identity
    return {
        (
            key.topology_key,
            str(key.selector),
            key.max_skew,
            key.min_domains,
            tuple(sorted(group.all_counts().items())),
            group.minimum,
        )
        for key, group in spread.by_namespace[pod.namespace].items()
        if key.when_unsatisfiable == "DoNotSchedule"
        and any(template.identity == identity for template in group.carriers)
    }


def of_filter(predictor: Predictor, pod: Pod) -> set[Counted]:
    return {
        (
            each.constraint.topology_key,
            str(each.constraint.selector),
            each.constraint.max_skew,
            each.constraint.min_domains,
            tuple(sorted(each.domains.all_counts().items())),
            each.minimum,
        )
        for each in predictor.prepare(unbound(pod)).hard_constraints
    }
