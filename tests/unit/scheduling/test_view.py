"""A view frees the spread count of a pod at its eviction and its room at its deletion, and steps can be undone."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.objects import CSINode, PersistentVolume, PersistentVolumeClaim
from respread.cluster.pod import HostPort, Pod, PodAffinityTerm, PodSpec
from respread.cluster.selectors import compile_selector
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.pod_index import PodIndex
from tests.counting import calls
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, spec

WEB = LabelSelector(Map(app="web"))


def feasible(view: ClusterView, wanted: PodSpec, **fields: Any) -> list[str]:
    return sorted(Predictor(view).prepare(pod("new", "", wanted, **fields)).feasible_nodes())


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (PodSpec(requests=Map(cpu=60_000)), PodSpec(requests=Map(cpu=10_000))),
        (PodSpec(host_ports=(HostPort("TCP", 80),)), PodSpec(host_ports=(HostPort("TCP", 80),))),
        (PodSpec(shared_claims=("data",)), PodSpec(shared_claims=("data",))),
        (PodSpec(), PodSpec(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, WEB),))),
        (PodSpec(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, WEB),)), PodSpec()),
    ],
    ids=["resources", "ports", "a claim for one pod", "anti-affinity", "anti-affinity of the other"],
)
def test_a_pod_uses_its_resources_until_it_is_deleted(held: PodSpec, wanted: PodSpec) -> None:
    old = pod("old", "n1", held)
    view = ClusterView(
        cluster(
            [node("n1")],
            [old],
            persistentvolumeclaims=[
                PersistentVolumeClaim(
                    namespace="default",
                    name="data",
                    volume_name="pv",
                    bind_completed=True,
                    access_modes=("ReadWriteOncePod",),
                )
            ],
            persistentvolumes=[PersistentVolume(name="pv")],
        )
    )
    mark = view.mark()
    assert feasible(view, wanted) == []
    view.evict(old)
    assert feasible(view, wanted) == []
    view.remove(old)
    assert feasible(view, wanted) == ["n1"]
    view.place(pod("other", "", held), "n1")
    assert feasible(view, wanted) == []
    view.revert(mark)
    assert feasible(view, wanted) == []
    view.remove(old)
    assert feasible(view, wanted) == ["n1"]


def test_a_terminating_pod_satisfies_required_affinity() -> None:
    old = pod("old", "n1", PodSpec())
    view = ClusterView(cluster([node("n1"), node("n2")], [old]))
    beside = PodSpec(pod_affinity=(PodAffinityTerm(HOSTNAME, WEB),))
    view.evict(old)
    assert feasible(view, beside) == ["n1"]
    view.remove(old)
    assert feasible(view, beside) == ["n1", "n2"]  # it is the first pod with this affinity now


def test_a_placed_pod_can_be_evicted() -> None:
    of = spec(constraint(HOSTNAME))
    view = ClusterView(cluster([node("n1"), node("n2")], []))
    placed = view.place(pod("p", "", of), "n1")
    assert (placed.node_name, placed.terminating, placed.held_requests) == ("n1", False, None)
    assert feasible(view, of) == ["n2"]
    view.evict(placed)
    assert feasible(view, of) == ["n1", "n2"]
    view.remove(placed)
    view.revert(0)
    assert feasible(view, of) == ["n1", "n2"]


def test_evicting_a_terminating_or_unscheduled_pod_changes_nothing() -> None:
    of = spec(constraint(HOSTNAME))
    terminating = pod("p1", "n1", of, deletion_timestamp=NOW)
    nowhere = pod("p2", "gone", of)
    view = ClusterView(cluster([node("n1"), node("n2")], [terminating, nowhere, pod("p3", "n2", of)]))
    for each in (terminating, nowhere, pod("p4", "", of)):
        view.evict(each)
    view.remove(nowhere)
    assert view.mark() == 0
    assert feasible(view, of) == ["n1"]


def test_a_pod_cannot_be_placed_on_a_node_that_does_not_exist() -> None:
    view = ClusterView(cluster([node("n1")], []))
    with pytest.raises(KeyError):
        view.place(pod("p", "", PodSpec()), "n9")
    assert view.mark() == 0


def test_cached_predictions_survive_steps_and_changes_of_pods() -> None:
    of = spec(constraint(ZONE))
    state = ClusterState(cluster([node("na", "a"), node("nb", "b")], []))
    view = ClusterView(state.snapshot)
    predictor = Predictor(view)
    new = pod("new", "", of)
    prepared = predictor.prepare(new)
    view.place(new, "na")
    assert prepared.feasible_nodes() == ["nb"]
    come, elsewhere = pod("p1", "nb", of), pod("p2", "na", of, namespace="other", labels=Map(app="web", new="yes"))
    state.apply("pods", [(come.key, come), (elsewhere.key, elsewhere)])
    view.advance(state.snapshot)
    assert predictor.prepare(elsewhere) is not prepared
    assert predictor.prepare(pod("another", "", of)) is prepared
    assert prepared.feasible_nodes() == ["na"]


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ({"labels": Map({HOSTNAME: "n1"})}, []),
        ({"labels": Map({"disk": "ssd", ZONE: "b"})}, []),  # from which another pod keeps it by anti-affinity
        ({"taints": ()}, ["n1"]),  # they stay the same
        ({"unschedulable": True}, []),
    ],
)
def test_cached_predictions_are_recomputed_when_nodes_change(changes: dict[str, Any], nodes: list[str]) -> None:
    of, repelling = spec(node_selector=Map(disk="ssd")), PodSpec(pod_anti_affinity=(PodAffinityTerm(ZONE, WEB),))
    nodes_before = [node("n1", "a", labels={"disk": "ssd"}), node("n2", "b")]
    state = ClusterState(cluster(nodes_before, [pod("p", "n2", repelling)]))
    view = ClusterView(state.snapshot)
    predictor = Predictor(view)
    new = pod("new", "", of)
    before = predictor.prepare(new)
    assert before.feasible_nodes() == ["n1"]
    changed = msgspec.structs.replace(state.snapshot.nodes["n1"], **changes)
    state.apply("nodes", [(changed.key, changed)])
    view.advance(state.snapshot)
    assert (predictor.prepare(new) is before) == bool(nodes)
    assert predictor.prepare(new).feasible_nodes() == nodes


def test_a_node_with_more_allocatable_takes_more_pods() -> None:
    state = ClusterState(cluster([node("n1", pods=1)], [pod("p", "n1", PodSpec())]))
    view = ClusterView(state.snapshot)
    assert feasible(view, PodSpec()) == []
    state.replace("nodes", [node("n1", pods=2)])
    view.advance(state.snapshot)
    assert feasible(view, PodSpec()) == ["n1"]
    for allocatable, nodes in ((Map(pods=2, gpu=1), ["n1"]), (Map(pods=2, cpu=9), [])):
        state.replace("nodes", [msgspec.structs.replace(node("n1"), allocatable=allocatable)])
        view.advance(state.snapshot)
        assert feasible(view, PodSpec(requests=Map(gpu=1))) == nodes
    state.replace("nodes", [node("n2")])
    view.advance(state.snapshot)
    assert feasible(view, PodSpec(requests=Map(cpu=64_000))) == ["n2"]
    assert feasible(view, PodSpec(requests=Map(cpu=64_001))) == [], "what another node had is not added"


def test_a_node_that_can_attach_fewer_volumes_takes_fewer_pods() -> None:
    names = ("data", "more")
    claims = [PersistentVolumeClaim(namespace="default", name=n, volume_name=n, bind_completed=True) for n in names]
    volumes = [PersistentVolume(name=name, csi_driver="disks.io", csi_volume_handle=name) for name in names]
    state = ClusterState(cluster([node("n1")], [], persistentvolumeclaims=claims, persistentvolumes=volumes))
    view = ClusterView()
    for most, nodes in ((1, ["n1"]), (0, [])):
        state.replace("csinodes", [CSINode(name="n1", volume_limits=Map({"disks.io": most}))])
        view.advance(state.snapshot)
        assert feasible(view, PodSpec(shared_claims=("data",))) == nodes
        with view.fork():
            view.place(pod("other", "", PodSpec(shared_claims=("more",))), "n1")
            assert feasible(view, PodSpec(shared_claims=("data",))) == []


def test_leftovers_of_earlier_snapshots_are_dropped() -> None:
    """Workloads are created and deleted all the time, and a view exists as long as the operator."""
    state = ClusterState(cluster([node("n1", pods=100_000)], []))
    view = ClusterView(state.snapshot)
    predictor = Predictor(view)
    most = 0
    for batch in range(8):
        gone = list(state.snapshot.pods.items())
        come = [_one_off(f"{batch}-{number}") for number in range(1500)]
        state.apply("pods", [*((key, None) for key, _ in gone), *((each.key, each) for each in come)])
        view.advance(state.snapshot)
        for each in come[:300]:
            predictor.prepare(msgspec.structs.replace(each, node_name=""))
        most = max(most, view.pods.kept + view.terms.kept + view.free.kept)
    assert most < 400_000  # of 600,000
    assert feasible(view, come[0].spec, labels=come[0].labels) == []
    assert feasible(view, PodSpec()) == ["n1"]


def test_terms_that_have_not_changed_are_not_gone_through_again() -> None:
    """A single pod may have ten thousand anti-affinity terms that concern every pod of the cluster."""
    everything = LabelSelector()
    many = tuple(PodAffinityTerm(f"example.com/k{n}", everything, namespace_selector=everything) for n in range(2_000))
    fat = pod("fat", "n1", PodSpec(pod_anti_affinity=many), namespace="tenant")
    view = ClusterView(cluster([node("n1"), node("n2")], [fat]))
    prepared = Predictor(view).prepare(pod("new", "", PodSpec()))
    assert prepared.feasible_nodes() == ["n1", "n2"]
    assert calls(prepared.feasible_nodes) < 500
    repelling = PodSpec(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, LabelSelector(Map(app="web"))),))
    mark = view.mark()
    view.place(pod("other", "", repelling), "n2")
    assert prepared.feasible_nodes() == ["n1"]
    view.revert(mark)
    assert prepared.feasible_nodes() == ["n1", "n2"]
    kept = view.terms.kept
    view.place(pod("another", "", repelling), "n2")
    assert view.terms.kept == kept


def _one_off(name: str) -> Pod:
    own = LabelSelector(Map(app=name))
    of = PodSpec(requests=Map(cpu=1), pod_anti_affinity=(PodAffinityTerm(HOSTNAME, own),))
    return pod(name, "n1", of, labels=Map({"app": name, **{f"{name}-{number}": "" for number in range(40)}}))


# Nominated pods


def nominated(name: str, of: PodSpec, on: str) -> Pod:
    return pod(name, "", of, nominated_node_name=on)


def test_a_pod_must_fit_beside_nominated_pods() -> None:
    wanted = PodSpec(requests=Map(cpu=40_000), priority=5)
    for priority, nodes in ((4, ["n1", "n2"]), (5, ["n2"]), (6, ["n2"])):
        preempting = nominated("p", PodSpec(requests=Map(cpu=40_000), priority=priority), "n1")
        view = ClusterView(cluster([node("n1"), node("n2")], [preempting]))
        assert feasible(view, wanted) == nodes
        assert view.mark() == 0


def test_a_nominated_pod_does_not_count_against_itself() -> None:
    of = PodSpec(requests=Map(cpu=40_000))
    preempting, another = nominated("p", of, "n1"), pod("q", "", of)
    predictor = Predictor(ClusterView(cluster([node("n1")], [preempting])))
    assert predictor.prepare(another).feasible_nodes() == []
    assert predictor.prepare(preempting).feasible_nodes() == ["n1"]


def test_a_nominated_pod_counts_for_the_spread_of_its_node_only() -> None:
    of = spec(constraint(HOSTNAME))
    view = ClusterView(cluster([node("n1"), node("n2")], [nominated("p", of, "n1")]))
    assert feasible(view, of) == ["n2"]
    assert feasible(ClusterView(ClusterSnapshot()), of) == []


def test_tallies_follow_every_change_as_if_they_were_counted_anew() -> None:
    random, index, there = Random(1), PodIndex(), Counter[tuple[str, Map[str, str], int, bool]]()
    label_sets = [Map(app=app, **more) for app in ("web", "api") for more in ({}, {"tier": "x"}, {"tier": "y"})]
    no_api = LabelSelector(match_expressions=(LabelSelectorRequirement("app", "NotIn", ("api",)),))
    selectors = [compile_selector(each) for each in (WEB, LabelSelector(Map(tier="x")), LabelSelector(), no_api)]
    for _ in range(1500):
        at = random.choice("abc"), random.choice(label_sets), random.randrange(5)
        before, after = random.choice([((*at, False), (*at, True)), ((*at, True), None), (None, (*at, False))])
        if before is None or there[before]:
            there.update({each: by for each, by in ((before, -1), (after, 1)) if each is not None})
            going = [each is not None and each[-1] for each in (after, before)]
            index.change(*at, present=bool(after) - bool(before), terminating=going[0] - going[1])
        scope, living = random.choice((None, frozenset("a"), frozenset("ab"))), random.random() < 0.5
        wanted, expected = tuple(random.sample(selectors, random.choice((1, 2)))), Counter[int]()
        for (namespace, labels, slot, is_going), number in there.items():
            if (scope is None or namespace in scope) and all(each.matches(labels) for each in wanted):
                expected[slot] += number * (not (living and is_going))
        assert index.tally(scope, wanted, living=living).counts == +expected
