"""NodeName: a pod with `spec.nodeName` goes only to that node.

The scheduler never sees such a pod. The rule only matters when a bound pod is examined.
"""

from __future__ import annotations

from typing import ClassVar

from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_table import NodeSet, NodeTable


class NodeName:
    """The filter, for a pod that names a node."""

    __slots__ = ("_name", "_node")
    plugin: ClassVar[Plugin] = "NodeName"

    def __init__(self, name: str, node: NodeSet) -> None:
        self._name = name
        self._node = node

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the named node, if it is one of the nodes."""
        return nodes & self._node

    def reject(self, slot: int) -> Rejection | None:
        """Return a reason if the pod names another node."""
        if self._node >> slot & 1:
            return None
        return Rejection(self.plugin, f"the pod names node {self._name}")


def prepare(table: NodeTable, name: str) -> NodeName | None:
    """Return the filter for a pod with this `spec.nodeName`, or None if it is empty."""
    if not name:
        return None
    slot = table.slot_of.get(name)
    return NodeName(name, 0 if slot is None else 1 << slot)
