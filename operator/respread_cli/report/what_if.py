"""A hypothetical cluster: workloads scaled, nodes drained, removed or added, on a copy of a snapshot.

A scale-down deletes the pods that its controller would delete. New pods and those of lost nodes go to the feasible
nodes that the scheduler prefers. This is likely, not certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import count
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.incremental import changed_keys
from respread.cluster.meta import POD_DELETION_COST, ObjectKey
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.state import Change, ClusterSnapshot, ClusterState
from respread.scheduling.filters.topology_spread_score import HOSTNAME
from respread.scheduling.predictor import Predictor
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.node_table import NodeSet, NodeTable, members, node_set
from respread.spread.index import Spread, SpreadIndex
from respread_cli.report.scale_downs import NotForetoldError, Ranking, WorkloadPods, foretell, workloads_of

_STAYS_ON_ITS_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods come and go with their node, and that a drain leaves alone."""


class Placed(NamedTuple):
    """A hypothetical pod, and where it goes."""

    pod: Pod
    certain: bool
    """Whether its domains are certain. Its node rarely is."""


class Unplaced(NamedTuple):
    """A pod that no node accepts, and why, in a sentence without its end."""

    pod: Pod
    why: str


class HypotheticalOutcome(NamedTuple):
    """The result of the changes."""

    snapshot: ClusterSnapshot
    spread: Spread
    added: tuple[str, ...]
    """Names of nodes."""
    deleted: tuple[Pod, ...]
    """Deleted by scale-downs, in their order."""
    certain: bool
    """Whether it is certain which pods these are."""
    lost: tuple[Pod, ...]
    """Pods of drained or removed nodes that no controller recreates."""
    placed: tuple[Placed, ...]
    unplaced: tuple[Unplaced, ...]


class WhatIf:
    """Applies one change after another."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        index: SpreadIndex,
        predictor: Predictor,
        *,
        now: datetime,
        ranking: Ranking,
        cancellation: Cancellation,
    ) -> None:
        """Start with the current cluster.

        The index and the view of the predictor are advanced with the changes. `ranking` is which pod deletion costs
        scale-downs use.
        """
        self._state = ClusterState(snapshot)
        self._index = index
        self._predictor = predictor
        self._now = now
        self._ranking: Ranking = ranking
        self._cancellation = cancellation
        self._numbers = count(1)
        self._added: list[str] = []
        self._deleted: list[Pod] = []
        self._certain = True
        self._lost: list[Pod] = []
        self._placed: dict[ObjectKey, Placed] = {}
        self._pod_numbers = _PodNumbers()

    def workload(self, name: WorkloadName) -> WorkloadPods | None:
        """Return a workload in its current state; None if it has no pods."""
        snapshot = self._state.snapshot
        return workloads_of(snapshot, self._index.update(snapshot), {name.namespace}).get(name)

    # Changes

    def add_nodes(self, models: Iterable[Node]) -> None:
        """Add a node like each of these, with their DaemonSet and static pods."""
        snapshot = self._state.snapshot
        pods: list[Pod] = []
        for model in models:
            name = f"{model.name}-new{next(self._numbers)}"
            labels = model.labels.set(HOSTNAME, name) if HOSTNAME in model.labels else model.labels
            node = msgspec.structs.replace(model, name=name, uid=f"simulated-{name}", labels=labels, ready=True)
            self._state.apply("nodes", [(node.key, node)])
            if (volumes := snapshot.csi_nodes.get(model.name)) is not None:
                self._state.apply("csinodes", [(node.key, msgspec.structs.replace(volumes, name=name))])
            pods += (
                msgspec.structs.replace(
                    pod, name=f"{pod.name}-on-{name}", uid=f"simulated-{pod.uid}-{name}", node_name=name
                )
                for pod in snapshot.pods_by_node.get(model.name, {}).values()
                if stays_on_its_node(pod)
            )
            self._added.append(name)
        self._state.apply("pods", [(pod.key, pod) for pod in pods])

    def remove_nodes(self, names: Collection[str]) -> None:
        """Remove nodes at once, like a zone failure: all their pods are gone before the first is recreated."""
        gone = [pod for name in names for pod in self._state.snapshot.pods_by_node.get(name, {}).values()]
        self._state.apply("pods", [(pod.key, None) for pod in gone])
        self._state.apply("nodes", [(ObjectKey("", name), None) for name in names])
        self._make_again(gone)

    def restore_nodes(self, names: Collection[str]) -> None:
        """Remove nodes at once, and add them again with nothing but their DaemonSet and static pods."""
        snapshot = self._state.snapshot
        nodes = [snapshot.nodes[name] for name in names]
        pods = [pod for name in names for pod in snapshot.pods_by_node.get(name, {}).values() if stays_on_its_node(pod)]
        self.remove_nodes(names)
        self._state.apply("nodes", [(node.key, node) for node in nodes])
        self._state.apply("pods", [(pod.key, pod) for pod in pods])

    def cordon(self, names: Iterable[str]) -> None:
        """Make nodes unschedulable."""
        nodes = [self._state.snapshot.nodes[name] for name in names]
        self._state.apply("nodes", [(node.key, msgspec.structs.replace(node, unschedulable=True)) for node in nodes])

    def drain(self, name: str) -> None:
        """Cordon a node and move its pods one after another, as `kubectl drain` does."""
        self.cordon([name])
        for pod in _in_turn(self._state.snapshot.pods_by_node.get(name, {}).values()):
            if not stays_on_its_node(pod):
                self._state.apply("pods", [(pod.key, None)])
                self._make_again([pod])

    def scale(self, workload: WorkloadPods, replicas: int) -> None:
        """Scale a workload.

        Raises:
            NotForetoldError: it is unknown what its controller would do.
        """
        if replicas <= len(workload.pods):
            forecast = foretell(workload, replicas, self._now, self._ranking)
            self._deleted += forecast.deleted
            self._certain = self._certain and forecast.certain
            self._state.apply("pods", [(pod.key, None) for pod in forecast.deleted])
            return
        if len(workload.replica_sets) > 1:
            raise NotForetoldError("a rollout is going on, and which of its ReplicaSets grows is not known")
        self._add(self._new_pods(workload, replicas - len(workload.pods)))

    def outcome(self) -> HypotheticalOutcome:
        """Return the result, after pods without a node have been placed if possible."""
        unplaced = self._place(_in_turn(self._state.snapshot.waiting_pods.values()))
        snapshot = self._state.snapshot
        return HypotheticalOutcome(
            snapshot=snapshot,
            spread=self._index.update(snapshot),
            added=tuple(self._added),
            deleted=tuple(self._deleted),
            certain=self._certain,
            lost=tuple(self._lost),
            placed=tuple(each for key, each in self._placed.items() if snapshot.pods.get(key) == each.pod),
            unplaced=tuple(unplaced),
        )

    # Pods

    def _new_pods(self, workload: WorkloadPods, number: int) -> list[Pod]:
        model = max(workload.pods, key=lambda pod: (pod.creation_timestamp or self._now, pod.name))
        if not workload.is_stateful_set:
            return [self._new(model, f"{workload.name.name}-new{next(self._numbers)}") for _ in range(number)]
        first = max(int(pod.name.rpartition("-")[2]) for pod in workload.pods) + 1
        return [self._new(model, f"{workload.name.name}-{ordinal}") for ordinal in range(first, first + number)]

    def _make_again(self, pods: Iterable[Pod]) -> None:
        again = []
        for pod in _in_turn(pods):
            if pod.controller is None:
                self._lost.append(pod)
            elif not stays_on_its_node(pod) and not (pod.terminating or pod.finished):
                stateful = pod.controller.kind == "StatefulSet"
                again.append(self._new(pod, pod.name if stateful else f"{pod.name}-new{next(self._numbers)}"))
        self._add(again)

    def _new(self, model: Pod, name: str) -> Pod:
        """Return a pod like another, without a node, and old enough to be moved."""
        return msgspec.structs.replace(
            model,
            name=name,
            uid=f"simulated-{name}",
            annotations=model.annotations.delete(POD_DELETION_COST)
            if POD_DELETION_COST in model.annotations
            else model.annotations,
            deletion_cost_is_ours=False,
            deletion_cost_writer="",
            node_name="",
            nominated_node_name="",
            phase="Pending",
            ready=False,
            deletion_timestamp=None,
            held_requests=None,
        )

    def _add(self, pods: Sequence[Pod]) -> None:
        self._state.apply("pods", [(pod.key, pod) for pod in pods])
        self._place(pods)

    def _place(self, pods: Iterable[Pod]) -> list[Unplaced]:
        """Place pods of the state one after another, and return those that no node accepts."""
        view = self._predictor.view
        view.advance(self._state.snapshot)
        self._pod_numbers.advance(view.table, self._state.snapshot.pods_by_node)
        bound: list[Change] = []
        unplaced: list[Unplaced] = []
        said: dict[tuple[str, int], str] = {}
        for pod in pods:
            self._cancellation.check()
            prepared = self._predictor.prepare(pod)
            admitted = prepared.admitted()
            if prepared.unknown is not None or not admitted:
                template = pod.namespace, id(pod.spec)
                if template not in said:
                    said[template] = self._why_not(prepared)
                unplaced.append(Unplaced(pod, said[template]))
                continue
            node = self._pod_numbers.fewest(prepared.best_nodes(admitted))
            certain = _has_certain_domains(prepared, admitted)
            view.place(pod, node)
            self._pod_numbers.add(node)
            placed = msgspec.structs.replace(pod, node_name=node, phase="Running", ready=True)
            bound.append((pod.key, placed))
            self._placed[pod.key] = Placed(placed, certain)
        self._state.apply("pods", bound)
        return unplaced

    def _why_not(self, prepared: PreparedPod) -> str:
        """Return why a pod is not placed: each plugin with the number of nodes that it rejects."""
        if prepared.unknown is not None:
            return f"where it would go is not known: {prepared.unknown.message}"
        nodes = self._predictor.view.table.slot_of
        said = Counter(str(no.plugin) for node in nodes if (no := prepared.first_rejection(node)) is not None)
        listed = ", ".join(f"{plugin} on {number}" for plugin, number in said.most_common())
        return f"no node takes it; of {len(nodes)}, it is refused by {listed}"


class _PodNumbers:
    """How many pods each node has. From one snapshot to the next, this costs as much as they differ."""

    def __init__(self) -> None:
        self._table = NodeTable()
        self._state = self._table.state
        self._pods: Map[str, Map[ObjectKey, Pod]] = Map()
        self._number_on: dict[int, int] = {}
        self._with: dict[int, NodeSet] = {}

    def advance(self, table: NodeTable, pods: Map[str, Map[ObjectKey, Pod]]) -> None:
        """Count the pods of other nodes, or other pods of the same ones."""
        if table is self._table and table.state is self._state:
            for name in changed_keys(self._pods, pods):
                if (slot := table.slot_of.get(name)) is not None:
                    self._set(slot, len(pods.get(name, ())))
        else:
            self._table, self._state = table, table.state
            self._number_on = {slot: len(pods.get(name, ())) for name, slot in table.slot_of.items()}
            slots: dict[int, list[int]] = {}
            for slot, number in self._number_on.items():
                slots.setdefault(number, []).append(slot)
            self._with = {number: node_set(found) for number, found in slots.items()}
        self._pods = pods

    def fewest(self, nodes: NodeSet) -> str:
        """Return which of some nodes has the fewest pods, the first by name of several."""
        found = next(there for number in sorted(self._with) if (there := self._with[number] & nodes))
        return min(members(found, self._table.names))

    def add(self, name: str) -> None:
        """Count a pod more on a node."""
        slot = self._table.slot_of[name]
        self._set(slot, self._number_on[slot] + 1)

    def _set(self, slot: int, number: int) -> None:
        self._with[self._number_on[slot]] ^= 1 << slot
        self._with[number] = self._with.get(number, 0) | 1 << slot
        self._number_on[slot] = number


def stays_on_its_node(pod: Pod) -> bool:
    """Return whether a pod comes and goes with its node: that of a DaemonSet, or a static pod."""
    return pod.is_mirror or (pod.controller is not None and pod.controller.kind in _STAYS_ON_ITS_NODE)


def _in_turn(pods: Iterable[Pod]) -> list[Pod]:
    """Return pods in the order in which the scheduler places them: by priority, then by age."""
    return sorted(
        pods,
        key=lambda pod: (
            -pod.spec.priority,
            0.0 if pod.creation_timestamp is None else pod.creation_timestamp.timestamp(),
            pod.key,
        ),
    )


def _has_certain_domains(prepared: PreparedPod, feasible: NodeSet) -> bool:
    """Return whether all feasible nodes are in the same domain, for each topology key of a pod's constraints.

    With more than 100 nodes, the scheduler examines only some of them, and it picks at random among equal scores. So
    the node itself can't be predicted.
    """
    in_force = prepared.constraints
    keys = {each.topology_key for each in (*in_force.hard, *in_force.soft)}
    return all(len(prepared.domains(feasible, key)) == 1 for key in keys)


class CanceledError(Exception):
    """The result of a computation is no longer wanted."""


class Cancellation:
    """Whether the result of a computation is still wanted. Any thread may use it."""

    def __init__(self) -> None:
        self._canceled = False

    def cancel(self) -> None:
        """Let the computation end the next time that it checks."""
        self._canceled = True

    def check(self) -> None:
        """Go on, unless the result is no longer wanted.

        Raises:
            CanceledError: it is not.
        """
        if self._canceled:
            raise CanceledError
