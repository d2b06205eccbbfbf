"""VolumeZone: a volume with zone or region labels can only be used there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from operator import and_
from typing import Final

import msgspec

from respread.cluster.objects import PersistentVolume
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import FixedFilter, rejects_everywhere
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


def prepare(table: NodeTable, snapshot: ClusterSnapshot, pod: Pod) -> FixedFilter | None:
    """Return the filter for a pod, or None if it does not apply. Claims of `ephemeral` volumes are ignored."""
    refusal = partial(rejects_everywhere, "VolumeZone")
    reaches: list[_Reach] = []
    for name in pod.persistent_volume_claims:
        claim = claim_named(snapshot, pod, name)
        if claim is None:
            return refusal(not_found(name))
        if claim.volume_name:
            volume = snapshot.persistent_volumes.get(claim.volume_name)
            if volume is None:
                return refusal(f"the PersistentVolume {claim.volume_name} of claim {name} does not exist")
            reaches.extend(_reaches(volume))
        elif not claim.storage_class_name:
            return refusal(f"claim {name} has neither a volume nor a storage class")
        elif class_of(snapshot, claim) is None:
            return refusal(f"the StorageClass {claim.storage_class_name} of claim {name} does not exist")
        elif not is_bound_by_scheduler(snapshot, claim):
            return refusal(f"claim {name} is not bound to a volume yet")
    return _reaching_all(table, reaches) if reaches else None


def _reaching_all(table: NodeTable, reaches: Iterable[_Reach]) -> FixedFilter:
    reached = [(_reached_from(table, each), each) for each in reaches]

    def why(slot: int) -> str:
        first = next(each for nodes, each in reached if not nodes >> slot & 1)
        return f"volume {first.volume} is reached only from {first.key} {' or '.join(first.values)}"

    return FixedFilter("VolumeZone", reduce(and_, (nodes for nodes, _ in reached)), why)


def _reached_from(table: NodeTable, reach: _Reach) -> NodeSet:
    """Return the nodes that can use a volume; those without any of the labels can use every one."""
    column, stable = table.column(reach.key), table.column(_STABLE_KEY_OF[reach.key])
    nodes = table.every
    for key in _STABLE_KEY_OF:
        nodes &= ~table.column(key).present
    for value in reach.values:
        nodes |= column.nodes_with.get(value, 0) | (stable.nodes_with.get(value, 0) & ~column.present)
    return nodes


def _reaches(volume: PersistentVolume) -> Iterator[_Reach]:
    for key in _STABLE_KEY_OF:
        if (label := volume.labels.get(key)) is not None:
            values = tuple(each.strip() for each in label.split(_DELIMITER))
            if all(values):
                yield _Reach(volume.name, key, values)
