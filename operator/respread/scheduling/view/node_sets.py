"""Sets of nodes as the bits of one integer: bit n is the node in slot n.

Python's integers have any length, and operations on them process whole machine words. So the answers of all filters for
5,000 nodes are combined in microseconds, much faster than by a loop over nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import compress, count
from operator import or_
from typing import TypeAlias, TypeVar

NodeSet: TypeAlias = int

_T = TypeVar("_T")
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
    least, most = 0, nodes.bit_length() - 1
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
