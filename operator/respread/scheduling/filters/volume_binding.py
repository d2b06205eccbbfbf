"""VolumeBinding: a node must reach bound volumes, and unbound claims must find or get a volume there.

CSIStorageCapacity is not evaluated: if a volume has to be provisioned, there may be no room for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec

from respread.cluster.objects import Node, PersistentVolume, PersistentVolumeClaim
from respread.cluster.pod import NodeSelectorTerm, Pod
from respread.cluster.selectors import compile_selector
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.filters.node_affinity import nodes_with_volume_affinity
from respread.scheduling.verdict import Filter, Plugin, Rejection, rejects_everywhere
from respread.scheduling.view.node_table import NodeSet, NodeTable, node_set, slots_of, union
from respread.scheduling.view.volumes import (
    claims_with_names,
    class_of,
    is_bound_by_scheduler,
    not_found,
    not_made_for,
    was_made_for,
)

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes are created manually."""


class _BoundVolume(msgspec.Struct, frozen=True):
    volume: PersistentVolume
    claim: str
    nodes: NodeSet
    """The nodes that reach it."""
    failing: NodeSet
    """The nodes on which the scheduler fails because it can't translate the volume to CSI."""


class VolumeBinding:
    """The filter, for a pod with claims."""

    __slots__ = ("_bound", "_judged", "_snapshot", "_table", "_unbound", "_unbound_nodes")
    plugin: ClassVar[Plugin] = "VolumeBinding"

    def __init__(
        self,
        table: NodeTable,
        snapshot: ClusterSnapshot,
        bound: Sequence[_BoundVolume],
        unbound: Sequence[PersistentVolumeClaim],
    ) -> None:
        self._table = table
        self._snapshot = snapshot
        self._bound = bound
        self._unbound = [
            _candidates(snapshot, claim) for claim in sorted(unbound, key=lambda claim: claim.requested_bytes)
        ]
        self._judged: NodeSet = 0
        self._unbound_nodes: NodeSet = 0

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these where every claim has, finds or gets a volume."""
        for each in self._bound:
            nodes &= each.nodes & ~each.failing
        if not self._unbound:
            return nodes
        new = nodes & ~self._judged
        self._unbound_nodes |= node_set([slot for slot in slots_of(new) if self._reject_unbound(slot) is None])
        self._judged |= new
        return nodes & self._unbound_nodes

    def failing(self) -> NodeSet:
        """Return the nodes on which a volume would have to be translated to CSI, but can't be."""
        return union(each.failing for each in self._bound)

    def reject(self, slot: int) -> Rejection | None:
        """Return the first claim that is not satisfied."""
        for each in self._bound:
            if each.failing >> slot & 1 and each.volume.migrated is not None:
                return Rejection(self.plugin, each.volume.migrated.error)
            if not each.nodes >> slot & 1:
                return Rejection(
                    self.plugin, f"volume {each.volume.name} of claim {each.claim} can't be reached (its node affinity)"
                )
        return self._reject_unbound(slot)

    def _reject_unbound(self, slot: int) -> Rejection | None:
        node = self._table.nodes[slot]
        if node is None:
            return None
        to_provision: list[PersistentVolumeClaim] = []
        taken: set[str] = set()
        for candidates in self._unbound:
            claim = candidates.claim
            if claim.selected_node and claim.selected_node != node.name:
                return Rejection(self.plugin, f"claim {claim.name} gets its volume on node {claim.selected_node}")
            volume = None if claim.selected_node else candidates.on(self._table, slot, taken)
            if volume is None:
                to_provision.append(claim)
            else:
                taken.add(volume.name)
        for claim in to_provision:
            if (problem := self._provisioning_problem(claim, node)) is not None:
                return Rejection(self.plugin, problem)
        return None

    def _provisioning_problem(self, claim: PersistentVolumeClaim, node: Node) -> str | None:
        storage_class = class_of(self._snapshot, claim)
        if storage_class is None or storage_class.provisioner in {"", NO_PROVISIONER}:
            return f"there is no volume for claim {claim.name}, and its storage class makes none"
        if not _in_topologies(storage_class.allowed_topologies, node.labels):
            return f"the StorageClass of claim {claim.name} makes no volumes here (allowedTopologies)"
        return None


class _Candidates(msgspec.Struct, frozen=True):
    """The volumes that a claim may be bound to, on any node (`FindMatchingVolume`).

    If a volume is reserved for the claim, it is the only candidate. Otherwise the smallest reachable volume is chosen.
    If several have that size, the scheduler takes any, and this class the first by name.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    """The best first."""

    def on(self, table: NodeTable, slot: int, taken: set[str]) -> PersistentVolume | None:
        """Return the volume for the claim on a node, if a free one exists."""
        free = (each for each in self.volumes if each.name not in taken)
        return next((each for each in free if nodes_with_volume_affinity(table, each.node_affinity) >> slot & 1), None)


def _candidates(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> _Candidates:
    selector = None if claim.selector is None else compile_selector(claim.selector)
    suitable = [
        volume
        for volume in snapshot.persistent_volumes.values()
        if volume.storage_class_name == (claim.storage_class_name or "")
        and volume.capacity_bytes >= claim.requested_bytes
        and volume.volume_mode == claim.volume_mode
        and volume.volume_attributes_class_name == claim.volume_attributes_class_name
        and not volume.terminating
    ]
    free = [
        volume
        for volume in suitable
        if volume.claim is None
        and volume.phase == "Available"
        and (selector is None or selector.matches(volume.labels))
        and {*claim.access_modes} <= {*volume.access_modes}
    ]
    reserved = [volume for volume in suitable if _is_reserved_for(volume, claim)][:1]
    return _Candidates(claim, reserved or sorted(free, key=lambda volume: (volume.capacity_bytes, volume.name)))


def _is_reserved_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.claim
    return (
        reference is not None
        and (reference.namespace, reference.name) == (claim.namespace, claim.name)
        and reference.uid in {"", claim.uid}
    )


def _in_topologies(terms: Sequence[NodeSelectorTerm], labels: Mapping[str, str]) -> bool:
    return not terms or any(
        term.match_expressions and all(labels.get(each.key) in each.values for each in term.match_expressions)
        for term in terms
    )


def prepare(table: NodeTable, snapshot: ClusterSnapshot, pod: Pod) -> Filter | None:
    """Return the filter for a pod, or None if it does not apply."""
    refusal = partial(rejects_everywhere, "VolumeBinding")
    claims: list[PersistentVolumeClaim] = []
    for name, ephemeral, claim in claims_with_names(snapshot, pod):
        if claim is None:
            return refusal(not_found(name))
        if (problem := _problem(claim, pod, ephemeral=ephemeral)) is not None:
            return refusal(problem)
        claims.append(claim)
    unbound = [claim for claim in claims if not claim.bound]
    for claim in unbound:
        if claim.volume_name or not is_bound_by_scheduler(snapshot, claim):
            return refusal(
                f"claim {claim.name} is not bound to a volume yet, and the scheduler is not the one to do it"
            )
    bound: list[_BoundVolume] = []
    for claim in claims:
        if claim.bound:
            volume = snapshot.persistent_volumes.get(claim.volume_name)
            if volume is None:
                return refusal(f"claim {claim.name} is bound to the volume {claim.volume_name}, which does not exist")
            bound.append(_bound_volume(table, snapshot, volume, claim.name))
    return VolumeBinding(table, snapshot, bound, unbound) if claims else None


def _problem(claim: PersistentVolumeClaim, pod: Pod, *, ephemeral: bool) -> str | None:
    if claim.phase == "Lost":
        return f"claim {claim.name} is Lost: its volume {claim.volume_name} does not exist any more"
    if claim.terminating:
        return f"claim {claim.name} is being deleted"
    if ephemeral and not was_made_for(claim, pod):
        return not_made_for(claim.name, pod)
    return None


def _bound_volume(table: NodeTable, snapshot: ClusterSnapshot, volume: PersistentVolume, claim: str) -> _BoundVolume:
    nodes = nodes_with_volume_affinity(table, volume.node_affinity)
    migrated = volume.migrated
    if migrated is None:
        return _BoundVolume(volume, claim, nodes, 0)
    on = _nodes_migrating(table, snapshot, migrated.plugin)
    if migrated.error:
        return _BoundVolume(volume, claim, nodes, on)
    there = nodes_with_volume_affinity(table, volume.migrated_node_affinity)
    return _BoundVolume(volume, claim, nodes & ~on | there & on, 0)


def _nodes_migrating(table: NodeTable, snapshot: ClusterSnapshot, plugin: str) -> NodeSet:
    return table.named(name for name, each in snapshot.csi_nodes.items() if plugin in each.migrated_plugins)
