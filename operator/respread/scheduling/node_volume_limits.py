"""NodeVolumeLimits: how many volumes of each CSI driver a node can attach, as its CSINode says.

VolumeAttachments are not looked at: a volume that is still being detached from a node, its pod gone, is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import ClassVar

import msgspec

from respread.cluster.csi_migration import DRIVER_OF_PLUGIN
from respread.cluster.objects import CSINode, PersistentVolumeClaim
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.claims import claims_with_names, class_of, not_found, not_made_for, was_made_for
from respread.scheduling.filters import Filter, RejectsEverywhere
from respread.scheduling.node_sets import NodeSet, node_set, slots_of
from respread.scheduling.node_table import NodeTable
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.volume_usage import AttachedVolumes, VolumeUsage


class _Volume(msgspec.Struct, frozen=True):
    """A volume that a CSI driver may have to attach."""

    driver: str
    handle: str
    migrated: bool = False
    """Whether it is a volume of an in-tree plugin, which is the driver's on nodes that have a CSINode."""
    error: str = ""
    """Why the scheduler fails on a migrated volume."""

    def counts_on(self, csi_node: CSINode | None) -> bool:
        """Tell whether the driver has to attach it; what a CSINode says of single plugins is not asked (1.36)."""
        return not self.migrated or csi_node is not None


class NodeVolumeLimits:
    """The filter, for a pod with claims or volumes of a plugin that may be migrated."""

    __slots__ = ("_limited", "_snapshot", "_table", "_usage", "_volumes")
    plugin: ClassVar[Plugin] = "NodeVolumeLimits"

    def __init__(
        self, table: NodeTable, usage: VolumeUsage, snapshot: ClusterSnapshot, volumes: tuple[_Volume, ...]
    ) -> None:
        self._table = table
        self._usage = usage
        self._snapshot = snapshot
        self._volumes = volumes
        fails = any(volume.error for volume in volumes)
        self._limited = node_set(
            [
                slot
                for name, csi_node in snapshot.csi_nodes.items()
                if (csi_node.volume_limits or fails) and (slot := table.slot_of.get(name)) is not None
            ]
        )

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return those of the nodes that have room for the pod's volumes besides those they have."""
        limited = nodes & self._limited
        if not limited:
            return nodes
        return nodes & ~node_set([slot for slot in slots_of(limited) if self.reject(slot) is not None])

    def reject(self, slot: int) -> Rejection | None:
        """Say which driver's limit would be passed, and what it is."""
        csi_node = self._snapshot.csi_nodes.get(self._table.names[slot])
        wanted: set[tuple[str, str]] = set()
        for volume in self._volumes:
            if volume.counts_on(csi_node):
                if volume.error:
                    return Rejection(self.plugin, volume.error, internal_error=True)
                wanted.add((volume.driver, volume.handle))
        if csi_node is None or not csi_node.volume_limits or not wanted:
            return None
        attached = self._attached(slot, csi_node)
        if attached.error:
            return Rejection(self.plugin, attached.error, internal_error=True)
        for driver, more in Counter(driver for driver, _ in wanted - attached.volumes).items():
            limit = csi_node.volume_limits.get(driver)
            if limit is not None and attached.by_driver[driver] + more > limit:
                return Rejection(
                    self.plugin,
                    f"can attach {limit} volumes of {driver}, has {attached.by_driver[driver]}, the pod needs {more} "
                    "more",
                )
        return None

    def _attached(self, slot: int, csi_node: CSINode) -> AttachedVolumes:
        if (known := self._usage.attached.get(slot)) is None:
            known = self._usage.attached[slot] = _attached(self._snapshot, self._usage.pods(slot), csi_node)
        return known


def _attached(snapshot: ClusterSnapshot, pods: Iterable[Pod], csi_node: CSINode) -> AttachedVolumes:
    volumes: set[tuple[str, str]] = set()
    for pod in pods:
        for name, ephemeral, claim in claims_with_names(snapshot, pod):
            if claim is None:
                continue
            if ephemeral and not was_made_for(claim, pod):
                return AttachedVolumes(frozenset(), Counter(), not_made_for(name, pod))
            volume = _volume_of(snapshot, claim)
            if volume is not None and volume.counts_on(csi_node):
                volumes.add((volume.driver, volume.handle))
        for volume in _inline_volumes(pod):
            if volume.counts_on(csi_node):
                if volume.error:
                    return AttachedVolumes(frozenset(), Counter(), f"{volume.error} (of pod {pod.key})")
                volumes.add((volume.driver, volume.handle))
    return AttachedVolumes(frozenset(volumes), Counter(driver for driver, _ in volumes))


def _volume_of(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> _Volume | None:
    """Return the volume of a claim, or the one its class would make; None if no CSI driver has to do with it."""
    volume = snapshot.persistent_volumes.get(claim.volume_name) if claim.volume_name else None
    if volume is None:
        return _volume_to_be(snapshot, claim)
    if volume.csi_driver and volume.csi_volume_handle:
        return _Volume(volume.csi_driver, volume.csi_volume_handle)
    migrated = volume.migrated
    if migrated is None or migrated.error or not migrated.csi_volume_handle:
        return None
    return _Volume(migrated.csi_driver, migrated.csi_volume_handle, migrated=True)


def _volume_to_be(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> _Volume | None:
    storage_class = class_of(snapshot, claim)
    if storage_class is None or not storage_class.provisioner:
        return None
    handle = f"(to be made for {claim.key})"
    provisioner = storage_class.provisioner
    driver = DRIVER_OF_PLUGIN.get(provisioner)
    return _Volume(provisioner, handle) if driver is None else _Volume(driver, handle, migrated=True)


def _inline_volumes(pod: Pod) -> Iterator[_Volume]:
    for each in pod.spec.migrated_volumes:
        yield _Volume(each.csi_driver, each.csi_volume_handle, migrated=True, error=each.error)


def prepare(table: NodeTable, usage: VolumeUsage, snapshot: ClusterSnapshot, pod: Pod) -> Filter | None:
    """Return the filter for a pod, or None where it has nothing to say."""
    volumes: list[_Volume] = []
    for name, ephemeral, claim in claims_with_names(snapshot, pod):
        if claim is None:
            return RejectsEverywhere(Rejection("NodeVolumeLimits", not_found(name)))
        if ephemeral and not was_made_for(claim, pod):
            return RejectsEverywhere(Rejection("NodeVolumeLimits", not_made_for(name, pod), internal_error=True))
        if (volume := _volume_of(snapshot, claim)) is not None:
            volumes.append(volume)
    volumes.extend(_inline_volumes(pod))
    return NodeVolumeLimits(table, usage, snapshot, tuple(volumes)) if volumes else None
