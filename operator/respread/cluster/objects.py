"""The other Kubernetes objects, reduced to what Respread reads of them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec
from immutables import Map

from respread.api.label_selector import LabelSelector
from respread.cluster.meta import Labels, ObjectKey, OwnerReference
from respread.cluster.pod import NodeSelector, NodeSelectorTerm

UnhealthyPodEvictionPolicy = Literal["IfHealthyBudget", "AlwaysAllow"]


class NamespacedObject(msgspec.Struct, frozen=True, kw_only=True):
    """What has a namespace, a name and labels."""

    namespace: str
    name: str
    uid: str = ""
    labels: Labels = Map()

    @property
    def key(self) -> ObjectKey:
        """The object's namespace and name."""
        return ObjectKey(self.namespace, self.name)


class ClusterObject(msgspec.Struct, frozen=True, kw_only=True):
    """What has a name and labels, but no namespace."""

    name: str
    uid: str = ""
    labels: Labels = Map()

    @property
    def key(self) -> ObjectKey:
        """The object's name, with an empty namespace."""
        return ObjectKey("", self.name)


class Namespace(ClusterObject, frozen=True, kw_only=True):
    """A namespace; being terminated, nothing new is created in it."""

    terminating: bool = False


class PodDisruptionBudget(NamespacedObject, frozen=True, kw_only=True):
    """A PodDisruptionBudget with the status that the disruption controller last wrote."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: UnhealthyPodEvictionPolicy = "IfHealthyBudget"
    generation: int = 0
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: Map[str, datetime] = Map()


class Workload(NamespacedObject, frozen=True, kw_only=True):
    """A ReplicaSet, StatefulSet or ReplicationController."""

    controller: OwnerReference | None = None
    selector: LabelSelector | None = None
    replicas: int = 1
    """As the spec wants it."""
    generation: int = 0
    observed_generation: int = 0
    current_revision: str = ""
    """StatefulSet only; a pod's own revision is its label `controller-revision-hash`."""
    update_revision: str = ""


class Service(NamespacedObject, frozen=True, kw_only=True):
    """A Service; without a selector it chooses no pods."""

    selector: Labels = Map()


class PersistentVolumeClaim(NamespacedObject, frozen=True, kw_only=True):
    """A claim on a volume; unbound while `volume_name` is empty."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    phase: str = "Pending"


class PersistentVolume(ClusterObject, frozen=True, kw_only=True):
    """A volume and where it can be reached from."""

    node_affinity: NodeSelector | None = None
    storage_class_name: str = ""
    csi_driver: str = ""
    csi_volume_handle: str = ""


class StorageClass(ClusterObject, frozen=True, kw_only=True):
    """A storage class and where it makes volumes."""

    provisioner: str = ""
    volume_binding_mode: Literal["Immediate", "WaitForFirstConsumer"] = "Immediate"
    allowed_topologies: tuple[NodeSelectorTerm, ...] = ()


class CSINode(ClusterObject, frozen=True, kw_only=True):
    """How many volumes of each driver a node takes; a driver without a limit is absent."""

    volume_limits: Map[str, int] = Map()
