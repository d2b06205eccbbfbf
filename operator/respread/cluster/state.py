"""The cluster as one value: an incremental state of persistent maps, of which a snapshot costs nothing.

Every map is an `immutables.Map` (a hash array mapped trie): a change makes a new map that shares all but a few small
nodes with the old one. A snapshot is therefore the state itself, kept; and what has not changed between two snapshots is
the same object in both, so that whoever derives something from a part may keep it while the part is the same.
"""

from __future__ import annotations

import msgspec
from immutables import Map

from respread.cluster.meta import Labels, ObjectKey
from respread.cluster.node import Node
from respread.cluster.objects import (
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    Service,
    StorageClass,
    Workload,
)
from respread.cluster.pod import Pod

PodsByName = Map[str, Pod]


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cluster at one moment. Nothing in it ever changes."""

    pods: Map[ObjectKey, Pod] = Map()
    pods_by_labels: Map[str, Map[Labels, PodsByName]] = Map()
    """Namespace, then the pods' labels, then the pods' names."""
    pods_by_node: Map[str, Map[ObjectKey, Pod]] = Map()
    """Pods bound to a node of that name, whether or not the node exists, without the finished ones."""
    nodes: Map[str, Node] = Map()
    namespaces: Map[str, Namespace] = Map()
    disruption_budgets: Map[str, Map[str, PodDisruptionBudget]] = Map()
    """Namespace, then name."""
    services: Map[str, Map[str, Service]] = Map()
    replica_sets: Map[ObjectKey, Workload] = Map()
    stateful_sets: Map[ObjectKey, Workload] = Map()
    replication_controllers: Map[ObjectKey, Workload] = Map()
    persistent_volume_claims: Map[ObjectKey, PersistentVolumeClaim] = Map()
    persistent_volumes: Map[str, PersistentVolume] = Map()
    storage_classes: Map[str, StorageClass] = Map()
    csi_nodes: Map[str, CSINode] = Map()
