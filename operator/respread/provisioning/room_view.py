"""What the room loop looks at: the last plan, and what it was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from immutables import Map

from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Plan
from respread.provisioning.placeholder import PLACEHOLDER_LABEL, ROOM_CLASS
from respread.spread.index import Spread
from respread.stores.policy_store import Policies


class RoomView(NamedTuple):
    """The last plan and what it was made for."""

    snapshot: ClusterSnapshot
    spread: Spread
    policies: Policies
    priority_classes: Mapping[str, int]
    plan: Plan

    def may_be_left(self, namespace: str | None) -> bool:
        """Return whether earlier leaders may have left objects: they were allowed to create some, or there are pods.

        Neither CapacityBuffers nor Deployments whose pods are refused have pods. To look for them takes a permission
        that only clusters with the room component have.
        """
        by_labels = self.snapshot.pods_by_labels.get(namespace or "", Map())
        return ROOM_CLASS in self.priority_classes or any(PLACEHOLDER_LABEL in labels for labels in by_labels)

    def ready_placeholders(self, namespace: str) -> Counter[str]:
        """Return how many pods of placeholders are Ready, by the ID of the room."""
        ready: Counter[str] = Counter()
        for labels, pods in self.snapshot.pods_by_labels.get(namespace, Map()).items():
            if (id_ := labels.get(PLACEHOLDER_LABEL)) is not None:
                ready[id_] += sum(pod.ready and not pod.terminating for pod in pods.values())
        return ready
