"""Pods that share a controller, and their number."""

from __future__ import annotations

from collections.abc import Iterator

from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot


def siblings_of(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[Pod]:
    """Yield the pods of a snapshot with the same controller as a pod, including itself."""
    in_namespace = snapshot.pods_by_controller.get(pod.namespace)
    if in_namespace is not None and pod.controller is not None:
        yield from in_namespace.get(pod.controller.uid, {}).values()


def is_active(pod: Pod) -> bool:
    """Return whether controllers count a pod among their pods (`IsPodActive`)."""
    return not pod.terminating and not pod.finished


def ordinal_of(pod_name: str) -> int:
    """Return the ordinal at the end of a pod's name, -1 if there is none (`getOrdinal`)."""
    digits = pod_name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def controller_of(snapshot: ClusterSnapshot, pod: Pod) -> Workload | None:
    """Return a pod's controller from a snapshot; None if it was not read, or if another object has its name now."""
    controller = pod.controller
    if controller is None:
        return None
    held = {
        "ReplicaSet": snapshot.replica_sets,
        "StatefulSet": snapshot.stateful_sets,
        "ReplicationController": snapshot.replication_controllers,
    }.get(controller.kind)
    found = None if held is None else held.get(ObjectKey(pod.namespace, controller.name))
    return found if found is not None and found.uid == controller.uid else None


class ActivePods:
    """The number of active pods of the controllers of a snapshot, each counted once and only as far as needed."""

    __slots__ = ("_counts", "_snapshot")

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._counts: dict[tuple[str, int], int] = {}

    def up_to(self, pod: Pod, most: int) -> int:
        """Return the number of active pods of a pod's controller, including itself, or `most` if there are more."""
        if pod.controller is None:
            return 0
        asked = (pod.controller.uid, most)
        if (count := self._counts.get(asked)) is None:
            count = 0
            for sibling in siblings_of(self._snapshot, pod):
                if count == most:
                    break
                count += is_active(sibling)
            self._counts[asked] = count
        return count
