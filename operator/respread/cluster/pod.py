"""Pods, with the fields that scheduling, spreading and evicting need, and the workloads that they belong to.

A pod has two parts: its own fields (`Pod`) and those that it shares with all pods of its template (`PodSpec`, one
object for all of them). So 150,000 pods of 5,000 workloads are 150,000 small objects and 5,000 large ones, and a value
derived from a spec is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import WhenUnsatisfiable
from respread.cluster.meta import Labels, ObjectKey, OwnerReference


class GCEPersistentDisk(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A disk that pods on one node can share only if all of them only read."""

    pd_name: str
    read_only: bool = False


class AWSElasticBlockStore(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A disk that two pods on a node can't share, even if they only read."""

    volume_id: str
    read_only: bool = False


class ISCSIVolume(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A target that pods on one node can share only if all of them only read. Portal and LUN are not compared."""

    iqn: str
    read_only: bool = False


class RBDVolume(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An image (of a pool, under any common monitor) that pods on one node can share only if all of them only read."""

    monitors: tuple[str, ...]
    pool: str
    image: str
    read_only: bool = False


Disk: TypeAlias = GCEPersistentDisk | AWSElasticBlockStore | ISCSIVolume | RBDVolume
"""What VolumeRestrictions compares: a volume in the pod spec, not a claim."""


class MigratedVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume of an in-tree plugin with its identity for the CSI driver that replaced the plugin.

    Mirrors csi-translation-lib for the five plugins whose migration the scheduler supports: AWS EBS, GCE PD, Azure
    Disk, Cinder and Portworx.
    """

    plugin: str
    """As in a CSINode's `migrated_plugins`: `kubernetes.io/aws-ebs`."""
    csi_driver: str
    csi_volume_handle: str = ""
    error: str = ""
    """Why there is no handle. The scheduler does not count such a volume of a claim, and rejects a pod that contains
    it."""


NodeInclusionPolicy = Literal["Honor", "Ignore"]
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

Resources: TypeAlias = Map[str, int]
"""Amounts by resource name: `cpu` in thousandths of a core, all others in whole units (bytes, pieces), rounded up."""


class TopologySpreadConstraint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of `topologySpreadConstraints`, as the API server stores it."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: NodeInclusionPolicy = "Honor"
    node_taints_policy: NodeInclusionPolicy = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class NodeSelectorRequirement(msgspec.Struct, frozen=True, weakref=True):
    """One requirement of a node selector term."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Requirements that must all match. A term without requirements matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Terms, at least one of which must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class PodAffinityTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One required term of pod affinity or anti-affinity."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A toleration; empty fields are wildcards as in the API."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None
    """How long a pod stays on a node with such a NoExecute taint; None for ever. It plays no part in scheduling."""


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A port of the node that the pod uses."""

    protocol: str
    port: int
    host_ip: str = "0.0.0.0"  # noqa: S104 - the API's own word for "every address of the node"


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """The fields that pods of one template share.

    There is one object per distinct spec: compare with `is`, use `id` as a key.
    """

    requests: Resources = Map()
    host_ports: tuple[HostPort, ...] = ()
    node_selector: Labels = Map()
    node_affinity: NodeSelector | None = None
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduler_name: str = "default-scheduler"
    priority: int = 0
    preempts: bool = True
    """Whether the scheduler may preempt pods of lower priority for it (`preemptionPolicy` other than Never)."""
    has_local_storage: bool = False
    """Whether a volume is stored on the node itself (`hostPath`, or `emptyDir` on disk)."""
    local_volumes: tuple[str, ...] = ()
    """The names of these volumes. They are only stored for pods with an annotation that names those that may be
    lost."""
    shared_claims: tuple[str, ...] = ()
    """The names of PersistentVolumeClaims that all pods of the template use."""
    stateful_claims: tuple[str, ...] = ()
    """Claims that a StatefulSet creates for each pod. The name of each is `<this>-<pod>`."""
    ephemeral_volumes: tuple[str, ...] = ()
    """Names of `ephemeral` volumes. The claim of each is `<pod>-<this>`, and must belong to the pod."""
    disks: tuple[Disk, ...] = ()
    migrated_volumes: tuple[MigratedVolume, ...] = ()
    """Volumes of in-tree plugins in the pod spec, which count as those of the CSI driver."""
    pinned_to_node: bool = False
    """For bound pods of a DaemonSet: their affinity allows only their node, which is not stored in the affinity."""
    has_resource_claims: bool = False
    has_scheduling_gates: bool = False
    is_in_scheduling_group: bool = False
    """Whether the scheduler places it together with others (`schedulingGroup` in 1.36, `workloadRef` in 1.35)."""
    needs_declared_features: bool = False
    """Whether the scheduler only accepts nodes that declare a feature for it (`status.declaredFeatures`)."""
    stops_without_grace: bool = False
    """Whether its `terminationGracePeriodSeconds` is 0: if it is deleted like this, it can still run after it is
    gone."""
    priority_class_name: str = ""
    quota_scopes: tuple[str, ...] = ()
    """The scopes of ResourceQuotas that it is in, without PriorityClass."""
    quota_usage: Map[str, int] = Map()
    """What it uses of ResourceQuotas, by their names, in billionths of a unit."""


class Pod(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A pod."""

    namespace: str
    name: str
    uid: str
    spec: PodSpec
    labels: Labels = Map()
    annotations: Labels = Map()
    """Only the annotations that Respread reads."""
    controller: OwnerReference | None = None
    is_mirror: bool = False
    node_name: str = ""
    nominated_node_name: str = ""
    """The node on which the scheduler made room for the pod by preemption, until it is bound."""
    phase: str = "Pending"
    ready: bool = False
    ready_seconds: int | None = None
    """How long after its creation it became Ready; None if it is not Ready, or if that is not known. It may have been
    Ready before."""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    start_time: datetime | None = None
    """When the kubelet accepted it. It is only stored if an annotation may count from it."""
    held_requests: Resources | None = None
    """What a pod with an in-place resize holds on its node, if that differs from `spec.requests`."""
    disruption: str = ""
    """The reason of its condition `DisruptionTarget`; empty if it has none."""
    deletion_cost_is_ours: bool = False
    """Whether Respread set its pod deletion cost by server-side apply, and no other manager owns it."""
    deletion_cost_writer: str = ""
    """The field manager of another client that set its pod deletion cost; empty if there is none, or if unknown."""

    @property
    def key(self) -> ObjectKey:
        """The pod's namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def persistent_volume_claims(self) -> tuple[str, ...]:
        """The names of the claims of the pod's volumes, without those of `ephemeral_claims`."""
        spec = self.spec
        return spec.shared_claims + tuple(f"{name}-{self.name}" for name in spec.stateful_claims)

    @property
    def ephemeral_claims(self) -> tuple[str, ...]:
        """The names of the claims created for the pod's `ephemeral` volumes."""
        return tuple(f"{self.name}-{volume}" for volume in self.spec.ephemeral_volumes)

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.deletion_timestamp is not None

    @property
    def finished(self) -> bool:
        """Whether the pod has finished. The scheduler ignores finished pods."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def requests_on_node(self) -> Resources:
        """What the pod uses of its node's allocatable resources."""
        return self.spec.requests if self.held_requests is None else self.held_requests


_TEMPLATE_HASHES: Final[Mapping[str, str]] = {
    "pod-template-hash": "Deployment",
    "rollouts-pod-template-hash": "Rollout",
}
"""The labels by which the owners of ReplicaSets tell their pods apart, with the owners' kinds."""


class WorkloadName(NamedTuple):
    """A workload's kind, namespace and name, such as `Deployment`, `shop`, `web`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `kind/name`, as kubectl writes it."""
        return f"{self.kind}/{self.name}"


def workload_of(pod: Pod) -> WorkloadName:
    """Return the workload of a pod. A pod without a controller is its own workload.

    The ReplicaSet of a Deployment or Argo Rollout is recognized by its name, which is the owner's name and the pod's
    template hash (`getReplicaSetName` in the deployment controller). So no ReplicaSet needs to be read.
    """
    controller = pod.controller
    if controller is None:
        return WorkloadName("Pod", pod.namespace, pod.name)
    if controller.kind == "ReplicaSet":
        for label, kind in _TEMPLATE_HASHES.items():
            template_hash = pod.labels.get(label)
            owner = controller.name.removesuffix(f"-{template_hash}")
            if template_hash and owner != controller.name:
                return WorkloadName(kind, pod.namespace, owner)
    return WorkloadName(controller.kind, pod.namespace, controller.name)
