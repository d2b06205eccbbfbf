"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the cordon's taint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from respread.cluster.objects import Taint
from respread.cluster.pod import Toleration
from respread.scheduling.filters.taint_toleration import tolerates
from respread.scheduling.verdict import FixedFilter
from respread.scheduling.view.node_table import NodeSet, NodeTable, node_set

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


def prepare(table: NodeTable, tolerations: Sequence[Toleration]) -> FixedFilter | None:
    """Return the filter for a pod with these tolerations, or None if it does not apply."""
    cordoned = table.derived("unschedulable", lambda: _cordoned(table))
    if tolerates(tolerations, UNSCHEDULABLE_TAINT):
        return None
    return FixedFilter("NodeUnschedulable", table.every & ~cordoned, lambda _slot: "is cordoned (spec.unschedulable)")


def _cordoned(table: NodeTable) -> NodeSet:
    return node_set([slot for slot, node in enumerate(table.nodes) if node is not None and node.unschedulable])
