"""The fields of a DeschedulerPolicy of v1alpha2, from descheduler 0.27 to 0.36, as far as they matter here.

Every field is None if it is not set. Deprecated fields are included as long as some version reads them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from respread.api.fields import LabelSelector, expects
from respread.api.policy import WhenUnsatisfiable

GROUP: Final = "descheduler"
EVICTOR: Final = "DefaultEvictor"
SPREAD: Final = "RemovePodsViolatingTopologySpreadConstraint"
CRITICAL_PRIORITY: Final = 2_000_000_000
"""The value of system-cluster-critical. descheduler rejects a higher threshold."""

DefaultProtection = Literal["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"]
ExtraProtection = Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]

Flag = Annotated[bool, Meta(extra=expects("true or false"))]
NotNegative = Annotated[int, Meta(ge=0)]


class PluginSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The plugins of an extension point."""

    enabled: tuple[Any, ...] | None = None
    """Names; descheduler's documentation has objects with a `name` too."""
    disabled: tuple[Any, ...] | None = None


class Plugins(msgspec.Struct, frozen=True, kw_only=True):
    """The extension points, in the order in which they are named in comments."""

    balance: PluginSet | None = None
    deschedule: PluginSet | None = None
    filter: PluginSet | None = None
    pre_eviction_filter: PluginSet | None = msgspec.field(name="preevictionfilter", default=None)
    presort: PluginSet | None = None
    sort: PluginSet | None = None
    evict: PluginSet | None = None
    """Of 0.26; no later version reads it."""


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a plugin."""

    name: str = ""
    args: Any = None


class DeschedulerProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Plugins that run together, with one DefaultEvictor."""

    name: str = ""
    plugin_config: tuple[PluginConfig, ...] | None = None
    plugins: Plugins | None = None


class DeschedulerPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole policy."""

    api_version: str | None = None
    kind: str | None = None
    metadata: Any = None
    profiles: tuple[DeschedulerProfile, ...] | None = None
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: NotNegative | None = None
    max_no_of_pods_to_evict_per_namespace: NotNegative | None = None
    max_no_of_pods_to_evict_total: NotNegative | None = None
    eviction_failure_event_notification: Flag | None = None
    metrics_collector: Any = None
    metrics_providers: Any = None
    tracing: Any = None
    """Only in the chart's values, as a comment; no version reads it from a policy."""
    grace_period_seconds: NotNegative | None = None


class NamespaceLists(msgspec.Struct, frozen=True, kw_only=True):
    """Names of namespaces: one of the two lists."""

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A priority, by a PriorityClass or as a number."""

    name: str | None = None
    value: Annotated[int, Meta(ge=-(2**31), le=CRITICAL_PRIORITY)] | None = None


class _ProtectedStorageClass(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class PodsWithPVCConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which pods with PersistentVolumeClaims are protected."""

    protected_storage_classes: tuple[_ProtectedStorageClass, ...] | None = None


class PodProtectionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Details of protections."""

    pods_with_pvc: PodsWithPVCConfig | None = msgspec.field(name="PodsWithPVC", default=None)


class PodProtections(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which protections hold, besides or without those that hold by default."""

    default_disabled: tuple[DefaultProtection, ...] | None = None
    extra_enabled: tuple[ExtraProtection, ...] | None = None
    config: PodProtectionsConfig | None = None


class DefaultEvictorArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which pods a profile may evict."""

    api_version: str | None = None
    kind: str | None = None
    node_selector: str | None = None
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: Threshold | None = None
    node_fit: Flag | None = None
    min_replicas: NotNegative | None = None
    min_pod_age: str | None = None
    no_eviction_policy: Literal["", "Preferred", "Mandatory"] | None = None
    pod_protections: PodProtections | None = None
    evict_local_storage_pods: Flag | None = None
    evict_daemon_set_pods: Flag | None = None
    evict_system_critical_pods: Flag | None = None
    evict_failed_bare_pods: Flag | None = None
    ignore_pvc_pods: Flag | None = None
    ignore_pods_without_pdb: Flag | None = msgspec.field(name="ignorePodsWithoutPDB", default=None)


class SpreadArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The arguments of RemovePodsViolatingTopologySpreadConstraint."""

    api_version: str | None = None
    kind: str | None = None
    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None
    constraints: tuple[WhenUnsatisfiable, ...] | None = None
    include_soft_constraints: Flag | None = None
    """Before 0.28."""
    topology_balance_node_fit: Flag | None = None
