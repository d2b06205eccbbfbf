"""The name of a pod's workload as users know it."""

from __future__ import annotations

import pytest
from immutables import Map

from respread.cluster.meta import OwnerReference
from respread.cluster.pod import workload_of
from tests.worlds import pod, spec


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("ReplicaSet", "web-6d5f", {"pod-template-hash": "6d5f"}, "Deployment/web"),
        ("ReplicaSet", "web-6d5f", {"rollouts-pod-template-hash": "6d5f"}, "Rollout/web"),
        ("ReplicaSet", "web-6d5f", {"rollouts-pod-template-hash": "7e00"}, "ReplicaSet/web-6d5f"),
        ("ReplicaSet", "web-", {"pod-template-hash": ""}, "ReplicaSet/web-"),
        ("ReplicaSet", "web-6d5f", {}, "ReplicaSet/web-6d5f"),
        ("StatefulSet", "web-6d5f", {"pod-template-hash": "6d5f"}, "StatefulSet/web-6d5f"),
        ("CloneSet", "web", {}, "CloneSet/web"),
    ],
)
def test_a_replica_set_with_a_template_hash_belongs_to_a_deployment(
    kind: str, name: str, labels: dict[str, str], expected: str
) -> None:
    controller = OwnerReference("apps/v1", kind, name, "uid")
    found = workload_of(pod("web-1", "node-1", spec(), labels=Map(labels), controller=controller))
    assert str(found) == expected
