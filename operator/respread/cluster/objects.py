"""The other Kubernetes objects, reduced to what Respread reads of them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec
from immutables import Map

from respread.api.label_selector import LabelSelector
from respread.cluster.meta import Labels, ObjectKey, OwnerReference
from respread.cluster.pod import NodeSelector, NodeSelectorTerm
from respread.cluster.volumes import MigratedVolume

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
    current_replicas: int = 0
    """Pods there are, as the status says."""
    ready_replicas: int = 0
    generation: int = 0
    observed_generation: int = 0
    terminating: bool = False
    current_revision: str = ""
    """StatefulSet only; a pod's own revision is its label `controller-revision-hash`."""
    update_revision: str = ""
    partition: int = 0
    """StatefulSet only: pods of a lower ordinal stay at, and are made anew from, the current revision."""


class Service(NamespacedObject, frozen=True, kw_only=True):
    """A Service; without a selector it chooses no pods."""

    selector: Labels = Map()


class PersistentVolumeClaim(NamespacedObject, frozen=True, kw_only=True):
    """A claim on a volume; bound once it has a `volume_name` and `bind_completed`."""

    controller: OwnerReference | None = None
    """The pod, where the claim was made from an `ephemeral` volume."""
    volume_name: str = ""
    bind_completed: bool = False
    selected_node: str = ""
    """Where the scheduler wants the volume provisioned (`volume.kubernetes.io/selected-node`)."""
    storage_class_name: str | None = None
    """From the beta annotation where that is still used; None asks for the default class, "" for none."""
    access_modes: tuple[str, ...] = ()
    requested_bytes: int = 0
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    selector: LabelSelector | None = None
    phase: str = "Pending"
    terminating: bool = False

    @property
    def bound(self) -> bool:
        """Whether claim and volume are bound to each other for good."""
        return bool(self.volume_name) and self.bind_completed


class ClaimReference(msgspec.Struct, frozen=True, gc=False):
    """The claim a volume is bound to or reserved for; without a uid, any claim of that name."""

    namespace: str
    name: str
    uid: str = ""


class PersistentVolume(ClusterObject, frozen=True, kw_only=True):
    """A volume and where it can be reached from."""

    node_affinity: NodeSelector | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    capacity_bytes: int = 0
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    claim: ClaimReference | None = None
    phase: str = "Pending"
    terminating: bool = False
    csi_driver: str = ""
    csi_volume_handle: str = ""
    migrated: MigratedVolume | None = None
    """For a volume of an in-tree plugin, what its CSI driver knows it as."""
    migrated_node_affinity: NodeSelector | None = None
    """The node affinity where the node's CSI driver took the plugin over, in the driver's topology keys."""


class StorageClass(ClusterObject, frozen=True, kw_only=True):
    """A storage class and where it makes volumes."""

    provisioner: str = ""
    volume_binding_mode: Literal["Immediate", "WaitForFirstConsumer"] = "Immediate"
    allowed_topologies: tuple[NodeSelectorTerm, ...] = ()
    """One of them must hold, where there are any; a term without requirements never does."""


class CSINode(ClusterObject, frozen=True, kw_only=True):
    """Which CSI drivers a node has, and how many volumes of each it takes."""

    drivers: frozenset[str] = frozenset()
    volume_limits: Map[str, int] = Map()
    """A driver without a limit is absent."""
    migrated_plugins: frozenset[str] = frozenset()
    """In-tree plugins whose volumes the node leaves to CSI drivers (`storage.alpha.kubernetes.io/migrated-plugins`)."""
