"""The nodes of a view, each in a slot, and indices of common properties.

Nodes with the same label value, or with the same taints, form one set. So affinity, taints and topology domains are
evaluated once per value and not once per node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from itertools import compress, count
from operator import or_
from typing import TypeAlias, TypeVar, cast

from respread.cluster.objects import Node, Taint

_T = TypeVar("_T")


class LabelColumn:
    """One label over all nodes."""

    __slots__ = ("is_of_nodes", "nodes_with", "present", "values")

    def __init__(self, nodes: Sequence[Node | None], key: str) -> None:
        values: list[str | None] = []
        self.nodes_with: dict[str, NodeSet] = {}
        """The nodes with each value; never empty."""
        self.present: NodeSet = 0
        """The nodes that have the label."""
        slots: dict[str, list[int]] = {}
        for slot, node in enumerate(nodes):
            value = None if node is None else node.labels.get(key)
            values.append(value)
            if value is not None:
                slots.setdefault(value, []).append(slot)
        self.values: tuple[str | None, ...] = tuple(values)
        """By slot; None without the label or the node."""
        for value, each in slots.items():
            together = 0
            for slot in each:
                together |= 1 << slot
            self.nodes_with[value] = together
            self.present |= together
        self.is_of_nodes = len(self.nodes_with) == self.present.bit_count()
        """Whether each node has another value."""


class NodeTable:
    """The nodes in their slots. A node keeps its slot as long as it exists."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By slot; empty if there is no node."""
        self.nodes: list[Node | None] = []
        """By slot."""
        self.slot_of: dict[str, int] = {}
        self.every: NodeSet = 0
        self.state = object()
        """Becomes another object when the basis of the indices changes: the nodes, their labels, taints and cordons."""
        self._free_slots: list[int] = []
        self._columns: dict[str, LabelColumn] = {}
        self._derived: dict[Hashable, object] = {}

    def put(self, node: Node) -> int:
        """Add a node, or replace the one with its name, and return its slot."""
        slot = self.slot_of.get(node.name)
        if slot is None:
            slot = self._new_slot(node.name)
        before = self.nodes[slot]
        self.nodes[slot] = node
        if before is None or (before.labels, before.taints, before.unschedulable) != (
            node.labels,
            node.taints,
            node.unschedulable,
        ):
            self._forget()
        return slot

    def remove(self, name: str) -> None:
        """Remove a node. Its slot is empty now."""
        slot = self.slot_of.pop(name)
        self.names[slot], self.nodes[slot] = "", None
        self.every &= ~(1 << slot)
        self._free_slots.append(slot)
        self._forget()

    def column(self, key: str) -> LabelColumn:
        """Return a label over all nodes."""
        if (found := self._columns.get(key)) is None:
            found = self._columns[key] = LabelColumn(self.nodes, key) if key in self._keys else self._absent
        return found

    @property
    def _keys(self) -> frozenset[str]:
        """The keys of the labels that nodes have."""
        return self.derived("label keys", lambda: frozenset(key for node in self.nodes if node for key in node.labels))

    @property
    def _absent(self) -> LabelColumn:
        """The column of each label that no node has. A pod may name ten thousand such keys."""
        return self.derived("absent label", lambda: LabelColumn([None] * len(self.nodes), ""))

    def named(self, names: Iterable[str]) -> NodeSet:
        """Return the nodes with these names, as far as they exist."""
        return node_set([slot for name in names if (slot := self.slot_of.get(name)) is not None])

    def by_taints(self) -> dict[tuple[Taint, ...], NodeSet]:
        """Return the nodes with each list of taints."""
        return self.derived("taints", self._by_taints)

    def _by_taints(self) -> dict[tuple[Taint, ...], NodeSet]:
        found: dict[tuple[Taint, ...], NodeSet] = {}
        for slot, node in enumerate(self.nodes):
            if node is not None:
                found[node.taints] = found.get(node.taints, 0) | 1 << slot
        return found

    def derived(self, key: Hashable, derive: Callable[[], _T]) -> _T:
        """Return a value derived from the nodes, stored under a key, and derive it again if the nodes have changed."""
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = derive()
        return cast("_T", found)

    def _new_slot(self, name: str) -> int:
        if self._free_slots:
            slot = self._free_slots.pop()
            self.names[slot] = name
        else:
            slot = len(self.names)
            self.names.append(name)
            self.nodes.append(None)
        self.slot_of[name] = slot
        self.every |= 1 << slot
        return slot

    def _forget(self) -> None:
        self.state = object()
        self._columns = {}
        self._derived = {}


NodeSet: TypeAlias = int

_BITS = bytes.maketrans(b"01", b"\x00\x01")
_ONE = ord("1")


def node_set(slots: Iterable[int]) -> NodeSet:
    """Return the set of the nodes in these slots."""
    each = slots if isinstance(slots, Sequence) else tuple(slots)
    if not each:
        return 0
    digits = bytearray(b"0") * (max(each) + 1)
    for slot in each:
        digits[-1 - slot] = _ONE
    return int(digits, 2)


def union(sets: Iterable[NodeSet]) -> NodeSet:
    """Return the nodes that are in any of some sets."""
    return reduce(or_, sets, 0)


def slots_of(nodes: NodeSet) -> list[int]:
    """Return the slots of a set's nodes in ascending order."""
    return list(compress(count(), _bits(nodes)))


def nth_slot(nodes: NodeSet, n: int) -> int:
    """Return the slot of the node of a set that `n` others precede."""
    least, most = 0, nodes.bit_length()
    while least < most:
        middle = (least + most) // 2
        if (nodes & ((2 << middle) - 1)).bit_count() > n:
            most = middle
        else:
            least = middle + 1
    return least


def members(nodes: NodeSet, of: Sequence[_T]) -> list[_T]:
    """Return the entries of a list (one per slot) that belong to a set's nodes."""
    return list(compress(of, _bits(nodes)))


def _bits(nodes: NodeSet) -> bytes:
    return bin(nodes)[:1:-1].encode().translate(_BITS)
