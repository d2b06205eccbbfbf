"""VolumeZone: a volume with zone or region labels can only be used there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import msgspec

from respread.cluster.objects import PersistentVolume
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import Filter, Plugin, Rejection, RejectsEverywhere
from respread.scheduling.view.node_table import NodeSet, NodeTable
from respread.scheduling.view.volumes import claim_named, class_of, is_bound_by_scheduler, not_found

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
_STABLE_KEY_OF: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}
_DELIMITER: Final = "__"


class _Reach(msgspec.Struct, frozen=True):
    """Where a volume can be used according to one of its labels."""

    volume: str
    key: str
    values: tuple[str, ...]


class VolumeZone:
    """The filter, for a pod with such volumes. Nodes without any of the labels can use every volume."""

    __slots__ = ("_reaches", "_table")
    plugin: ClassVar[Plugin] = "VolumeZone"

    def __init__(self, table: NodeTable, reaches: Sequence[_Reach]) -> None:
        self._table = table
        self._reaches = reaches

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that can use all volumes."""
        admitted = nodes
        for reach in self._reaches:
            admitted &= self._reached_from(reach)
        return admitted

    def reject(self, slot: int) -> Rejection | None:
        """Return the first volume that the node can't use."""
        for reach in self._reaches:
            if not self._reached_from(reach) >> slot & 1:
                places = " or ".join(reach.values)
                return Rejection(self.plugin, f"volume {reach.volume} is reached only from {reach.key} {places}")
        return None

    def _reached_from(self, reach: _Reach) -> NodeSet:
        column, stable = self._table.column(reach.key), self._table.column(_STABLE_KEY_OF[reach.key])
        nodes = self._table.every
        for key in _STABLE_KEY_OF:
            nodes &= ~self._table.column(key).present
        for value in reach.values:
            nodes |= column.nodes_with.get(value, 0) | (stable.nodes_with.get(value, 0) & ~column.present)
        return nodes


def prepare(table: NodeTable, snapshot: ClusterSnapshot, pod: Pod) -> Filter | None:
    """Return the filter for a pod, or None if it does not apply. Claims of `ephemeral` volumes are ignored."""
    reaches: list[_Reach] = []
    for name in pod.persistent_volume_claims:
        claim = claim_named(snapshot, pod, name)
        if claim is None:
            return _refusal(not_found(name))
        if claim.volume_name:
            volume = snapshot.persistent_volumes.get(claim.volume_name)
            if volume is None:
                return _refusal(f"the PersistentVolume {claim.volume_name} of claim {name} does not exist")
            reaches.extend(_reaches(volume))
        elif not claim.storage_class_name:
            return _refusal(f"claim {name} has neither a volume nor a storage class")
        elif class_of(snapshot, claim) is None:
            return _refusal(f"the StorageClass {claim.storage_class_name} of claim {name} does not exist")
        elif not is_bound_by_scheduler(snapshot, claim):
            return _refusal(f"claim {name} is not bound to a volume yet")
    return VolumeZone(table, reaches) if reaches else None


def _reaches(volume: PersistentVolume) -> Iterator[_Reach]:
    for key in _STABLE_KEY_OF:
        if (label := volume.labels.get(key)) is not None:
            values = tuple(each.strip() for each in label.split(_DELIMITER))
            if all(values):
                yield _Reach(volume.name, key, values)


def _refusal(message: str) -> RejectsEverywhere:
    return RejectsEverywhere(Rejection("VolumeZone", message))
