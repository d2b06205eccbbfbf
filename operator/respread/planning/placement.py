"""Where the replacement of an evicted pod may be placed, by the scheduler's rules."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.incremental import changed_keys
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import SELECTING
from respread.scheduling.predictor import Predictor
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.cluster_view import ClusterView, looks_the_same
from respread.scheduling.view.node_table import NodeSet, NodeTable, members, node_set
from respread.spread.carried import ALL_DEFAULTS, DefaultConstraints

_DECIDING: Final = ("namespaces", "persistent_volume_claims", "persistent_volumes", "storage_classes", "csi_nodes")


class Changes(NamedTuple):
    """What has changed between two snapshots."""

    nodes: NodeSet
    """The nodes whose pods have changed for the scheduler."""
    rules: bool
    """Whether anything else that the scheduler uses has changed."""
    names: Collection[str]
    """The nodes that came or went, or whose pods changed."""
    is_new_start: bool
    """Whether slots may belong to other nodes, or nodes are not as they were."""


class Placement:
    """The cluster during planning, with the scheduler's predicted answers."""

    def __init__(self, predictor: Predictor | None = None, kinds: frozenset[WhenUnsatisfiable] = ALL_DEFAULTS) -> None:
        """Use a predictor.

        Plans change its view and restore it. They count on these kinds of default constraints: the score of
        ScheduleAnyway ones needs the selectors of pods' owners, which are only read for policies that restore such
        constraints.
        """
        self.predictor = Predictor(ClusterView()) if predictor is None else predictor
        self._defaults = DefaultConstraints(self.predictor.configuration, kinds)
        self._table = self.predictor.view.table

    @property
    def deciding(self) -> tuple[str, ...]:
        """The parts of a snapshot, besides nodes and pods, that affect where plans expect pods."""
        return (*_DECIDING, *SELECTING) if self._defaults.exist else _DECIDING

    def advance(self, snapshot: ClusterSnapshot, before: ClusterSnapshot) -> Changes:
        """Advance to another snapshot, and return what has changed since the one before."""
        view = self.view
        view.advance(snapshot)
        none: Map[ObjectKey, Pod] = Map()
        pods, pods_before = snapshot.pods_by_node, before.pods_by_node
        with_other_pods = changed_keys(pods_before, pods)
        changed = [
            slot
            for name in with_other_pods
            if (slot := view.table.slot_of.get(name)) is not None
            and not looks_the_same(pods.get(name, none), pods_before.get(name, none))
        ]
        # If the view started again, its table is another value: its slots belong to other nodes.
        table, self._table = self._table, view.table
        return Changes(
            nodes=node_set(changed),
            rules=any(getattr(snapshot, field) is not getattr(before, field) for field in self.deciding),
            names=(*changed_keys(before.nodes, snapshot.nodes), *with_other_pods),
            is_new_start=snapshot.nodes is not before.nodes
            or snapshot.unread is not before.unread
            or view.table is not table,
        )

    @property
    def view(self) -> ClusterView:
        """The cluster, including the steps that planning tries on it."""
        return self.predictor.view

    @property
    def table(self) -> NodeTable:
        """The nodes in their slots."""
        return self.predictor.view.table

    def prepare(self, pod: Pod) -> PreparedPod:
        """Return the prepared pod for the replacement of a pod, whatever the view shows."""
        return self.predictor.prepare(replacement_of(pod))

    def likely_nodes(self, replacement: PreparedPod, nodes: NodeSet) -> NodeSet:
        """Return the nodes among feasible ones on which plans expect a replacement; all, if they trust no score."""
        if "ScheduleAnyway" not in self._defaults.kinds and not replacement.pod.spec.topology_spread_constraints:
            return nodes
        return replacement.best_nodes(nodes)

    def own(self, pod: Pod) -> Pod | None:
        """Return the pod that is gone when a pod's replacement is created, as it is on the view; None if none is."""
        if not is_replaced_when_gone(pod):
            return None
        there = self.view.snapshot.pods.get(pod.key)
        return there if there is not None and there.uid == pod.uid and there.node_name else None

    def names(self, nodes: NodeSet) -> list[str]:
        """Return the names of nodes."""
        return members(nodes, self.table.names)


def replacement_of(pod: Pod) -> Pod:
    """Return the pod that the controller creates to replace a pod.

    A StatefulSet gives it the name of the old pod, and so the same claims. The name from other controllers is unknown.
    """
    name = pod.name if is_replaced_when_gone(pod) else ""
    return msgspec.structs.replace(
        pod, name=name, uid="", node_name="", nominated_node_name="", phase="Pending", ready=False, held_requests=None
    )


def is_replaced_when_gone(pod: Pod) -> bool:
    """Whether the controller creates the replacement only after the pod is gone, and not when it starts to terminate.

    A StatefulSet does, because of the name.
    """
    return pod.controller is not None and pod.controller.kind == "StatefulSet"
