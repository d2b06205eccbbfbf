"""What nodes have for pods: the free amount of each resource, which nodes have enough, and the host ports in use."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from respread.cluster.pod import HostPort, Resources
from respread.scheduling.view.node_table import NodeSet, node_set

POD_SLOTS: Final = "pods"
"""The resource of which every pod uses one, whatever it requests."""

_MOST_THRESHOLDS: Final = 1024


class _Amounts(dict[int, int]):
    """Amounts by slot; 0 for all others.

    A pod may request tens of thousands of resources that no node has. A list of all nodes for each takes gigabytes.
    """

    __slots__ = ()

    def __missing__(self, slot: int) -> int:
        return 0


class FreeAmounts:
    """One resource over all nodes: allocatable minus requested, in the units of `Resources`; may be negative.

    For each amount that is requested, the set of nodes that have it is computed once and then updated. A changed node
    affects only the amounts between its old and its new free amount.
    """

    __slots__ = ("_amounts", "_enough", "free")

    def __init__(self) -> None:
        self.free: dict[int, int] = _Amounts()
        """By slot; 0 if there is no node, or if it does not list the resource and no pod there requests it."""
        self._amounts: list[int] = []
        self._enough: list[NodeSet] = []

    def at_least(self, amount: int) -> NodeSet:
        """Return the nodes that have this amount free. The amount is above 0."""
        position = bisect_left(self._amounts, amount)
        if position < len(self._amounts) and self._amounts[position] == amount:
            return self._enough[position]
        if len(self._amounts) >= _MOST_THRESHOLDS:
            self._amounts, self._enough = [], []
        enough = node_set([slot for slot, free in self.free.items() if free >= amount])
        self._amounts.insert(position, amount)
        self._enough.insert(position, enough)
        return enough

    def change(self, slot: int, by: int) -> None:
        """Add to the free amount of a node; the change may be negative."""
        before = self.free[slot]
        after = before + by
        if after:
            self.free[slot] = after
        else:
            self.free.pop(slot, None)
        if self._amounts:
            low, high = sorted((before, after))
            for position in range(bisect_right(self._amounts, low), bisect_right(self._amounts, high)):
                self._enough[position] ^= 1 << slot


class FreeResources:
    """Every resource over all nodes."""

    def __init__(self) -> None:
        self._by_name: dict[str, FreeAmounts] = {POD_SLOTS: FreeAmounts()}
        self._shares: dict[int, tuple[Resources, tuple[tuple[FreeAmounts, int], ...]]] = {}
        self._shares_kept = 0

    @property
    def kept(self) -> int:
        """The number of resources, and of shares of different requests in them, that are or were needed."""
        return len(self._by_name) + self._shares_kept

    def of(self, name: str) -> FreeAmounts:
        """Return one resource."""
        if (found := self._by_name.get(name)) is None:
            found = self._by_name[name] = FreeAmounts()
        return found

    def set_allocatable(self, slot: int, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Take over a changed allocatable amount of a node."""
        for name in {*before, *after}:
            self.of(name).change(slot, after.get(name, 0) - before.get(name, 0))

    def take(self, slot: int, requests: Resources, times: int = 1) -> None:
        """Add a pod's requests, or remove them with -1 times."""
        kept = self._shares.get(id(requests))
        for amounts, amount in self._share(requests) if kept is None else kept[1]:
            amounts.change(slot, -times * amount)

    def _share(self, requests: Resources) -> tuple[tuple[FreeAmounts, int], ...]:
        """Return what a pod with these requests uses of each resource, its place as a pod first."""
        shares = (
            (self.of(POD_SLOTS), 1),
            *((self.of(name), amount) for name, amount in sorted(requests.items()) if name != POD_SLOTS),
        )
        self._shares_kept += len(shares)
        self._shares[id(requests)] = (requests, shares)  # Keep the map alive, so that its id stays unique.
        return shares


EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the API's own word for "every address of the node"


class UsedPorts:
    """The host ports that pods use on their nodes."""

    def __init__(self) -> None:
        self._in_use: dict[tuple[str, int], dict[int, Counter[str]]] = {}
        """Protocol and port, then slot, then address, with the number of pods."""

    def take(self, slot: int, ports: Iterable[HostPort], times: int = 1) -> None:
        """Add a pod's ports, or remove them with -1 times."""
        for port in ports:
            at = self._in_use.setdefault((port.protocol, port.port), {})
            addresses = at.setdefault(slot, Counter())
            addresses[port.host_ip] += times
            if not addresses[port.host_ip]:
                del addresses[port.host_ip]
                if not addresses:
                    del at[slot]

    def conflicts(self, port: HostPort) -> Iterator[int]:
        """Yield the slots of the nodes where a port is already in use.

        `0.0.0.0` conflicts with every address. `::` is an address like any other.
        """
        for slot, addresses in self._in_use.get((port.protocol, port.port), {}).items():
            if port.host_ip == EVERY_ADDRESS or EVERY_ADDRESS in addresses or port.host_ip in addresses:
                yield slot
