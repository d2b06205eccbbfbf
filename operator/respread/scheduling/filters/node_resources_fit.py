"""NodeResourcesFit: a node must have the requested resources free, and room for one more pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from respread.cluster.pod import Resources
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.free_resources import POD_SLOTS, FreeAmounts, FreeResources
from respread.scheduling.view.node_table import NodeSet, NodeTable


class NodeResourcesFit:
    """The filter, for a pod's requests."""

    __slots__ = ("_table", "needs")
    plugin: ClassVar[Plugin] = "NodeResourcesFit"

    def __init__(self, table: NodeTable, needs: Iterable[tuple[str, FreeAmounts, int]]) -> None:
        self._table = table
        self.needs = tuple(needs)
        """Each resource that the pod needs: its name, the free amounts, and the requested amount."""

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that have enough of every resource free."""
        for _, amounts, amount in self.needs:
            nodes &= amounts.at_least(amount)
        return nodes

    def reject(self, slot: int) -> Rejection | None:
        """Return which resource is short, how much is needed and how much there is."""
        short = [
            self._shortage(slot, name, amount, amounts.free[slot])
            for name, amounts, amount in self.needs
            if amounts.free[slot] < amount
        ]
        return Rejection(self.plugin, "; ".join(short)) if short else None

    def _shortage(self, slot: int, name: str, amount: int, free: int) -> str:
        node = self._table.nodes[slot]
        offered = 0 if node is None else node.allocatable.get(name, 0)
        if name == POD_SLOTS:
            return f"has room for {offered} pods and has {offered - free} already"
        return f"needs {name} {shown(name, amount)}, has {shown(name, free)} free of {shown(name, offered)}"


def prepare(
    table: NodeTable, free: FreeResources, requests: Resources, is_ignored: Callable[[str], bool]
) -> NodeResourcesFit:
    """Return the filter for a pod with these requests. A request of 0 never rejects.

    `is_ignored` returns whether the plugin's arguments ignore an extended resource (`ignoredResources`).
    """
    wanted = ((name, amount) for name, amount in sorted(requests.items()) if amount > 0 and name != POD_SLOTS)
    return NodeResourcesFit(
        table,
        [
            (POD_SLOTS, free.of(POD_SLOTS), 1),
            *((name, free.of(name), amount) for name, amount in wanted if not is_ignored(name)),
        ],
    )


_BINARY = (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))


def shown(name: str, amount: int) -> str:
    """Return an amount of a resource in readable form: `1500m` or `2` of cpu, `1536Mi` of memory."""
    if name == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    for suffix, bits in _BINARY:
        if amount and amount % (1 << bits) == 0:
            return f"{amount >> bits}{suffix}"
    return str(amount)
