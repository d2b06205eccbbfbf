"""Counts of pods by node and by topology domain, updated when pods come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from respread.scheduling.view.node_sets import NodeSet
from respread.scheduling.view.node_table import LabelColumn, NodeTable

_MOST_NUMBERS: Final = 16


class NodeTally:
    """The number of pods of some kind on each node."""

    __slots__ = ("by_domain", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """By slot; never 0."""
        self.by_domain: dict[tuple[str, NodeSet, bool], DomainCounts] = {}
        """The sums by domain: see `domain_counts`."""

    def change(self, slot: int, by: int) -> None:
        """Count pods on a node in or out."""
        count = self.counts.get(slot, 0) + by
        if count:
            self.counts[slot] = count
        else:
            del self.counts[slot]
        for domains in self.by_domain.values():
            domains.change(slot, by)


class DomainCounts:
    """A tally summed over the eligible nodes of each domain."""

    __slots__ = ("_above", "_column", "_domain_of", "_domains_with", "counts", "size")

    def __init__(self, tally: NodeTally, column: LabelColumn, domain_of: Sequence[str | None], size: int) -> None:
        """Sum a tally.

        Args:
            tally: the pods by node. It updates the sums from then on.
            column: the topology key.
            domain_of: by slot, the domain of each eligible node, and None for all others.
            size: the number of different domains.
        """
        self.counts: dict[str, int] = {}
        """By domain; never 0."""
        self.size = size
        self._column = column
        self._domain_of = domain_of
        for slot, count in tally.counts.items():
            if (domain := domain_of[slot]) is not None:
                self.counts[domain] = self.counts.get(domain, 0) + count
        self._domains_with = Counter(self.counts.values())
        self._above: dict[int, NodeSet] = {}

    @property
    def minimum(self) -> int:
        """The smallest count of any eligible domain; 0 if there are none."""
        return min(self._domains_with, default=0) if len(self.counts) == self.size else 0

    def change(self, slot: int, by: int) -> None:
        """Count pods on a node in or out."""
        domain = self._domain_of[slot]
        if domain is None:
            return
        before = self.counts.get(domain, 0)
        after = before + by
        if before:
            self._domains_with[before] -= 1
            if not self._domains_with[before]:
                del self._domains_with[before]
        if after:
            self._domains_with[after] += 1
            self.counts[domain] = after
        else:
            del self.counts[domain]
        for most in self._above:
            if (before > most) != (after > most):
                self._above[most] ^= self._column.nodes_with.get(domain, 0)

    def nodes_above(self, most: int) -> NodeSet:
        """Return the nodes, eligible or not, of the domains with more pods than this.

        The result is computed once for each number and then updated.
        """
        nodes = self._above.get(most)
        if nodes is None:
            nodes = 0
            for domain, count in self.counts.items():
                if count > most:
                    nodes |= self._column.nodes_with.get(domain, 0)
            if len(self._above) >= _MOST_NUMBERS:
                self._above.clear()
            self._above[most] = nodes
        return nodes

    def occupied_nodes(self) -> NodeSet:
        """Return the nodes, eligible or not, of the domains that have pods."""
        return self.nodes_above(0)

    def all_counts(self) -> dict[str, int]:
        """Return the counts of all eligible domains, including empty ones, sorted by domain."""
        domains = {domain for domain in self._domain_of if domain is not None}
        return {domain: self.counts.get(domain, 0) for domain in sorted(domains)}


def domain_counts(
    table: NodeTable, tally: NodeTally, key: str, eligible: NodeSet, *, keyless: bool = False
) -> DomainCounts:
    """Return a tally by the values of a topology key, over the eligible nodes that have it.

    Args:
        table: the nodes.
        tally: the pods by node.
        key: the topology key.
        eligible: the nodes that count.
        keyless: whether nodes without the key count too, as a domain called "".
    """
    at = (key, eligible, keyless)
    if (found := tally.by_domain.get(at)) is None:
        column = table.column(key)
        domain_of, size = table.derived(("domains", *at), _domains(column, eligible, keyless=keyless))
        found = tally.by_domain[at] = DomainCounts(tally, column, domain_of, size)
    return found


def _domains(
    column: LabelColumn, eligible: NodeSet, *, keyless: bool
) -> Callable[[], tuple[tuple[str | None, ...], int]]:
    def derive() -> tuple[tuple[str | None, ...], int]:
        if keyless:
            domain_of = tuple(
                (value or "") if eligible >> slot & 1 else None for slot, value in enumerate(column.values)
            )
        elif column.present & ~eligible:
            domain_of = tuple(value if eligible >> slot & 1 else None for slot, value in enumerate(column.values))
        else:
            domain_of = tuple(column.values)
        return domain_of, len(set(domain_of) - {None})

    return derive
