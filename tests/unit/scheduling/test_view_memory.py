"""The memory of a view and of compiled selectors is bounded, whatever objects tenants create and delete."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.pod import Pod, PodAffinityTerm, PodSpec
from respread.cluster.state import ClusterState
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.index import SpreadIndex
from tests.informer_parts import Parts
from tests.worlds import HOSTNAME, cluster, constraint, node, pod, spec

_MIB = 1 << 20
NODES = 1_000
MANY = 20_000
"""About as many names as fit into an object of 1.5 MiB, twice."""


@pytest.fixture
def grown_mib() -> Iterator[Callable[[], float]]:
    gc.collect()
    tracemalloc.start()

    def grown() -> float:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / _MIB

    yield grown
    tracemalloc.stop()


def in_a_large_cluster(*pods: Pod) -> ClusterView:
    return ClusterView(cluster([node(f"n{number}", pods=500) for number in range(NODES)], pods))


def test_a_pod_with_many_requests_takes_no_list_of_all_nodes_for_each(grown_mib: Callable[[], float]) -> None:
    """With `nodeName` in its spec no scheduler is asked whether a node has these resources."""
    fat = pod("fat", "n0", PodSpec(requests=Map({f"example.com/r{number}": 1 for number in range(MANY)})))
    view = in_a_large_cluster(fat)
    assert grown_mib() < 40
    assert len(Predictor(view).prepare(pod("new", "", PodSpec(requests=Map(cpu=1)))).feasible_nodes()) == NODES


def test_a_pod_with_many_topology_keys_takes_no_list_of_all_nodes_for_each(grown_mib: Callable[[], float]) -> None:
    view = in_a_large_cluster()
    of = PodSpec(topology_spread_constraints=tuple(constraint(f"example.com/k{number}") for number in range(2_000)))
    before = grown_mib()
    assert Predictor(view).prepare(pod("new", "", of)).feasible_nodes() == []
    assert grown_mib() - before < 12


def selecting(name: str, values: int) -> LabelSelector:
    wanted = tuple(f"{name}-{number}" for number in range(values))
    return LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", wanted),))


SHAPES: dict[str, Callable[[str], dict[str, Any]]] = {
    "requests": lambda name: {"of": PodSpec(requests=Map({f"x.io/{name}-{number}": 1 for number in range(5_000)}))},
    "labels": lambda name: {"labels": Map({f"{name}-{number}": "" for number in range(10_000)})},
    "terms": lambda name: {"of": PodSpec(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, selecting(name, 10_000)),))},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_leftovers_of_large_pods_are_dropped(shape: str) -> None:
    state = ClusterState(cluster([node("n1", pods=100)], []))
    view = ClusterView(state.snapshot)
    kept = []
    for number in range(30):
        fields = SHAPES[shape](f"p{number}")
        come = msgspec.structs.replace(pod("p", "n1", fields.pop("of", PodSpec()), **fields), uid=f"uid-{number}")
        state.apply("pods", [(come.key, come)])
        view.advance(state.snapshot)
        kept.append(view.pods.kept + view.terms.kept + view.free.kept)
    each = kept[1] - kept[0]
    assert max(kept) < 200_000 < 30 * each


def test_selectors_of_deleted_objects_are_dropped(grown_mib: Callable[[], float]) -> None:
    parts = Parts()
    metadata = {"name": "pdb", "namespace": "shop", "uid": "uid"}
    for number in range(20):
        values = [f"v{number}-{value}" for value in range(5_000)]
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
        body = {"metadata": {**metadata, "resourceVersion": str(number + 1)}, "spec": {"selector": selector}}
        parts.event("poddisruptionbudgets", body)
    assert grown_mib() < 5


KEYS = tuple(f"key-{number}" for number in range(5_000))
GROUPS: dict[str, Callable[[str], Pod]] = {
    "selectors": lambda name: pod(
        "p", "n1", spec(constraint(selector=selecting(name, 5_000))), labels=Map(app=f"{name}-1")
    ),
    "matchLabelKeys": lambda name: pod(
        "p", "n1", spec(constraint(match_label_keys=KEYS)), labels=Map({"app": "web", **dict.fromkeys(KEYS, name)})
    ),
    "node selectors": lambda name: pod("p", "n1", spec(constraint(), node_selector=Map(dict.fromkeys(KEYS, name)))),
}


@pytest.mark.parametrize("shape", GROUPS)
def test_groups_of_deleted_pods_are_dropped(shape: str, grown_mib: Callable[[], float]) -> None:
    state = ClusterState(cluster([node("n1", "a", pods=100)], []))
    index = SpreadIndex()
    grown = []
    for number in range(20):
        come = GROUPS[shape](f"p{number}")
        state.apply("pods", [(come.key, come)])
        assert len(index.update(state.snapshot).groups) == 1
        grown.append(grown_mib())
    assert grown[-1] < 2.5 * grown[1]
