"""On a fork of the cluster, counts follow every pod, and afterwards the cluster is as it was."""

from __future__ import annotations

import msgspec
import pytest
from immutables import Map

from respread.planning.placement import Placement
from respread.planning.room.book import simulated
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.group import SpreadGroup
from tests.spreads import spread_of
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec

SPREAD = spec(constraint())
NODES = [node("a1", "a"), node("b1", "b"), node("c1", "c", pods=2)]
THERE = pods({"a1": 3, "b1": 1}, SPREAD)


@pytest.fixture
def placement() -> Placement:
    return Placement(Predictor(ClusterView(cluster(NODES, THERE))))


@pytest.fixture
def group(placement: Placement) -> SpreadGroup:
    (found,) = spread_of(placement.view.snapshot).groups.values()
    return found


def test_counts_follow_pods_that_come_and_go(placement: Placement, group: SpreadGroup) -> None:
    slots, first = placement.table.slot_of, THERE[0]
    with simulated(placement, [group]) as simulation:
        simulation.place(first, slots["c1"])
        assert simulation.levels(group).levels == ((1, 2), (3, 1))
        simulation.evict(first)
        assert (simulation.count_on(group, "a1"), simulation.beside(group, THERE[1])) == (2, 2)
        simulation.remove(THERE[1])
        assert simulation.levels(group).skew == 0
        simulation.place(pod("another", "", SPREAD, namespace="elsewhere"), slots["a1"])
        assert simulation.levels(group).skew == 0
    with simulated(placement, [group]) as simulation:
        assert simulation.levels(group).levels == group.levels.levels == ((0, 1), (1, 1), (3, 1))


def test_the_replacement_of_a_pod_counts_that_is_terminating_already(placement: Placement, group: SpreadGroup) -> None:
    going = msgspec.structs.replace(THERE[0], deletion_timestamp=NOW)
    with simulated(placement, [group]) as simulation:
        simulation.remove(going)
        assert simulation.count_on(group, "a1") == 3, "it did not count any more"
        simulation.place(going, placement.table.slot_of["c1"])
        assert simulation.count_on(group, "c1") == 1


def test_room_is_given_back_also_if_something_fails(placement: Placement, group: SpreadGroup) -> None:
    prepared, slots = placement.prepare(THERE[0]), placement.table.slot_of
    large = placement.prepare(pod("large", "", spec(requests=Map(cpu=32_000, memory=0))))  # two on c1, one on b1
    before = placement.view.mark()

    def fail() -> None:
        with simulated(placement, [group]) as simulation:
            assert simulation.roomiest(large, 1 << slots["c1"] | 1 << slots["b1"]) == slots["c1"]
            for _ in range(2):
                simulation.place(THERE[0], slots["c1"])
            assert simulation.roomiest(prepared, 1 << slots["c1"] | 1 << slots["b1"]) == slots["b1"]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert placement.view.mark() == before


@pytest.mark.parametrize(("gone", "minimum"), [((), 0), (("c1",), 1), (("b1", "c1"), 1)])
def test_a_domain_without_pods_counts_until_its_last_node_is_gone(
    placement: Placement, group: SpreadGroup, gone: tuple[str, ...], minimum: int
) -> None:
    with simulated(placement, [group]) as simulation:
        assert simulation.levels(group, frozenset(gone)).minimum == minimum
        assert placement.names(simulation.emptiest(group)) == ["c1"]
