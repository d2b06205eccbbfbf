"""Workloads, Services, budgets, quotas and namespaces."""

from __future__ import annotations

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.decode.metadata import Timestamp, WireAmounts, WireMetadata, checked_selector, nano_amounts
from respread.cluster.interning import Interning
from respread.cluster.objects import (
    Namespace,
    PodDisruptionBudget,
    QuotaScope,
    ResourceQuota,
    Service,
    UnhealthyPodEvictionPolicy,
    Workload,
)


class _WireRollingUpdate(msgspec.Struct):
    partition: int | None = 0


class _WireUpdateStrategy(msgspec.Struct, rename="camel"):
    rolling_update: _WireRollingUpdate | None = None


class WireWorkloadSpec(msgspec.Struct, rename="camel"):
    """`spec` of a ReplicaSet or StatefulSet, without the template."""

    replicas: int | None = 1
    selector: LabelSelector | None = None
    update_strategy: _WireUpdateStrategy | None = None
    pod_management_policy: str | None = None


class _WireWorkloadStatus(msgspec.Struct, rename="camel"):
    replicas: int = 0
    ready_replicas: int = 0
    observed_generation: int = 0
    current_revision: str = ""
    update_revision: str = ""


class WireWorkload(msgspec.Struct):
    """A ReplicaSet or StatefulSet as the API sends it."""

    metadata: WireMetadata
    spec: WireWorkloadSpec = msgspec.field(default_factory=WireWorkloadSpec)
    status: _WireWorkloadStatus = msgspec.field(default_factory=_WireWorkloadStatus)


class WireReplicationControllerSpec(msgspec.Struct):
    """`spec` of a ReplicationController. Its selector is a plain map."""

    replicas: int | None = 1
    selector: dict[str, str] | None = None


class WireReplicationController(msgspec.Struct):
    """A ReplicationController as the API sends it."""

    metadata: WireMetadata
    spec: WireReplicationControllerSpec = msgspec.field(default_factory=WireReplicationControllerSpec)
    status: _WireWorkloadStatus = msgspec.field(default_factory=_WireWorkloadStatus)


class _WireServiceSpec(msgspec.Struct):
    selector: dict[str, str] | None = None


class WireService(msgspec.Struct):
    """A Service as the API sends it."""

    metadata: WireMetadata
    spec: _WireServiceSpec = msgspec.field(default_factory=_WireServiceSpec)


class _WireBudgetSpec(msgspec.Struct, rename="camel"):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: UnhealthyPodEvictionPolicy | None = None


class _WireBudgetStatus(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, Timestamp] | None = None


class WireBudget(msgspec.Struct):
    """A PodDisruptionBudget as the API sends it."""

    metadata: WireMetadata
    spec: _WireBudgetSpec = msgspec.field(default_factory=_WireBudgetSpec)
    status: _WireBudgetStatus = msgspec.field(default_factory=_WireBudgetStatus)


class _WireScopeSelector(msgspec.Struct, rename="camel"):
    match_expressions: tuple[QuotaScope, ...] | None = ()


class _WireQuotaSpec(msgspec.Struct, rename="camel"):
    hard: WireAmounts | None = None
    scopes: tuple[str, ...] | None = ()
    scope_selector: _WireScopeSelector | None = None


class _WireQuotaStatus(msgspec.Struct):
    hard: WireAmounts | None = None
    used: WireAmounts | None = None


class WireQuota(msgspec.Struct):
    """A ResourceQuota as the API sends it."""

    metadata: WireMetadata
    spec: _WireQuotaSpec = msgspec.field(default_factory=_WireQuotaSpec)
    status: _WireQuotaStatus = msgspec.field(default_factory=_WireQuotaStatus)


class _WireNamespaceStatus(msgspec.Struct):
    phase: str = "Active"


class WireNamespace(msgspec.Struct):
    """A Namespace as the API sends it."""

    metadata: WireMetadata
    status: _WireNamespaceStatus = msgspec.field(default_factory=_WireNamespaceStatus)


def decode_workload(wire: WireWorkload, interning: Interning) -> Workload:
    """Return a ReplicaSet or StatefulSet.

    Raises:
        FieldError: a field holds what the API would not accept.
    """
    strategy = wire.spec.update_strategy
    rolling = None if strategy is None else strategy.rolling_update
    return _workload(
        wire.metadata,
        wire.spec.replicas,
        checked_selector(wire.spec.selector, "spec.selector"),
        wire.status,
        interning,
        partition=0 if rolling is None else rolling.partition or 0,
        is_ordered=wire.spec.pod_management_policy == "OrderedReady",
    )


def decode_replication_controller(wire: WireReplicationController, interning: Interning) -> Workload:
    """Return a ReplicationController, with its selector in the same form as for other workloads."""
    selector = None if wire.spec.selector is None else LabelSelector(Map(wire.spec.selector))
    return _workload(wire.metadata, wire.spec.replicas, selector, wire.status, interning)


def _workload(
    metadata: WireMetadata,
    replicas: int | None,
    selector: LabelSelector | None,
    status: _WireWorkloadStatus,
    interning: Interning,
    partition: int = 0,
    is_ordered: bool = False,
) -> Workload:
    return Workload(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        controller=interning.controller(metadata.owner_references),
        selector=selector,
        replicas=1 if replicas is None else replicas,
        current_replicas=status.replicas,
        ready_replicas=status.ready_replicas,
        generation=metadata.generation,
        observed_generation=status.observed_generation,
        terminating=metadata.deletion_timestamp is not None,
        current_revision=status.current_revision,
        update_revision=status.update_revision,
        partition=partition,
        is_ordered=is_ordered,
    )


def decode_service(wire: WireService, interning: Interning) -> Service:
    """Return a Service."""
    metadata = wire.metadata
    return Service(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        selector=interning.labels(wire.spec.selector),
    )


def decode_budget(wire: WireBudget) -> PodDisruptionBudget:
    """Return a PodDisruptionBudget.

    Raises:
        FieldError: a field holds what the API would not accept.
    """
    metadata, spec, status = wire.metadata, wire.spec, wire.status
    return PodDisruptionBudget(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        selector=checked_selector(spec.selector, "spec.selector"),
        min_available=spec.min_available,
        max_unavailable=spec.max_unavailable,
        unhealthy_pod_eviction_policy=spec.unhealthy_pod_eviction_policy or "IfHealthyBudget",
        generation=metadata.generation,
        observed_generation=status.observed_generation,
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        disrupted_pods=Map(status.disrupted_pods or {}),
    )


def decode_quota(wire: WireQuota) -> ResourceQuota:
    """Return a ResourceQuota.

    Raises:
        FieldError: a value is not a quantity.
    """
    metadata, spec, status = wire.metadata, wire.spec, wire.status
    selected = () if spec.scope_selector is None else spec.scope_selector.match_expressions or ()
    return ResourceQuota(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        scopes=(*map(QuotaScope, spec.scopes or ()), *selected),
        wanted=Map(nano_amounts(spec.hard, "spec.hard")),
        hard=Map(nano_amounts(status.hard, "status.hard")),
        used=Map(nano_amounts(status.used, "status.used")),
    )


def decode_namespace(wire: WireNamespace, interning: Interning) -> Namespace:
    """Return a Namespace."""
    metadata = wire.metadata
    return Namespace(
        name=metadata.name,
        uid=metadata.uid,
        labels=interning.labels(metadata.labels),
        terminating=wire.status.phase == "Terminating" or metadata.deletion_timestamp is not None,
    )
