"""Pods of workloads with fewer replicas than `victims.minReplicas` are not evicted, by plans and by the last look."""

from __future__ import annotations

import msgspec
import pytest

from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.eviction.owners.reading import ControllerObject, OwnerReading
from respread.eviction.owners.rest_rules import why_too_small
from respread.eviction.tallies import replicas_of
from tests.unit.planning.blocked_plans import blocked, default_policy, plan_of, two_zones
from tests.worlds import NOW, cluster, constraint, pod, spec

WEB = spec(constraint())


def of_workloads(*sizes: int) -> list[Pod]:
    """Return pods on a1 that one constraint counts, of ReplicaSets with these numbers of pods."""
    owners = [OwnerReference("apps/v1", "ReplicaSet", f"web-{number}", f"u-{number}") for number in range(len(sizes))]
    return [
        pod(f"{owner.name}-{number}", "a1", WEB, controller=owner)
        for owner, size in zip(owners, sizes, strict=True)
        for number in range(size)
    ]


def test_the_only_pod_of_a_workload_is_not_evicted_by_default() -> None:
    found = blocked(cluster(two_zones(), of_workloads(1, 1, 1)))
    assert found.reason is Reason.TOO_FEW_REPLICAS
    assert (
        "ReplicaSet web-0 has 1 replica, fewer than the policy's victims.minReplicas of 2; more replicas, or a lower "
        "victims.minReplicas, would allow it"
    ) in found.message


def test_a_pod_of_another_workload_of_the_group_is_evicted_instead() -> None:
    (move,) = plan_of(cluster(two_zones(), of_workloads(1, 2))).moves
    assert move.pod.name.startswith("web-1-")


@pytest.mark.parametrize(("least", "size", "moves"), [(1, 1, 1), (2, 2, 1), (3, 2, 0), (3, 3, 1), (10, 9, 0)])
def test_a_policy_sets_the_minimum_number_of_replicas(least: int, size: int, moves: int) -> None:
    filler = of_workloads(1)[0]
    others = [msgspec.structs.replace(filler, name=f"own-{number}", controller=None) for number in range(2)]
    policy = default_policy(victims=VictimRules(min_replicas=least))
    found = plan_of(cluster(two_zones(), [*others, *of_workloads(size)]), policy)
    assert bool(found.moves) is bool(moves)


def test_terminating_and_finished_pods_are_not_replicas() -> None:
    one, two = of_workloads(2)
    for gone in ({"deletion_timestamp": NOW}, {"phase": "Failed"}):
        there = [one, msgspec.structs.replace(two, **gone), *of_workloads(0, 0, 1), *of_workloads(0, 0, 0, 1)]
        assert plan_of(cluster(two_zones(), there)).moves == ()


@pytest.mark.parametrize(
    ("kind", "in_flight", "replicas"), [("StatefulSet", True, 3), ("StatefulSet", False, 2), ("ReplicaSet", True, 2)]
)
def test_a_terminating_pod_is_a_replica_only_if_we_evicted_it_and_it_comes_back_when_it_is_gone(
    kind: str, in_flight: bool, replicas: int
) -> None:
    owner = OwnerReference("apps/v1", kind, "web", "u")
    leaving, *others = (pod(f"web-{number}", "a1", WEB, controller=owner) for number in range(3))
    there = [msgspec.structs.replace(leaving, deletion_timestamp=NOW), *others]
    uids = {leaving.uid} if in_flight else set()
    assert replicas_of(cluster(two_zones(), there), others[0], uids) == replicas


def test_replicas_that_no_constraint_counts_are_replicas_too() -> None:
    three = of_workloads(1, 1, 1)
    elsewhere = [
        msgspec.structs.replace(each, name=f"{each.name}-plain", labels=each.labels.set("app", "old"), spec=spec())
        for each in three
    ]
    assert len(plan_of(cluster(two_zones(), [*three, *elsewhere])).moves) == 1


def reading(kind: str, replicas: int, deployment_replicas: int | None = None) -> OwnerReading:
    """Return the read controller and its Deployment."""

    def of(name: str, wanted: int) -> ControllerObject:
        return msgspec.convert({"metadata": {"name": name, "uid": "u"}, "spec": {"replicas": wanted}}, ControllerObject)

    above = None if deployment_replicas is None else of("web", deployment_replicas)
    return OwnerReading(kind=kind, controller=of("web-1", replicas), owner=above, owner_kind="Deployment", pods=())


def test_the_last_look_uses_the_desired_replicas_of_the_workload() -> None:
    assert why_too_small(reading("StatefulSet", 2), 2) is None
    held = why_too_small(reading("StatefulSet", 1), 2)
    assert held is not None
    assert held.message.startswith("StatefulSet web-1 has 1 replica, fewer than")
    assert why_too_small(reading("ReplicaSet", 1, deployment_replicas=3), 2) is None
    held = why_too_small(reading("ReplicaSet", 2, deployment_replicas=1), 2)
    assert held is not None
    assert held.message.startswith("Deployment web has 1 replica, fewer than")
    assert why_too_small(reading("StatefulSet", 1), 1) is None
