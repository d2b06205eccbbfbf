"""NodeName: a pod with `spec.nodeName` goes only to that node.

The scheduler never sees such a pod. The rule only matters when a bound pod is examined.
"""

from __future__ import annotations

from respread.scheduling.verdict import FixedFilter
from respread.scheduling.view.node_table import NodeTable


def prepare(table: NodeTable, name: str) -> FixedFilter | None:
    """Return the filter for a pod with this `spec.nodeName`, or None if it is empty."""
    if not name:
        return None
    return FixedFilter("NodeName", table.named((name,)), lambda _slot: f"the pod names node {name}")
