"""The pods of each workload, whatever controls them: what can be asked about its scale-downs depends on these."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName, workload_of
from respread.prevention.index import ReplicaSetIndex
from respread.prevention.replica_set import ReplicaSetPods, counts
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread


class WorkloadPods(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A workload as it stands, as far as the snapshot shows it: one without pods is not known."""

    name: WorkloadName
    pods: tuple[Pod, ...]
    """Those that are neither being deleted nor finished, bound or not, sorted by name."""
    groups: tuple[SpreadGroup, ...]
    """The spread groups that its pods carry and that count them."""
    replica_sets: tuple[ReplicaSetPods, ...] = ()
    """Those that have such pods, where pod deletion costs decide: more than one while a rollout is going on."""

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
        namespaces: only of these; None for all.
    """
    pods: dict[WorkloadName, list[Pod]] = {}
    for namespace in snapshot.pods_by_labels if namespaces is None else namespaces:
        for names in snapshot.pods_by_labels.get(namespace, {}).values():
            for pod in names.values():
                if not pod.terminating and not pod.finished:
                    pods.setdefault(workload_of(pod), []).append(pod)
    groups: dict[WorkloadName, list[SpreadGroup]] = {}
    for group in spread.groups.values():
        for name in group.workloads:
            groups.setdefault(name, []).append(group)
    index = ReplicaSetIndex()
    index.update(snapshot, spread)
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
