"""Solutions of earlier plans are dropped if something changes that they depend on, and kept otherwise."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import msgspec
import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import ClaimReference, Namespace, PersistentVolume, PersistentVolumeClaim
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.planning.placement import Placement
from respread.planning.planner import Planner
from respread.planning.solution import Finder
from respread.planning.victims.policies import PolicySetting
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS
from respread.spread.index import SpreadIndex
from tests.spreads import spread_of
from tests.unit.planning.test_room_for_all import matching
from tests.worlds import NOW, ZONE, cluster, constraint, node, pod, pods, spec

POLICY: Final = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
LABEL_SETS: Final = 1_400
LABELS: Final = 100
"""Enough labels of pods for a view to be rebuilt after their deletion."""


def pods_of(app: str) -> list[Pod]:
    of = spec(constraint(selector={"app": app}))
    owner = OwnerReference("apps/v1", "ReplicaSet", f"{app}-1", f"uid-{app}")
    hosts = ("a1", "a1", "b1")
    return [pod(f"{app}-{n}", host, of, labels=Map(app=app), controller=owner) for n, host in enumerate(hosts)]


def test_a_rebuilt_view_finds_room_on_the_right_nodes() -> None:
    """It is rebuilt because most of its entries are unused, and has new slots."""
    state, planner, index, of = ClusterState(), Planner(), SpreadIndex(), spec()

    def victims() -> list[str]:
        planned = planner.plan(state.snapshot, index.update(state.snapshot), PolicySetting((POLICY,)), now=NOW)
        return [move.pod.name for move in planned.moves]

    state.replace("namespaces", [Namespace(name="default")])
    narrow = node("c9", "c", pods=1)  # with room for one replacement only
    state.replace("nodes", [narrow])
    victims()
    others = [node("a1", "a"), node("b1", "b"), node("x1", None, pods=2 * LABEL_SETS)]
    state.replace("nodes", [narrow, *others])
    held = [*pods_of("web"), *pods_of("api")]
    state.replace("pods", held)
    assert len(victims()) == 1
    labels = [Map({f"{n}-{m}": "" for m in range(LABELS)}) for n in range(LABEL_SETS)]
    state.replace("pods", [*held, *(pod(f"job-{n}", "x1", of, labels=each) for n, each in enumerate(labels))])
    victims()
    state.replace("pods", held)
    assert len(victims()) == 1


def test_owners_of_pods_are_among_what_solutions_depend_on_where_default_constraints_are() -> None:
    for kinds in (HARD_DEFAULTS, ALL_DEFAULTS):
        for field in ("services", "replica_sets", "stateful_sets", "replication_controllers", "csi_nodes"):
            after = msgspec.structs.replace(ClusterSnapshot(), **{field: Map(another=None)})
            changes = Placement(kinds=kinds).advance(after, ClusterSnapshot())
            assert changes.rules == (kinds == ALL_DEFAULTS or field == "csi_nodes")


def test_a_solution_is_dropped_when_the_volume_of_its_pods_binds_them_to_their_zone() -> None:
    bound: Any = {"uid": "uid-data", "volume_name": "disk", "bind_completed": True, "phase": "Bound"}
    claim = PersistentVolumeClaim(namespace="default", name="data", **bound)
    disk = PersistentVolume(name="disk", phase="Bound", claim=ClaimReference("default", "data"))
    there = pods({"a1": 3}, spec(constraint(), shared_claims=("data",)))
    state = ClusterState(cluster([node("a1", "a"), node("b1", "b")], there, persistentvolumeclaims=[claim]))
    planner, index = Planner(), SpreadIndex()
    for affinity, moves in ((None, 1), (matching(ZONE, "a"), 0)):
        state.replace("persistentvolumes", [msgspec.structs.replace(disk, node_affinity=affinity)])
        plan = planner.plan(state.snapshot, index.update(state.snapshot), PolicySetting((POLICY,)), now=NOW)
        assert len(plan.moves) == moves


def test_solutions_of_groups_that_compete_for_room_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = count(1)
    find = Finder.find
    monkeypatch.setattr(Finder, "find", lambda *given: next(searched) and find(*given))
    snapshot = cluster([node("a1", "a"), node("b1", "b", pods=1)], [each for app in "xyz" for each in pods_of(app)[:2]])
    planner, spread, searches = Planner(), spread_of(snapshot), []
    for _ in range(2):
        planner.plan(snapshot, spread, PolicySetting((POLICY,)), now=NOW)
        searches.append(next(searched))
    assert 3 < searches[0] == searches[1] - 1
