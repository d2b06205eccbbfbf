"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the cordon's taint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from respread.cluster.objects import Taint
from respread.cluster.pod import Toleration
from respread.scheduling.filters.taint_toleration import tolerates
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_table import NodeSet, NodeTable, node_set

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class NodeUnschedulable:
    """The filter, for a pod that does not tolerate the taint."""

    __slots__ = ("_cordoned",)
    plugin: ClassVar[Plugin] = "NodeUnschedulable"

    def __init__(self, cordoned: NodeSet) -> None:
        self._cordoned = cordoned

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that are not cordoned."""
        return nodes & ~self._cordoned

    def reject(self, slot: int) -> Rejection | None:
        """Return a reason if the node is cordoned."""
        if not self._cordoned >> slot & 1:
            return None
        return Rejection(self.plugin, "is cordoned (spec.unschedulable)")


def prepare(table: NodeTable, tolerations: Sequence[Toleration]) -> NodeUnschedulable | None:
    """Return the filter for a pod with these tolerations, or None if it does not apply."""
    cordoned = table.derived("unschedulable", lambda: _cordoned(table))
    if not cordoned or tolerates(tolerations, UNSCHEDULABLE_TAINT):
        return None
    return NodeUnschedulable(cordoned)


def _cordoned(table: NodeTable) -> NodeSet:
    return node_set([slot for slot, node in enumerate(table.nodes) if node is not None and node.unschedulable])
