"""A controller that is a pod short tells of an eviction that nobody remembers."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.planning.replacements import why_incomplete
from tests.unit.eviction_moves import SPEC
from tests.unit.worlds import NOW, cluster, pod


def web(name: str, **fields: Any) -> Pod:
    return pod(name, "node-1", SPEC, **fields)


def wanting(replicas: int, **fields: Any) -> list[Workload]:
    return [Workload(namespace="default", name="web", uid="uid-web", replicas=replicas, **fields)]


PODS = [web("a"), web("b"), web("c")]


@pytest.mark.parametrize(
    ("replicas", "pods", "message"),
    [
        (3, PODS, None),
        (4, PODS, "ReplicaSet web has 3 pods and wants 4: a replacement is still to come"),
        (2, PODS, "ReplicaSet web has 3 pods and wants 2: it is being scaled down"),
        (
            3,
            [*PODS[:2], web("c", deletion_timestamp=NOW)],
            "ReplicaSet web has 2 pods and wants 3: a replacement is still to come",
        ),
        (3, [*PODS, web("d", phase="Failed"), web("e", deletion_timestamp=NOW)], None),
    ],
)
def test_more_or_fewer_pods_than_wanted(replicas: int, pods: list[Pod], message: str | None) -> None:
    held = why_incomplete(cluster([], pods, replicasets=wanting(replicas)), pods)
    assert (held.message if held else None) == message
    assert held is None or held.reason is Reason.IN_MOTION


def test_pods_that_someone_labelled_still_count() -> None:
    labelled = web("c", labels=Map(app="web", debug="yes"))
    pods = [*PODS[:2], labelled]
    assert why_incomplete(cluster([], pods, replicasets=wanting(3)), PODS[:2]) is None


def test_a_controller_that_has_not_caught_up() -> None:
    held = why_incomplete(cluster([], PODS, replicasets=wanting(3, generation=2, observed_generation=1)), PODS)
    assert held is not None
    assert held.message == "ReplicaSet web has changed and its controller has not caught up with that yet"


@pytest.mark.parametrize(
    "controller",
    [
        None,
        OwnerReference("batch/v1", "Job", "web", "uid-web"),
        OwnerReference("apps/v1", "ReplicaSet", "web", "uid-another"),
        OwnerReference("apps/v1", "ReplicaSet", "not-watched", "uid-web"),
    ],
)
def test_what_is_not_known_says_nothing(controller: OwnerReference | None) -> None:
    pods = [web("a", controller=controller)]
    assert why_incomplete(cluster([], pods, replicasets=wanting(3)), pods) is None


def test_stateful_sets_and_replication_controllers_too() -> None:
    for kind, api_version, resource in (
        ("StatefulSet", "apps/v1", "statefulsets"),
        ("ReplicationController", "v1", "replicationcontrollers"),
    ):
        pods = [web("a", controller=OwnerReference(api_version, kind, "web", "uid-web"))]
        held = why_incomplete(cluster([], pods, **{resource: wanting(2)}), pods)
        assert held is not None
        assert held.message.startswith(f"{kind} web has 1 pods and wants 2")
