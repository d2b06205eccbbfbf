"""Volumes: the claims of a pod to be placed, and what pods on each node use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from respread.cluster.decode.csi_migration import DRIVER_OF_PLUGIN
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import PersistentVolumeClaim, StorageClass
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.view.free_resources import FreeAmounts
from respread.scheduling.view.node_table import NodeSet, NodeTable, slots_of


def claim_named(snapshot: ClusterSnapshot, pod: Pod, name: str) -> PersistentVolumeClaim | None:
    """Return the claim with this name in the pod's namespace."""
    return snapshot.persistent_volume_claims.get(ObjectKey(pod.namespace, name))


def claims_with_names(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[tuple[str, bool, PersistentVolumeClaim | None]]:
    """Yield each claim of a pod: its name, whether it is for an `ephemeral` volume, and the claim if it exists."""
    for name in pod.persistent_volume_claims:
        yield name, False, claim_named(snapshot, pod, name)
    for name in pod.ephemeral_claims:
        yield name, True, claim_named(snapshot, pod, name)


def was_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether the claim of an `ephemeral` volume belongs to this pod (`ephemeral.VolumeIsForPod`)."""
    return claim.controller is not None and claim.controller.uid == pod.uid


def not_found(name: str) -> str:
    """Return the message for a claim that does not exist."""
    return f"the PersistentVolumeClaim {name} does not exist"


def not_made_for(name: str, pod: Pod) -> str:
    """Return the message for an ephemeral volume whose claim belongs to something else."""
    return f"the PersistentVolumeClaim {name} was not made for pod {pod.key}, which is not its owner"


def class_of(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> StorageClass | None:
    """Return a claim's storage class, if it names an existing one."""
    return snapshot.storage_classes.get(claim.storage_class_name) if claim.storage_class_name else None


def is_bound_by_scheduler(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> bool:
    """Return whether an unbound claim waits for the scheduler to choose a node (WaitForFirstConsumer)."""
    storage_class = class_of(snapshot, claim)
    return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"


class VolumeUsage:
    """Which pods of each node have volumes that a filter uses."""

    def __init__(self) -> None:
        self._pods: dict[int, dict[int, Pod]] = {}
        self.claims: Counter[ObjectKey] = Counter()
        """The number of pods with a node that use each claim, without claims of `ephemeral` volumes."""
        self.changed: set[int] = set()
        """Slots of nodes whose pods have changed, for `Attachments` to process."""

    def take(self, slot: int, pod: Pod, times: int = 1) -> None:
        """Add a pod's volumes on a node, or remove them with -1 times."""
        pods = self._pods.setdefault(slot, {})
        if times > 0:
            pods[id(pod)] = pod
        else:
            del pods[id(pod)]
        if not pods:
            del self._pods[slot]
        self.changed.add(slot)
        for name in pod.persistent_volume_claims:
            claim = ObjectKey(pod.namespace, name)
            self.claims[claim] += times
            if not self.claims[claim]:
                del self.claims[claim]

    def pods(self, slot: int) -> Iterator[Pod]:
        """Yield the pods of a node that have such volumes, by name."""
        yield from sorted(self._pods.get(slot, {}).values(), key=lambda pod: pod.key)

    def slots(self) -> Iterator[int]:
        """Yield the slots of the nodes that have such pods."""
        yield from self._pods


def has_volumes(spec: PodSpec) -> bool:
    """Return whether pods have volumes that a filter uses."""
    return bool(
        spec.shared_claims or spec.stateful_claims or spec.ephemeral_volumes or spec.disks or spec.migrated_volumes
    )


_NO_LIMIT: Final = 1 << 32
_NOTHING_FITS: Final = -1


class AttachableVolume(msgspec.Struct, frozen=True):
    """A volume that a CSI driver may have to attach."""

    driver: str
    handle: str
    error: str = ""
    """Why the scheduler fails on it: it is of an in-tree plugin, and can't be migrated."""


class AttachedVolumes(msgspec.Struct, frozen=True):
    """The volumes that the pods of one node with a limit use together.

    Such a node has a CSINode, so those of in-tree plugins count. The migrated plugins that it lists are not checked
    (1.36).
    """

    limits: Mapping[str, int]
    """By driver."""
    volumes: frozenset[tuple[str, str]] = frozenset()
    """Driver and handle of each volume, once, however many pods use it."""
    by_driver: Counter[str] = msgspec.field(default_factory=Counter)
    error: str = ""
    """Why the scheduler fails on this node when it counts the volumes."""


class Attachments:
    """The volumes attached to every node with a limit, and the remaining room for each driver."""

    def __init__(self, table: NodeTable, usage: VolumeUsage, snapshot: ClusterSnapshot) -> None:
        self._table = table
        self._usage = usage
        self._snapshot = snapshot
        self.with_csi_node = table.named(snapshot.csi_nodes)
        """The nodes that have a CSINode."""
        self._attached: dict[int, AttachedVolumes] = {}
        self._failing: NodeSet = 0
        self._room: dict[str, FreeAmounts] = {}
        usage.changed.update(slots_of(self.with_csi_node))

    def on(self, slot: int) -> AttachedVolumes | None:
        """Return the volumes attached to a node; None if it has no limit."""
        self._catch_up()
        return self._attached.get(slot)

    def failing(self) -> NodeSet:
        """Return the nodes on which the scheduler fails when it counts attached volumes."""
        self._catch_up()
        return self._failing

    def room_for(self, driver: str) -> FreeAmounts:
        """Return how many more volumes of a driver each node can attach; negative if the scheduler can't tell."""
        self._catch_up()
        if (room := self._room.get(driver)) is None:
            room = self._room[driver] = FreeAmounts()
            for slot in range(len(self._table.names)):
                room.free[slot] = self._room_on(slot, driver)
        return room

    def _catch_up(self) -> None:
        """Take over the nodes whose pods have changed."""
        while self._usage.changed:
            slot = self._usage.changed.pop()
            csi_node = self._snapshot.csi_nodes.get(self._table.names[slot])
            if csi_node is None or not csi_node.volume_limits:
                continue
            attached = _attached(self._snapshot, self._usage.pods(slot), csi_node.volume_limits)
            self._attached[slot] = attached
            self._failing = self._failing & ~(1 << slot) | bool(attached.error) << slot
            for driver, room in self._room.items():
                room.change(slot, self._room_on(slot, driver) - room.free[slot])

    def _room_on(self, slot: int, driver: str) -> int:
        attached = self._attached.get(slot)
        if attached is None:
            return _NO_LIMIT
        if attached.error:
            return _NOTHING_FITS
        limit = attached.limits.get(driver)
        return _NO_LIMIT if limit is None else limit - attached.by_driver[driver]


def volume_of(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> AttachableVolume | None:
    """Return the volume of a claim, or the one that its class would provision; None if no CSI driver is involved."""
    volume = snapshot.persistent_volumes.get(claim.volume_name)
    if volume is None:
        return _volume_to_be(snapshot, claim)
    if volume.csi_driver and volume.csi_volume_handle:
        return AttachableVolume(volume.csi_driver, volume.csi_volume_handle)
    migrated = volume.migrated
    if migrated is None or not migrated.csi_volume_handle:  # Without one if it can't be migrated.
        return None
    return AttachableVolume(migrated.csi_driver, migrated.csi_volume_handle)


def inline_volumes(pod: Pod) -> Iterator[AttachableVolume]:
    """Yield the in-tree volumes that a pod spec contains."""
    for each in pod.spec.migrated_volumes:
        yield AttachableVolume(each.csi_driver, each.csi_volume_handle, each.error)


def _volume_to_be(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> AttachableVolume | None:
    storage_class = class_of(snapshot, claim)
    if storage_class is None or not storage_class.provisioner:
        return None
    handle = f"(to be made for {claim.key})"
    provisioner = storage_class.provisioner
    return AttachableVolume(DRIVER_OF_PLUGIN.get(provisioner, provisioner), handle)


def _attached(snapshot: ClusterSnapshot, pods: Iterable[Pod], limits: Mapping[str, int]) -> AttachedVolumes:
    volumes: set[tuple[str, str]] = set()
    for pod in pods:
        for name, ephemeral, claim in claims_with_names(snapshot, pod):
            if claim is None:
                continue
            if ephemeral and not was_made_for(claim, pod):
                return AttachedVolumes(limits, error=not_made_for(name, pod))
            volume = volume_of(snapshot, claim)
            if volume is not None:
                volumes.add((volume.driver, volume.handle))
        for volume in inline_volumes(pod):
            if volume.error:
                return AttachedVolumes(limits, error=f"{volume.error} (of pod {pod.key})")
            volumes.add((volume.driver, volume.handle))
    return AttachedVolumes(limits, frozenset(volumes), Counter(driver for driver, _ in volumes))
