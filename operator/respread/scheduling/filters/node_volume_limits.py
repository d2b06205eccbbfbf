"""NodeVolumeLimits: how many volumes of each CSI driver a node can attach, according to its CSINode."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import Filter, Plugin, Rejection, rejects_everywhere
from respread.scheduling.view.node_table import NodeSet, node_set, slots_of
from respread.scheduling.view.volumes import (
    AttachableVolume,
    Attachments,
    claims_with_names,
    inline_volumes,
    not_found,
    not_made_for,
    volume_of,
    was_made_for,
)


class NodeVolumeLimits:
    """The filter, for a pod with claims or with volumes of a plugin that may be migrated."""

    __slots__ = ("_attachments", "_error", "_more", "_wanted")
    plugin: ClassVar[Plugin] = "NodeVolumeLimits"

    def __init__(self, attachments: Attachments, volumes: tuple[AttachableVolume, ...]) -> None:
        self._attachments = attachments
        self._wanted = {(volume.driver, volume.handle) for volume in volumes}
        self._more = Counter(driver for driver, _ in self._wanted)
        self._error = next((volume.error for volume in volumes if volume.error), "")

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that have room for the pod's volumes in addition to their own."""
        if self._error:
            return nodes & ~self._attachments.with_csi_node
        certain = nodes
        for driver, more in self._more.items():
            certain &= self._attachments.room_for(driver).at_least(more)
        # If there is no room for all of them, some may already be attached.
        return certain | node_set([slot for slot in slots_of(nodes & ~certain) if self.reject(slot) is None])

    def failing(self) -> NodeSet:
        """Return the nodes on which the scheduler fails when it counts the volumes of the pod or of the node."""
        return self._attachments.with_csi_node if self._error else self._attachments.failing()

    def reject(self, slot: int) -> Rejection | None:
        """Return which driver's limit would be exceeded, and the limit."""
        if self._error:
            return Rejection(self.plugin, self._error) if self._attachments.with_csi_node >> slot & 1 else None
        attached = self._attachments.on(slot)
        if attached is None:
            return None
        if attached.error:
            return Rejection(self.plugin, attached.error)
        for driver, more in Counter(driver for driver, _ in self._wanted - attached.volumes).items():
            limit = attached.limits.get(driver)
            has = attached.by_driver[driver]
            if limit is not None and has + more > limit:
                return Rejection(
                    self.plugin, f"can attach {limit} volumes of {driver}, has {has}, and the pod needs {more} more"
                )
        return None


def prepare(attachments: Attachments, snapshot: ClusterSnapshot, pod: Pod) -> Filter | None:
    """Return the filter for a pod, or None if it does not apply."""
    volumes: list[AttachableVolume] = []
    for name, ephemeral, claim in claims_with_names(snapshot, pod):
        if claim is None:
            return rejects_everywhere("NodeVolumeLimits", not_found(name))
        if ephemeral and not was_made_for(claim, pod):
            return rejects_everywhere("NodeVolumeLimits", not_made_for(name, pod))
        if (volume := volume_of(snapshot, claim)) is not None:
            volumes.append(volume)
    volumes.extend(inline_volumes(pod))
    return NodeVolumeLimits(attachments, tuple(volumes)) if volumes else None
