"""Prevention patches each pod once, only if necessary, and reranks pods only at rest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.decoding import decode_policy
from respread.api.policy import Policy
from respread.cluster.meta import POD_DELETION_COST, OwnerReference
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterState
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.deletion_costs import Patch, Purpose
from respread.prevention.prevention import (
    GATHER_SECONDS,
    PATCHES_AT_ONCE,
    PATCHES_PER_SECOND,
    RERANK_INTERVAL_SECONDS,
    RERANKED_PER_MINUTE,
    REST_SECONDS,
    UNREADY_REST_SECONDS,
    Answered,
    CostPlanner,
    View,
)
from respread.prevention.ranks import Avoided, HeldCost
from respread.spread.index import SpreadIndex
from respread.timing import ClockReading
from tests.worlds import NOW, constraint, node, pod, spec

SPREAD = spec(constraint())


def policy(name: str = "prevents", *, prevents: bool = True, **fields: object) -> Policy:
    given = {"prevention": {"podDeletionCost": "Enabled" if prevents else "Disabled"}, **fields}
    return decode_policy("ClusterRebalancePolicy", {"metadata": {"name": name}, "spec": given})


def web(
    name: str, on: str, cost: int | None = None, *, ours: bool = True, of: PodSpec = SPREAD, **fields: object
) -> Pod:
    annotations = Map() if cost is None else Map({POD_DELETION_COST: str(cost)})
    held = cost is not None and ours
    return pod(name, on, of, annotations=annotations, deletion_cost_is_ours=held, **fields)  # type: ignore[arg-type]  # a Pod's


class Cluster:
    """Three zones with two nodes each, and prevention that observes them."""

    def __init__(self, *pods: Pod, policies: Iterable[Policy] = (policy(),), terminating: bool = False) -> None:
        self.now = 0.0
        self.prevention = CostPlanner(self.now)
        self._state = ClusterState()
        self._state.replace("nodes", [node(f"{zone}{number}", zone) for zone in "abc" for number in (1, 2)])
        self._state.replace("namespaces", [Namespace(name="default", terminating=terminating)])
        self._spread = SpreadIndex()
        self.policies = PolicyIndex(policies)
        self.leaving: frozenset[str] = frozenset()
        self.put(*pods)

    def put(self, *pods: Pod) -> None:
        self._state.apply("pods", [(each.key, each) for each in pods])

    def delete(self, *names: str) -> None:
        self._state.apply("pods", [(each.key, None) for each in self.pods if each.name in names])

    @property
    def pods(self) -> list[Pod]:
        return list(self._state.snapshot.pods.values())

    def look(self, after: float = 0.0) -> list[Avoided]:
        self.now += after
        snapshot = self._state.snapshot
        self.prevention.observe(View(snapshot, self._spread.update(snapshot), self.policies, self.leaving))
        return self.prevention.examine(ClockReading(self.now, (NOW + timedelta(seconds=self.now)).timestamp()))

    def taken(self, after: float = 0.0) -> list[Patch]:
        """Observe, and return the patches that may be sent now, without answering them."""
        self.look(after)
        found = []
        while (patch := self.prevention.take(self.now)) is not None:
            found.append(patch)
        return found

    def carry_out(self, after: float = 0.0) -> list[Patch]:
        """Observe, and make all patches that may be sent now visible."""
        found = self.taken(after)
        for patch in found:
            cost = Map() if patch.cost is None else Map({POD_DELETION_COST: str(patch.cost)})
            self.put(msgspec.structs.replace(patch.pod, annotations=cost, deletion_cost_is_ours=patch.cost is not None))
            held = None if patch.cost is None else HeldCost(patch.cost, ours=True)
            self.prevention.answered(patch, Answered(held, written=held is not None), self.now)
        self.look()
        return found


def names(patches: Iterable[Patch]) -> set[str]:
    return {patch.pod.name for patch in patches}


BARE = (web("web-1", "a1"), web("web-2", "b1"), web("web-3", "c1"))
RANKED = (web("web-1", "a1", -3000), web("web-2", "b1", -2000), web("web-3", "c1", -1000))
LAST_OF_ZONE_GOES_FIRST = (
    web("web-1", "a1", -1000),
    web("web-2", "a2", -2000),
    web("web-3", "b1", -4000),
    web("web-4", "c1", -3000),
)
"""Ranks after a node failure: the first two deletions would empty two zones."""


def test_each_pod_is_patched_once() -> None:
    cluster = Cluster(*BARE)
    patches = cluster.carry_out()
    assert names(patches) == {"web-1", "web-2", "web-3"}
    assert {patch.purpose for patch in patches} == {Purpose.RANK}
    assert len({patch.cost for patch in patches}) == 3
    assert all(patch.cost is not None and patch.cost < 0 for patch in patches)
    assert cluster.carry_out(after=1000) == []


def test_the_youngest_of_equal_pods_is_deleted_first() -> None:
    hours = {"web-1": 2, "web-2": 1, "web-3": 3}
    aged = [web(each.name, each.node_name, creation_timestamp=NOW - timedelta(hours=hours[each.name])) for each in BARE]
    patches = sorted(Cluster(*aged).carry_out(), key=lambda patch: patch.cost or 0)
    assert [patch.pod.name for patch in patches] == ["web-2", "web-1", "web-3"]


def test_a_patch_in_progress_is_not_repeated_however_long_it_takes() -> None:
    cluster = Cluster(*BARE)
    assert len(cluster.taken()) == 3
    assert cluster.taken(after=1000) == []


def test_a_failed_patch_is_decided_again() -> None:
    cluster = Cluster(*BARE)
    (first, *_) = cluster.taken()
    cluster.prevention.answered(first, None, cluster.now)
    assert names(cluster.taken()) == {first.pod.name}


def test_pods_without_a_node_are_waited_for_only_for_a_while() -> None:
    cluster = Cluster(*BARE, web("web-4", ""))
    assert cluster.taken() == []
    assert names(cluster.taken(after=GATHER_SECONDS)) == {"web-1", "web-2", "web-3"}


def test_pods_that_are_being_evicted_are_not_patched() -> None:
    cluster = Cluster(*BARE)
    cluster.leaving = frozenset({BARE[0].uid})
    assert names(cluster.taken()) == {"web-2", "web-3"}


@pytest.mark.parametrize("fields", [{"deletion_timestamp": NOW}, {"phase": "Succeeded"}], ids=str)
def test_pods_that_are_being_deleted_or_have_finished_are_not_patched(fields: dict[str, Any]) -> None:
    cluster = Cluster(*BARE, web("web-4", "a2", **fields))
    assert names(cluster.taken()) == {"web-1", "web-2", "web-3"}


def test_pods_that_a_rollout_deletes_are_not_patched() -> None:
    def of(revision: str, name: str, on: str, age_hours: int) -> Pod:
        owner = OwnerReference("apps/v1", "ReplicaSet", f"web-{revision}", f"uid-{revision}")
        labels = Map({"app": "web", "pod-template-hash": revision})
        created = NOW - timedelta(hours=age_hours)
        return web(name, on, controller=owner, labels=labels, creation_timestamp=created)

    cluster = Cluster(
        of("1", "old-1", "a1", 9), of("1", "old-2", "b1", 9), of("2", "new-1", "c1", 1), of("2", "new-2", "a2", 1)
    )
    assert names(cluster.taken()) == {"new-1", "new-2"}


def test_a_single_pod_needs_no_cost() -> None:
    assert Cluster(BARE[0]).taken() == []


@pytest.mark.parametrize(
    "policies",
    [[], [policy(prevents=False)], [policy(constraints={"topologyKeys": ["kubernetes.io/hostname"]})]],
    ids=["deleted", "disabled", "about other constraints"],
)
def test_without_a_policy_that_enables_prevention_only_respreads_costs_are_removed(policies: list[Policy]) -> None:
    cluster = Cluster(*RANKED, web("web-4", "a2", -5000, ours=False), web("web-5", "b2"), policies=policies)
    patches = cluster.carry_out()
    assert names(patches) == {"web-1", "web-2", "web-3"}
    assert {(patch.purpose, patch.cost) for patch in patches} == {(Purpose.REMOVE, None)}
    assert cluster.carry_out(after=1000) == []


def test_an_invalid_policy_changes_no_costs_and_neither_does_one_of_a_namespace_that_is_being_deleted() -> None:
    cluster = Cluster(*RANKED, web("web-4", "a2"), policies=[policy(quietPeriod="soon")])
    assert cluster.taken(after=1000) == []
    assert Cluster(*RANKED, web("web-4", "a2"), terminating=True).taken(after=1000) == []


def test_orphaned_pods_lose_respreads_costs_and_keep_those_of_others() -> None:
    orphan = web("web-1", "a1", -1000, controller=None)
    other = web("web-2", "a1", -1000, ours=False, controller=None)
    (patch,) = Cluster(orphan, other).taken()
    assert (patch.pod.name, patch.cost, patch.purpose) == ("web-1", None, Purpose.REMOVE)


def test_costs_of_others_are_kept_and_respreads_costs_lie_between_them() -> None:
    cluster = Cluster(*BARE, web("web-4", "a2", -700, ours=False), web("web-5", "b2", 0, ours=False))
    patches = cluster.taken()
    assert names(patches) == {"web-1", "web-2", "web-3"}
    assert all(patch.cost is not None and -700 < patch.cost < 0 for patch in patches)


def test_nothing_is_patched_if_costs_of_others_leave_no_room() -> None:
    assert Cluster(*BARE, web("web-4", "a2", -2, ours=False)).taken(after=1000) == []


def test_a_cost_that_another_writer_overwrites_is_theirs() -> None:
    cluster = Cluster(*RANKED)
    cluster.look()
    cluster.put(web("web-1", "a1", -77, ours=False))
    assert cluster.taken(after=1000) == []
    cluster.policies = PolicyIndex([])
    assert names(cluster.taken()) == {"web-2", "web-3"}


def test_pods_are_reranked_only_at_rest_and_at_most_once_a_minute() -> None:
    cluster = Cluster(*LAST_OF_ZONE_GOES_FIRST)
    assert cluster.carry_out() == []
    assert cluster.carry_out(after=REST_SECONDS - 1) == []
    patches = cluster.carry_out(after=1)
    assert {patch.purpose for patch in patches} == {Purpose.RERANK}
    assert 1 <= len(patches) <= 2
    # The pods are deleted and recreated on other nodes, so that the ranks are bad again.
    cluster.put(*LAST_OF_ZONE_GOES_FIRST)
    assert cluster.carry_out(after=REST_SECONDS) == []
    assert {patch.purpose for patch in cluster.carry_out(after=RERANK_INTERVAL_SECONDS)} == {Purpose.RERANK}


def test_an_unready_pod_delays_reranking() -> None:
    unready = web("web-5", "c2", -9000, ready=False)
    cluster = Cluster(*LAST_OF_ZONE_GOES_FIRST, unready)
    cluster.look()
    assert cluster.taken(after=UNREADY_REST_SECONDS - 1) == []
    assert cluster.taken(after=1)


def test_reranking_is_bounded_for_the_whole_cluster() -> None:
    many = [
        msgspec.structs.replace(
            each,
            name=f"{each.name}-{app}",
            uid=f"{each.uid}-{app}",
            controller=OwnerReference("apps/v1", "ReplicaSet", f"app-{app}", f"uid-app-{app}"),
            labels=Map(app=f"app-{app}"),
            spec=of,
        )
        for app in range(400)
        for of in [spec(constraint(selector={"app": f"app-{app}"}))]
        for each in LAST_OF_ZONE_GOES_FIRST
    ]
    cluster = Cluster(*many)
    cluster.look()
    assert len(cluster.carry_out(after=REST_SECONDS)) == RERANKED_PER_MINUTE
    assert 0 < len(cluster.carry_out(after=20)) <= RERANKED_PER_MINUTE / 3


def test_the_number_of_patches_in_progress_is_limited() -> None:
    many = [
        web(f"web-{number}", "abc"[number % 3] + "1", creation_timestamp=NOW - timedelta(hours=1))
        for number in range(PATCHES_AT_ONCE + 200)
    ]
    cluster = Cluster(*many)
    assert len(cluster.taken()) == PATCHES_AT_ONCE
    assert cluster.prevention.wait_seconds(cluster.now) == pytest.approx(1 / PATCHES_PER_SECOND)
    assert len(cluster.taken(after=2)) == 2 * PATCHES_PER_SECOND


def test_a_namespace_at_rest_is_not_examined_until_its_due_time() -> None:
    cluster = Cluster(*BARE)
    cluster.prevention.rest("default", until=15)
    assert cluster.taken() == []
    assert cluster.prevention.next_examination() == 15
    assert len(cluster.taken(after=15)) == 3


def test_queued_patches_of_a_namespace_are_not_sent_once_it_rests() -> None:
    """Its other ReplicaSets wait too, and are ranked later."""
    other = spec(constraint(selector={"app": "api"}))
    labels, controller = Map(app="api"), OwnerReference("apps/v1", "ReplicaSet", "api", "uid-api")
    api = [web(f"api-{on}", on, of=other, labels=labels, controller=controller) for on in ("a1", "b1", "c1")]
    cluster = Cluster(*BARE, *api)
    cluster.look()
    assert cluster.prevention.waiting == 6
    refused = cluster.prevention.take(cluster.now)
    assert refused is not None
    cluster.prevention.rest("default", until=15)
    cluster.prevention.answered(refused, None, cluster.now)
    assert cluster.prevention.take(cluster.now) is None
    assert cluster.taken(after=14) == []
    assert len(cluster.taken(after=1)) == 6


def test_pods_deleted_otherwise_are_not_a_scale_down() -> None:
    cluster = Cluster(*RANKED)
    cluster.look()
    cluster.look(after=REST_SECONDS)
    cluster.delete("web-3")  # the pod that a scale-down deletes last
    cluster.look()
    assert cluster.look(after=REST_SECONDS) == []
