"""Storage: claims, volumes, classes, and the limits of a node's CSI drivers."""

from __future__ import annotations

from typing import Literal

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.decode.csi_migration import InTreeSources, migrated, migrated_node_affinity
from respread.cluster.decode.metadata import WireAmounts, WireMetadata, checked_selector, nano_amounts
from respread.cluster.interning import Interning
from respread.cluster.meta import BIND_COMPLETED, MIGRATED_PLUGINS, SELECTED_NODE, STORAGE_CLASS
from respread.cluster.objects import ClaimReference, CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from respread.cluster.quantity import NANO_PER_UNIT, round_away_from_zero


class _WireClaimResources(msgspec.Struct):
    requests: WireAmounts | None = None


class _WireClaimSpec(msgspec.Struct, rename="camel"):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    resources: _WireClaimResources | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None


class _WirePhase(msgspec.Struct):
    phase: str = "Pending"


class WireClaim(msgspec.Struct):
    """A PersistentVolumeClaim as the API sends it."""

    metadata: WireMetadata
    spec: _WireClaimSpec = msgspec.field(default_factory=_WireClaimSpec)
    status: _WirePhase = msgspec.field(default_factory=_WirePhase)


class _WireCSISource(msgspec.Struct, rename="camel"):
    driver: str = ""
    volume_handle: str = ""


class _WireVolumeNodeAffinity(msgspec.Struct):
    required: NodeSelector | None = None


class _WirePersistentVolumeSpec(InTreeSources, rename="camel"):
    node_affinity: _WireVolumeNodeAffinity | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] | None = None
    capacity: WireAmounts | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    csi: _WireCSISource | None = None


class WirePersistentVolume(msgspec.Struct):
    """A PersistentVolume as the API sends it."""

    metadata: WireMetadata
    spec: _WirePersistentVolumeSpec = msgspec.field(default_factory=_WirePersistentVolumeSpec)
    status: _WirePhase = msgspec.field(default_factory=_WirePhase)


class WireTopologyRequirement(msgspec.Struct):
    """An entry of `matchLabelExpressions`. The node must have one of the values."""

    key: str = ""
    values: tuple[str, ...] = ()


class _WireTopologyTerm(msgspec.Struct, rename="camel"):
    match_label_expressions: list[WireTopologyRequirement] | None = None


class WireStorageClass(msgspec.Struct, rename="camel"):
    """A StorageClass as the API sends it."""

    metadata: WireMetadata
    provisioner: str = ""
    volume_binding_mode: Literal["Immediate", "WaitForFirstConsumer"] | None = None
    allowed_topologies: list[_WireTopologyTerm] | None = None


class _WireVolumeLimit(msgspec.Struct):
    count: int | None = None


class _WireDriver(msgspec.Struct):
    name: str = ""
    allocatable: _WireVolumeLimit | None = None


class _WireCSINodeSpec(msgspec.Struct):
    drivers: list[_WireDriver] | None = None


class WireCSINode(msgspec.Struct):
    """A CSINode as the API sends it."""

    metadata: WireMetadata
    spec: _WireCSINodeSpec = msgspec.field(default_factory=_WireCSINodeSpec)


def decode_claim(wire: WireClaim, interning: Interning) -> PersistentVolumeClaim:
    """Return a PersistentVolumeClaim.

    Raises:
        FieldError: a field holds what the API would not accept.
    """
    metadata, spec = wire.metadata, wire.spec
    annotations = metadata.annotations or {}
    return PersistentVolumeClaim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        controller=interning.controller(metadata.owner_references),
        volume_name=spec.volume_name,
        bind_completed=BIND_COMPLETED in annotations,
        selected_node=annotations.get(SELECTED_NODE, ""),
        storage_class_name=annotations.get(STORAGE_CLASS, spec.storage_class_name),
        access_modes=spec.access_modes or (),
        requested_bytes=_storage_bytes(
            None if spec.resources is None else spec.resources.requests, "spec.resources.requests"
        ),
        volume_mode=spec.volume_mode or "Filesystem",
        volume_attributes_class_name=spec.volume_attributes_class_name or "",
        selector=checked_selector(spec.selector, "spec.selector"),
        phase=wire.status.phase,
        terminating=metadata.deletion_timestamp is not None,
    )


def decode_persistent_volume(wire: WirePersistentVolume, interning: Interning) -> PersistentVolume:
    """Return a PersistentVolume.

    Raises:
        FieldError: a field holds what the API would not accept.
    """
    metadata, spec = wire.metadata, wire.spec
    labels = interning.labels(metadata.labels)
    affinity = None if spec.node_affinity is None else spec.node_affinity.required
    migrated_volume = migrated(spec, labels)
    return PersistentVolume(
        name=metadata.name,
        uid=metadata.uid,
        labels=labels,
        node_affinity=affinity,
        storage_class_name=(metadata.annotations or {}).get(STORAGE_CLASS, spec.storage_class_name),
        access_modes=spec.access_modes or (),
        capacity_bytes=_storage_bytes(spec.capacity, "spec.capacity"),
        volume_mode=spec.volume_mode or "Filesystem",
        volume_attributes_class_name=spec.volume_attributes_class_name or "",
        claim=spec.claim_ref,
        phase=wire.status.phase,
        terminating=metadata.deletion_timestamp is not None,
        csi_driver="" if spec.csi is None else spec.csi.driver,
        csi_volume_handle="" if spec.csi is None else spec.csi.volume_handle,
        migrated=migrated_volume,
        migrated_node_affinity=(
            None if migrated_volume is None else migrated_node_affinity(migrated_volume.plugin, affinity, labels)
        ),
    )


def _storage_bytes(amounts: WireAmounts | None, path: str) -> int:
    return round_away_from_zero(nano_amounts(amounts, path).get("storage", 0), NANO_PER_UNIT)


def decode_storage_class(wire: WireStorageClass, interning: Interning) -> StorageClass:
    """Return a StorageClass."""
    return StorageClass(
        name=wire.metadata.name,
        uid=wire.metadata.uid,
        labels=interning.labels(wire.metadata.labels),
        provisioner=wire.provisioner,
        volume_binding_mode=wire.volume_binding_mode or "Immediate",
        allowed_topologies=tuple(
            NodeSelectorTerm(
                tuple(
                    NodeSelectorRequirement(each.key, "In", each.values) for each in term.match_label_expressions or ()
                )
            )
            for term in wire.allowed_topologies or ()
        ),
    )


def decode_csi_node(wire: WireCSINode, interning: Interning) -> CSINode:
    """Return a CSINode."""
    drivers = wire.spec.drivers or []
    plugins = (wire.metadata.annotations or {}).get(MIGRATED_PLUGINS, "")
    return CSINode(
        name=wire.metadata.name,
        uid=wire.metadata.uid,
        labels=interning.labels(wire.metadata.labels),
        drivers=frozenset(each.name for each in drivers),
        volume_limits=Map(
            {
                each.name: each.allocatable.count
                for each in drivers
                if each.allocatable is not None and each.allocatable.count is not None
            }
        ),
        migrated_plugins=frozenset(plugins.split(",")) - {""},
    )
