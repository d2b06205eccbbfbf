"""The free amount of each resource on every node, and which nodes have enough."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

from respread.cluster.pod import Resources
from respread.scheduling.view.node_sets import NodeSet, node_set

POD_SLOTS: Final = "pods"
"""The resource of which every pod uses one, whatever it requests."""

_MOST_THRESHOLDS: Final = 1024


class FreeAmounts:
    """One resource over all nodes: allocatable minus requested, in the units of `Resources`; may be negative.

    For each amount that is requested, the set of nodes that have it is computed once and then updated. A changed node
    affects only the amounts between its old and its new free amount.
    """

    __slots__ = ("_amounts", "_enough", "free")

    def __init__(self, slots: int) -> None:
        self.free: list[int] = [0] * slots
        """By slot; 0 if there is no node, or if it does not list the resource."""
        self._amounts: list[int] = []
        self._enough: list[NodeSet] = []

    def at_least(self, amount: int) -> NodeSet:
        """Return the nodes that have this amount free. The amount is above 0."""
        position = bisect_left(self._amounts, amount)
        if position < len(self._amounts) and self._amounts[position] == amount:
            return self._enough[position]
        if len(self._amounts) >= _MOST_THRESHOLDS:
            self._amounts, self._enough, position = [], [], 0
        enough = node_set([slot for slot, free in enumerate(self.free) if free >= amount])
        self._amounts.insert(position, amount)
        self._enough.insert(position, enough)
        return enough

    def change(self, slot: int, by: int) -> None:
        """Add to the free amount of a node; the change may be negative."""
        before = self.free[slot]
        after = self.free[slot] = before + by
        if self._amounts:
            low, high = (before, after) if before < after else (after, before)
            for position in range(bisect_right(self._amounts, low), bisect_right(self._amounts, high)):
                self._enough[position] ^= 1 << slot


class FreeResources:
    """Every resource over all nodes."""

    __slots__ = ("_by_name", "_shares", "_slots")

    def __init__(self) -> None:
        self._slots = 0
        self._by_name: dict[str, FreeAmounts] = {POD_SLOTS: FreeAmounts(0)}
        self._shares: dict[int, tuple[Resources, tuple[tuple[FreeAmounts, int], ...]]] = {}

    @property
    def kept(self) -> int:
        """The number of different requests for which the shares are stored."""
        return len(self._shares)

    def of(self, name: str) -> FreeAmounts:
        """Return one resource."""
        if (found := self._by_name.get(name)) is None:
            found = self._by_name[name] = FreeAmounts(self._slots)
        return found

    def set_allocatable(self, slot: int, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Take over a changed allocatable amount of a node."""
        if slot >= self._slots:
            for each in self._by_name.values():
                each.free.extend([0] * (slot + 1 - self._slots))
            self._slots = slot + 1
        for name in {*before, *after}:
            if change := after.get(name, 0) - before.get(name, 0):
                self.of(name).change(slot, change)

    def take(self, slot: int, requests: Resources) -> None:
        """Add a pod's requests."""
        for amounts, amount in self.shares(requests):
            amounts.change(slot, -amount)

    def give_back(self, slot: int, requests: Resources) -> None:
        """Remove a pod's requests."""
        for amounts, amount in self.shares(requests):
            amounts.change(slot, amount)

    def shares(self, requests: Resources) -> tuple[tuple[FreeAmounts, int], ...]:
        """Return what a pod with these requests uses of each resource, without zeros, its place as a pod first."""
        kept = self._shares.get(id(requests))
        if kept is not None:
            return kept[1]
        shares = (
            (self.of(POD_SLOTS), 1),
            *((self.of(name), amount) for name, amount in sorted(requests.items()) if amount and name != POD_SLOTS),
        )
        self._shares[id(requests)] = (requests, shares)  # Keep the map alive, so that its id stays unique.
        return shares
