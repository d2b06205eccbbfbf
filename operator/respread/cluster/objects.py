"""The other Kubernetes objects, with the fields that Respread reads; and what is known of those it can't decode."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import Labels, ObjectKey, OwnerReference
from respread.cluster.pod import MigratedVolume, NodeSelector, NodeSelectorTerm, Pod, PodSpec, Resources, TaintEffect


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: str
    effect: TaintEffect
    value: str = ""

    def __str__(self) -> str:
        """Return it as in `kubectl taint`: key, value if there is one, and effect."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


UnhealthyPodEvictionPolicy = Literal["IfHealthyBudget", "AlwaysAllow"]


class NamespacedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object with a namespace, a name and labels."""

    namespace: str
    name: str
    uid: str = ""
    labels: Labels = Map()

    @property
    def key(self) -> ObjectKey:
        """The object's namespace and name."""
        return ObjectKey(self.namespace, self.name)


class ClusterObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object with a name and labels, but without a namespace."""

    name: str
    uid: str = ""
    labels: Labels = Map()

    @property
    def key(self) -> ObjectKey:
        """The object's name, with an empty namespace."""
        return ObjectKey("", self.name)


class Node(ClusterObject, frozen=True, kw_only=True, weakref=True):
    """A node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Resources = Map()
    """`pods` is the number of pods that the node accepts."""


class Namespace(ClusterObject, frozen=True, kw_only=True):
    """A namespace. While it is terminating, nothing new is created in it."""

    terminating: bool = False


class PodDisruptionBudget(NamespacedObject, frozen=True, kw_only=True):
    """A PodDisruptionBudget with the last status from the disruption controller."""

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
    """`spec.replicas`."""
    current_replicas: int = 0
    """The number of pods in the status."""
    ready_replicas: int = 0
    generation: int = 0
    observed_generation: int = 0
    terminating: bool = False
    current_revision: str = ""
    """For StatefulSets only. A pod's own revision is its label `controller-revision-hash`."""
    update_revision: str = ""
    partition: int = 0
    """For StatefulSets only: pods of a lower ordinal stay at the current revision, and are created at it again."""
    is_ordered: bool = False
    """Whether it is a StatefulSet that creates its pods one by one, in order (OrderedReady)."""


class QuotaScope(msgspec.Struct, frozen=True, rename="camel"):
    """A condition under which a ResourceQuota counts a pod."""

    scope_name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def includes(self, pod: PodSpec) -> bool:
        """Return whether a pod meets it (`podMatchesScopeFunc`)."""
        if self.scope_name != "PriorityClass":
            return self.scope_name in pod.quota_scopes
        name = pod.priority_class_name
        match self.operator:
            case "In":
                return name in self.values
            case "NotIn":
                return name not in self.values
            case "DoesNotExist":
                return not name
            case _:
                return bool(name)


class ResourceQuota(NamespacedObject, frozen=True, kw_only=True):
    """A ResourceQuota. Amounts are in billionths of a unit."""

    scopes: tuple[QuotaScope, ...] = ()
    """Of `scopes` and `scopeSelector`."""
    wanted: Map[str, int] = Map()
    """`spec.hard`."""
    hard: Map[str, int] = Map()
    """`status.hard`, by which admission decides."""
    used: Map[str, int] = Map()

    def counts(self, pod: PodSpec) -> bool:
        """Return whether it counts a pod of its namespace."""
        return all(scope.includes(pod) for scope in self.scopes)

    def left(self, resource: str, returned: int) -> int:
        """Return how much of a resource pods may take by its status, once they have returned so much."""
        return self.hard[resource] - self.used.get(resource, 0) + returned


class Service(NamespacedObject, frozen=True, kw_only=True):
    """A Service. Without a selector, it selects no pods."""

    selector: Labels = Map()


class PersistentVolumeClaim(NamespacedObject, frozen=True, kw_only=True):
    """A claim for a volume. It is bound if it has a `volume_name` and `bind_completed`."""

    controller: OwnerReference | None = None
    """The pod, if the claim was created for an `ephemeral` volume."""
    volume_name: str = ""
    bind_completed: bool = False
    selected_node: str = ""
    """The node on which the scheduler wants the volume to be provisioned (`volume.kubernetes.io/selected-node`)."""
    storage_class_name: str | None = None
    """From the beta annotation if that is still used. None means the default class, "" means none."""
    access_modes: tuple[str, ...] = ()
    requested_bytes: int = 0
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    selector: LabelSelector | None = None
    phase: str = "Pending"
    terminating: bool = False

    @property
    def bound(self) -> bool:
        """Whether claim and volume are permanently bound to each other."""
        return bool(self.volume_name) and self.bind_completed


class ClaimReference(msgspec.Struct, frozen=True, gc=False):
    """The claim that a volume is bound to or reserved for. Without a uid, any claim of that name."""

    namespace: str
    name: str
    uid: str = ""


class PersistentVolume(ClusterObject, frozen=True, kw_only=True):
    """A volume, and the nodes that can use it."""

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
    """For a volume of an in-tree plugin, its identity for the CSI driver."""
    migrated_node_affinity: NodeSelector | None = None
    """The node affinity with the CSI driver's topology keys, for nodes where the driver replaced the plugin."""


class StorageClass(ClusterObject, frozen=True, kw_only=True):
    """A storage class, and where it can provision volumes."""

    provisioner: str = ""
    volume_binding_mode: Literal["Immediate", "WaitForFirstConsumer"] = "Immediate"
    allowed_topologies: tuple[NodeSelectorTerm, ...] = ()
    """If there are any, one of them must match. A term without requirements never matches."""


class CSINode(ClusterObject, frozen=True, kw_only=True):
    """The CSI drivers of a node, and how many volumes of each it can attach."""

    drivers: frozenset[str] = frozenset()
    volume_limits: Map[str, int] = Map()
    """A driver without a limit is absent."""
    migrated_plugins: frozenset[str] = frozenset()
    """In-tree plugins whose volumes the node handles by CSI drivers
    (`storage.alpha.kubernetes.io/migrated-plugins`)."""


class Unread(msgspec.Struct, frozen=True):
    """An object that could not be decoded in full."""

    fault: str
    """The object and what is wrong with it, in one line."""
    node_name: str | None = ""
    """For a pod: the node on which it uses more than is known. Empty: none. None: any node, because its node can't be
    decoded, or because it may have an anti-affinity that can't be decoded."""
    labels_read: bool = True
    """Whether its labels are known."""


class Outline(msgspec.Struct, frozen=True):
    """The parts that could be decoded."""

    unread: Unread
    known: Pod | Node | None = None
    """The object with the known parts; None if there are too few."""


ReadingError: TypeAlias = msgspec.DecodeError | UnicodeDecodeError | RecursionError
READING_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises if a document does not have the expected form."""


class FieldError(ValueError):
    """The API would reject the content of a field.

    Args:
        path: the field, such as `spec.containers[0].resources.requests[cpu]`; empty for the object as a whole.
        message: what is wrong, without the path.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message

    def within(self, field: str) -> FieldError:
        """Return the error with a path relative to the object that contains this field."""
        return FieldError(f"{field}.{self.path}" if self.path else field, self.message)


class DecodeError(ValueError):
    """An object that was left out because it can't be decoded.

    Args:
        resource: plural name of the resource, such as `pods`.
        namespace: of the object; empty if it has none or it is unknown.
        name: of the object; empty if it is unknown.
        path: the invalid field, as in `FieldError`.
        message: what is wrong with it.
        outline: the parts that could be decoded.
    """

    def __init__(
        self, resource: str, namespace: str, name: str, path: str, message: str, outline: Outline | None = None
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.name = name
        self.path = path
        self.message = message
        self.outline = outline
        super().__init__(resource, namespace, name, path, message)

    @property
    def key(self) -> ObjectKey:
        """The key of the object."""
        return ObjectKey(self.namespace, self.name)

    def __str__(self) -> str:
        """Return one line with resource, object, field and fault."""
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        where = f"{self.resource} {key or '(without a name)'}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


def field_error_of(error: ReadingError) -> FieldError:
    """Return msgspec's error about a document as a `FieldError`, with the path separated."""
    if isinstance(error, UnicodeDecodeError):
        return FieldError("", f"it is not UTF-8: {error.reason}")
    if isinstance(error, RecursionError):
        return FieldError("", "it is nested too deeply")
    message, at, path = str(error).rpartition(" - at `")
    if not at:
        return FieldError("", str(error))
    return FieldError(path.rstrip("`").removeprefix("$").removeprefix("."), message)
