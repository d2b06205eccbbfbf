"""VolumeRestrictions: disks that can be used only once per node, and claims that only one pod may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from respread.cluster.meta import ObjectKey
from respread.cluster.pod import AWSElasticBlockStore, Disk, GCEPersistentDisk, ISCSIVolume, Pod, RBDVolume
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import Filter, Plugin, Rejection, rejects_everywhere
from respread.scheduling.view.node_table import NodeSet, node_set
from respread.scheduling.view.volumes import VolumeUsage, claim_named, not_found


class VolumeRestrictions:
    """The filter, for a pod that has such disks or claims."""

    __slots__ = ("_disks", "_exclusive_claims", "_usage")
    plugin: ClassVar[Plugin] = "VolumeRestrictions"

    def __init__(self, usage: VolumeUsage, disks: Sequence[Disk], exclusive_claims: Sequence[ObjectKey]) -> None:
        self._usage = usage
        self._disks = disks
        self._exclusive_claims = exclusive_claims

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return no node while a claim is in use, else the nodes among these where no disk is in use."""
        if self._claims_in_use():
            return 0
        if not self._disks:
            return nodes
        return nodes & ~node_set([slot for slot in self._usage.slots() if self._holder(slot) is not None])

    def reject(self, slot: int) -> Rejection | None:
        """Return which pod uses the disk, or which claim is in use."""
        holder = self._holder(slot)
        if holder is not None:
            return Rejection(self.plugin, f"pod {holder.key} on the node has a disk that the pod wants too")
        if in_use := self._claims_in_use():
            return Rejection(
                self.plugin,
                f"another pod uses the claim {in_use[0]}, which only one pod at a time may (ReadWriteOncePod)",
            )
        return None

    def _claims_in_use(self) -> list[ObjectKey]:
        return [claim for claim in self._exclusive_claims if self._usage.claims[claim]]

    def _holder(self, slot: int) -> Pod | None:
        for pod in self._usage.pods(slot):
            if any(disks_conflict(disk, other) for disk in self._disks for other in pod.spec.disks):
                return pod
        return None


def disks_conflict(one: Disk, other: Disk) -> bool:
    """Return whether two pods on a node conflict because they use the same disk and one of them writes to it.

    An EBS volume can't even be shared by readers (`isVolumeConflict`).
    """
    match one, other:
        case GCEPersistentDisk(), GCEPersistentDisk():
            same = one.pd_name == other.pd_name
        case AWSElasticBlockStore(), AWSElasticBlockStore():
            return one.volume_id == other.volume_id
        case ISCSIVolume(), ISCSIVolume():
            same = one.iqn == other.iqn
        case RBDVolume(), RBDVolume():
            same = one.pool == other.pool and one.image == other.image and bool({*one.monitors} & {*other.monitors})
        case _:
            return False
    return same and not (one.read_only and other.read_only)


def prepare(usage: VolumeUsage, snapshot: ClusterSnapshot, pod: Pod) -> Filter | None:
    """Return the filter for a pod, or None if it does not apply."""
    exclusive: list[ObjectKey] = []
    for name in pod.persistent_volume_claims:
        claim = claim_named(snapshot, pod, name)
        if claim is None:
            return rejects_everywhere("VolumeRestrictions", not_found(name))
        if "ReadWriteOncePod" in claim.access_modes:
            exclusive.append(claim.key)
    if not exclusive and not pod.spec.disks:
        return None
    return VolumeRestrictions(usage, pod.spec.disks, exclusive)
