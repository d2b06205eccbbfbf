"""The cluster as filters use it. It can be changed and restored.

A view is made from a snapshot, and advancing to the next snapshot costs as much as they differ. A plan tries its steps
on it. Evicting a pod removes its spread counts at once, while it keeps its resources, ports, volumes and pod affinity.
Removing it frees these. Placing its replacement adds it to a node. Every step can be undone, in reverse order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.incremental import are_same, changed_keys
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.view.free_resources import FreeResources, UsedPorts
from respread.scheduling.view.node_table import NodeSet, NodeTable
from respread.scheduling.view.pod_affinity_terms import ExistingTerms
from respread.scheduling.view.pod_index import PodIndex
from respread.scheduling.view.volumes import Attachments, VolumeUsage, has_volumes

_Pods: TypeAlias = Map[ObjectKey, Pod]
_Step: TypeAlias = tuple[Literal["evict", "remove", "place"], Pod, int]

_NO_PODS: _Pods = Map()
_MOST_LITTER: Final = 1 << 17
"""Some 50 MiB. A pod may have tens of thousands of labels, requests or terms, and may be gone the next moment."""


class ClusterView:
    """Nodes, and what their pods use of them.

    It contains only unfinished pods on existing nodes.
    """

    def __init__(self, snapshot: ClusterSnapshot | None = None) -> None:
        self.snapshot = ClusterSnapshot()
        """The snapshot under the steps."""
        self.uncertain: NodeSet = 0
        """Nodes that can't be decoded, or have a pod that can't: neither that they accept a pod nor that they don't can
        be proven."""
        self._start()
        if snapshot is not None:
            self.advance(snapshot)

    def _start(self) -> None:
        self.table = NodeTable()
        self.free = FreeResources()
        self.ports = UsedPorts()
        self.volumes = VolumeUsage()
        self.pods = PodIndex()
        self.terms = ExistingTerms()
        self._attachments: Attachments | None = None
        self._nominated: dict[int, list[Pod]] | None = None
        self._pods_on: list[_Pods] = []
        self._steps: list[_Step] = []
        self._evicted: set[int] = set()
        self._needed: int | None = None
        """How much it kept after the first plan on it; None before that."""

    # From snapshot to snapshot

    def advance(self, snapshot: ClusterSnapshot) -> None:
        """Undo all steps, and show another snapshot.

        Parts that both snapshots share are not examined, so the next state of the same cluster only costs what has
        changed.
        """
        self.revert(0)
        before, self.snapshot = self.snapshot, snapshot
        if snapshot is before:
            return
        if self._is_littered(before):
            self._start()
            before = ClusterSnapshot()
        state = self.table.state
        if snapshot.nodes is not before.nodes:
            self._advance_nodes(before)
        names = changed_keys(before.pods_by_node, snapshot.pods_by_node)
        self._advance_pods((name, slot) for name in names if (slot := self.table.slot_of.get(name)) is not None)
        if snapshot.unread is not before.unread or self.table.state is not state:
            self.uncertain = _uncertain(self.table, snapshot)
        self._nominated = None
        if self.table.state is not state or not are_same(storage_of(snapshot), storage_of(before)):
            self._attachments = None

    @property
    def nominated(self) -> Mapping[int, Sequence[Pod]]:
        """The pods with a nominated node, by the slot of the node."""
        if self._nominated is None:
            self._nominated = {}
            for pod in self.snapshot.nominated_pods.values():
                if (slot := self.table.slot_of.get(pod.nominated_node_name)) is not None:
                    self._nominated.setdefault(slot, []).append(pod)
        return self._nominated

    @property
    def attachments(self) -> Attachments:
        """The volumes attached to the nodes."""
        if self._attachments is None:
            self._attachments = Attachments(self.table, self.volumes, self.snapshot)
        return self._attachments

    def _is_littered(self, before: ClusterSnapshot) -> bool:
        """Return whether the view keeps much data that only former snapshots needed."""
        kept = self.pods.kept + self.terms.kept + self.free.kept
        if self._needed is None:
            self._needed = kept if before.nodes else None
            return False
        return kept > 2 * self._needed + _MOST_LITTER

    def _advance_nodes(self, before: ClusterSnapshot) -> None:
        nodes, state = self.snapshot.nodes, self.table.state
        for name in [name for name in self.table.slot_of if name not in nodes]:
            slot = self.table.slot_of[name]
            self._set_pods(slot, _NO_PODS)
            self.free.set_allocatable(slot, before.nodes[name].allocatable, Map())
            self.table.remove(name)
        changed: list[tuple[str, int]] = []
        for name, node in sorted(nodes.items()):  # the same plan in every process
            old = before.nodes.get(name)
            if old is node:
                continue
            slot = self.table.put(node)
            self.free.set_allocatable(slot, Map() if old is None else old.allocatable, node.allocatable)
            changed.append((name, slot))
        if self.table.state is not state:
            self.pods.forget_domains()
            self.terms.forget_domains()
        self._pods_on.extend([_NO_PODS] * (len(self.table.names) - len(self._pods_on)))
        self._advance_pods(changed)

    def _advance_pods(self, nodes: Iterable[tuple[str, int]]) -> None:
        pods_by_node, pods_on = self.snapshot.pods_by_node, self._pods_on
        for name, slot in nodes:
            pods = pods_by_node.get(name, _NO_PODS)
            if pods is not pods_on[slot]:
                self._set_pods(slot, pods)

    def _set_pods(self, slot: int, pods: _Pods) -> None:
        before = self._pods_on[slot]
        for key, pod in before.items():
            if pods.get(key) is not pod:
                self._count(pod, slot, -1, terminating=pod.terminating)
        for key, pod in pods.items():
            if before.get(key) is not pod:
                self._count(pod, slot, 1, terminating=pod.terminating)
        self._pods_on[slot] = pods

    # Steps

    def mark(self) -> int:
        """Return this moment, to `revert` to: the number of steps made before it."""
        return len(self._steps)

    @contextmanager
    def fork(self) -> Iterator[None]:
        """Undo at the end of the `with` block every step that was made in it."""
        mark = self.mark()
        try:
            yield
        finally:
            self.revert(mark)

    def evict(self, pod: Pod) -> None:
        """Make a pod terminating. A pod that already is, or that is on no node of the view, is not changed.

        It must be the same object as in the snapshot or from `place`.
        """
        slot = self.table.slot_of.get(pod.node_name)
        if slot is None or self._is_terminating(pod):
            return
        self._evicted.add(id(pod))
        self.pods.change(pod.namespace, pod.labels, slot, present=0, terminating=1)
        self._steps.append(("evict", pod, slot))

    def remove(self, pod: Pod) -> None:
        """Remove a pod, evicted before or not. A pod that is on no node of the view is not changed."""
        slot = self.table.slot_of.get(pod.node_name)
        if slot is not None:
            self._count(pod, slot, -1, terminating=self._is_terminating(pod))
            self._steps.append(("remove", pod, slot))

    def place(self, pod: Pod, node: str) -> Pod:
        """Bind a new pod like this one to a node, and return the new pod.

        Raises:
            KeyError: there is no such node.
        """
        slot = self.table.slot_of[node]
        placed = msgspec.structs.replace(
            pod, node_name=node, phase="Pending", ready=False, deletion_timestamp=None, held_requests=None
        )
        self._count(placed, slot, 1, terminating=False)
        self._steps.append(("place", placed, slot))
        return placed

    def revert(self, mark: int) -> None:
        """Undo every step made since a moment, in reverse order."""
        while len(self._steps) > mark:
            step, pod, slot = self._steps.pop()
            if step == "evict":
                self._evicted.remove(id(pod))
                self.pods.change(pod.namespace, pod.labels, slot, present=0, terminating=-1)
            elif step == "remove":
                self._count(pod, slot, 1, terminating=self._is_terminating(pod))
            else:
                self._count(pod, slot, -1, terminating=False)

    def _is_terminating(self, pod: Pod) -> bool:
        return pod.deletion_timestamp is not None or id(pod) in self._evicted

    def _count(self, pod: Pod, slot: int, times: int, *, terminating: bool) -> None:
        """Count what a pod uses of a node, or no more with -1 times."""
        spec = pod.spec
        self.free.take(slot, pod.requests_on_node, times)
        self.pods.change(pod.namespace, pod.labels, slot, present=times, terminating=times if terminating else 0)
        if spec.host_ports:
            self.ports.take(slot, spec.host_ports, times)
        if spec.pod_anti_affinity:
            self.terms.change(pod, slot, times)
        if has_volumes(spec):
            self.volumes.take(slot, pod, times)


def _uncertain(table: NodeTable, snapshot: ClusterSnapshot) -> NodeSet:
    nodes_of_pods = [each.node_name for each in snapshot.unread.get("pods", Map()).values()]
    if None in nodes_of_pods:
        return table.every
    return table.named([*filter(None, nodes_of_pods), *(key.name for key in snapshot.unread.get("nodes", Map()))])


def looks_the_same(pods: _Pods, others: _Pods) -> bool:
    """Return whether a node's pods are equivalent for the scheduler. For example, readiness makes no difference."""
    return len(pods) == len(others) and all(
        pod is (other := others.get(key)) or (other is not None and _what_counts(pod) == _what_counts(other))
        for key, pod in pods.items()
    )


def _what_counts(pod: Pod) -> tuple[object, ...]:
    """Return what a view uses from a pod on a node, except its name and namespace."""
    return pod.uid, pod.spec, pod.labels, pod.requests_on_node, pod.terminating


def storage_of(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the parts of a snapshot that define which volumes exist, and where."""
    return (
        snapshot.persistent_volume_claims,
        snapshot.persistent_volumes,
        snapshot.storage_classes,
        snapshot.csi_nodes,
    )
