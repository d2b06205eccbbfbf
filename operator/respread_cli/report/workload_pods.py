"""The pods of each workload with any controller, for questions about its scale-downs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from immutables import Map

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName, workload_of
from respread.prevention.index import ReplicaSetIndex
from respread.prevention.replica_set import ReplicaSetPods, counts
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread


class WorkloadPods(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A workload as the snapshot shows it. A workload without pods is unknown."""

    name: WorkloadName
    pods: tuple[Pod, ...]
    """Pods that are neither being deleted nor finished, bound or not, sorted by name."""
    groups: tuple[SpreadGroup, ...]
    """The spread groups of its pods' constraints that count them."""
    replica_sets: tuple[ReplicaSetPods, ...] = ()
    """The ReplicaSets with such pods, if pod deletion costs decide. There are several while a rollout is in
    progress."""

    @property
    def is_stateful_set(self) -> bool:
        """Whether the pods have ordinals, of which a scale-down deletes the highest."""
        return self.name.kind == "StatefulSet"


def workloads_of(
    snapshot: ClusterSnapshot, spread: Spread, namespaces: Collection[str] | None = None
) -> Mapping[WorkloadName, WorkloadPods]:
    """Return every workload that has pods.

    Args:
        snapshot: the cluster.
        spread: its spread groups.
        namespaces: only these; None for all.
    """
    chosen = snapshot.pods_by_labels
    if namespaces is not None:
        chosen = Map({name: chosen[name] for name in namespaces if name in chosen})
    pods: dict[WorkloadName, list[Pod]] = {}
    groups: dict[WorkloadName, list[SpreadGroup]] = {}
    for namespace, by_labels in chosen.items():
        for names in by_labels.values():
            for pod in names.values():
                if not pod.terminating and not pod.finished:
                    pods.setdefault(workload_of(pod), []).append(pod)
        for group in spread.by_namespace.get(namespace, {}).values():
            for workload in group.workloads:
                groups.setdefault(workload, []).append(group)
    index = ReplicaSetIndex()
    index.update(msgspec.structs.replace(snapshot, pods_by_labels=chosen), spread)
    replica_sets: dict[WorkloadName, tuple[ReplicaSetPods, ...]] = {}
    for each in index.by_uid.values():
        if each.pods:
            replica_sets[each.workload] = (*replica_sets.get(each.workload, ()), each)
    return {
        name: WorkloadPods(
            name=name,
            pods=tuple(sorted(found, key=lambda pod: pod.name)),
            groups=tuple(
                group for group in groups.get(name, ()) if any(counts(group.key, pod.labels) for pod in found)
            ),
            replica_sets=replica_sets.get(name, ()),
        )
        for name, found in pods.items()
    }
