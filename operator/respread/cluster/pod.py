"""Pods, reduced to what scheduling, spreading and evicting them needs.

A pod is held in two parts: what is its own (`Pod`) and what it shares with every pod of its template (`PodSpec`, one
object for all of them). So 150,000 pods of 5,000 workloads are 150,000 small objects and 5,000 large ones, and whatever
is worked out for a spec is worked out once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from immutables import Map

from respread.api.label_selector import LabelSelector
from respread.cluster.meta import Labels, ObjectKey, OwnerReference
from respread.cluster.volumes import Disk, MigratedVolume

WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]
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


class NodeSelectorRequirement(msgspec.Struct, frozen=True, gc=False):
    """One requirement of a node selector term."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Requirements that must all hold; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class PodAffinityTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One required term of pod affinity or anti-affinity."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration; empty fields are wildcards as in the API."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A port of the node that the pod takes."""

    protocol: str
    port: int
    host_ip: str = "0.0.0.0"  # noqa: S104 - the API's own word for "every address of the node"


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """What pods of one template share. One object per distinct spec: compare with `is`, use `id` as a key."""

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
    """Whether the scheduler deletes pods of lower priority to make room (`preemptionPolicy` other than Never)."""
    has_local_storage: bool = False
    """Whether a volume lives on the node itself (`hostPath`, or `emptyDir` on disk)."""
    local_volumes: tuple[str, ...] = ()
    """The names of these volumes; kept only of pods that have an annotation which says which of them may be lost."""
    shared_claims: tuple[str, ...] = ()
    """PersistentVolumeClaims that every pod of the template uses, by name."""
    stateful_claims: tuple[str, ...] = ()
    """Claims of each pod's own, as a StatefulSet makes them: the name of each is `<this>-<pod>`."""
    ephemeral_volumes: tuple[str, ...] = ()
    """Names of `ephemeral` volumes: the claim of each is `<pod>-<this>`, and has to belong to the pod."""
    disks: tuple[Disk, ...] = ()
    migrated_volumes: tuple[MigratedVolume, ...] = ()
    """Volumes of in-tree plugins written into the pod itself, which count as their CSI driver's."""
    pinned_to_node: bool = False
    """For pods of a DaemonSet that have a node: it is the only one their affinity allows, and is not repeated there."""
    has_resource_claims: bool = False
    has_scheduling_gates: bool = False
    needs_declared_features: bool = False
    """Whether the scheduler takes only nodes that declare a feature (`status.declaredFeatures`) for it."""
    stops_without_grace: bool = False
    """Whether its `terminationGracePeriodSeconds` is 0: deleted as it asks for, it would be gone and still run."""


class Pod(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A pod as it stands."""

    namespace: str
    name: str
    uid: str
    spec: PodSpec
    labels: Labels = Map()
    annotations: Labels = Map()
    """Only those that decide something for Respread."""
    controller: OwnerReference | None = None
    is_mirror: bool = False
    node_name: str = ""
    nominated_node_name: str = ""
    """Where the scheduler made room for the pod by preemption, until it is bound."""
    phase: str = "Pending"
    ready: bool = False
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    start_time: datetime | None = None
    """When the kubelet took it on; kept only where an annotation may count from it."""
    held_requests: Resources | None = None
    """What a pod being resized in place holds on its node, where that is not `spec.requests`."""
    deletion_cost_is_ours: bool = False
    """Whether its pod deletion cost is there by server-side apply of Respread, and of nobody else."""

    @property
    def key(self) -> ObjectKey:
        """The pod's namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def persistent_volume_claims(self) -> tuple[str, ...]:
        """Names of the claims the pod's volumes use, without those of `ephemeral_claims`."""
        spec = self.spec
        return spec.shared_claims + tuple(f"{name}-{self.name}" for name in spec.stateful_claims)

    @property
    def ephemeral_claims(self) -> tuple[str, ...]:
        """Names of the claims made from the pod's `ephemeral` volumes."""
        return tuple(f"{self.name}-{volume}" for volume in self.spec.ephemeral_volumes)

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.deletion_timestamp is not None

    @property
    def finished(self) -> bool:
        """Whether the pod ran to its end: the scheduler does not see it any more."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def requests_on_node(self) -> Resources:
        """What the pod takes of its node's allocatable resources."""
        return self.spec.requests if self.held_requests is None else self.held_requests
