"""The pods of each workload, whatever controls them: what can be asked about its scale-downs depends on these."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName, workload_of
from respread.prevention.index import ReplicaSetIndex
from respread.prevention.replica_set import ReplicaSetPods, counts
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread, group_keys_of


class WorkloadPods(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A workload as it stands, as far as the snapshot shows it: one without pods is not known."""

    name: WorkloadName
    pods: tuple[Pod, ...]
    """Those that are neither being deleted nor finished, bound or not, sorted by name."""
    groups: tuple[SpreadGroup, ...]
    """The spread groups that its pods carry and are counted in."""
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
            groups=_groups_of(found, spread),
            replica_sets=replica_sets.get(name, ()),
        )
        for name, found in pods.items()
    }


def _groups_of(pods: Collection[Pod], spread: Spread) -> tuple[SpreadGroup, ...]:
    templates = {(id(pod.spec), pod.labels): pod for pod in pods}
    keys: dict[GroupKey, None] = {}
    for pod in templates.values():
        keys.update((key, None) for key in group_keys_of(pod) if counts(key, pod.labels))
    return tuple(group for key in keys if (group := spread.groups.get(key)) is not None)
