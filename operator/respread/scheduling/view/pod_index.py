"""The pods of a view by namespace and labels, and tallies of pods that selectors match.

Pods with the same labels are counted together. So a new tally adds up existing counts, and a pod that comes or goes
changes only the tallies that match its labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from respread.cluster.meta import Labels
from respread.cluster.selectors import Selector
from respread.scheduling.view.node_table import LabelColumn, NodeSet, NodeTable

Namespaces: TypeAlias = frozenset[str] | None
"""Names of namespaces; None for all namespaces."""


_TallyKey: TypeAlias = tuple[Namespaces, tuple[Selector, ...], bool]


class _Bucket:
    """The pods of one namespace with the same labels, by slot."""

    __slots__ = ("labels", "namespace", "present", "tallies_of_living", "tallies_of_present", "terminating")

    def __init__(self, namespace: str, labels: Labels) -> None:
        self.namespace = namespace
        self.labels = labels
        self.present: dict[int, int] = {}
        self.terminating: dict[int, int] | None = None
        self.tallies_of_present: tuple[NodeTally, ...] = ()
        self.tallies_of_living: tuple[NodeTally, ...] = ()

    def count(self, *, living: bool) -> Iterator[tuple[int, int]]:
        terminating = self.terminating
        if not living or not terminating:
            yield from self.present.items()
            return
        for slot, count in self.present.items():
            if rest := count - terminating.get(slot, 0):
                yield slot, rest

    def watch(self, tally: NodeTally, *, living: bool) -> None:
        if living:
            self.tallies_of_living += (tally,)
        else:
            self.tallies_of_present += (tally,)


class PodIndex:
    """The number of pods with each label set on each node, all *present* ones and only the *living* ones.

    Living pods are not terminating. Only unfinished pods on nodes of the view are counted.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, Labels], _Bucket] = {}
        self._by_namespace: dict[str, dict[_Bucket, None]] = {}
        self._by_label: dict[tuple[str, str, str], dict[_Bucket, None]] = {}
        self._tallies: dict[_TallyKey, NodeTally] = {}
        self._tallies_by_label: dict[tuple[str | None, str, str], list[_TallyKey]] = {}
        """By namespace (None for all) and a label that the pods must have, or two empty strings if unknown."""
        self.kept = 0
        """The number of labels, and of values in selectors, of all label sets and tallies that are or were needed."""

    def change(self, namespace: str, labels: Labels, slot: int, *, present: int, terminating: int) -> None:
        """Count pods on a node in or out.

        `present` is the change; 0 for a pod that starts to terminate. `terminating` is the change of the terminating
        pods among them.
        """
        bucket = self._buckets.get((namespace, labels))
        if bucket is None:
            bucket = self._new_bucket(namespace, labels)
        if present:
            _change(bucket.present, slot, present)
            for tally in bucket.tallies_of_present:
                tally.change(slot, present)
        if terminating:
            if bucket.terminating is None:
                bucket.terminating = {}
            _change(bucket.terminating, slot, terminating)
        if present != terminating:
            for tally in bucket.tallies_of_living:
                tally.change(slot, present - terminating)

    def tally(self, namespaces: Namespaces, selectors: tuple[Selector, ...], *, living: bool) -> NodeTally:
        """Return the tally of the pods of some namespaces that all the selectors match. It is kept up to date.

        There is at least one selector. If `living`, terminating pods are excluded.
        """
        at = (namespaces, selectors, living)
        if (tally := self._tallies.get(at)) is None:
            tally = self._tallies[at] = NodeTally()
            self.kept += 1 + sum(selector.size for selector in selectors) + len(namespaces or ())
            label = next((pair for selector in selectors for pair in selector.required), ("", ""))
            for namespace in (None,) if namespaces is None else namespaces:
                self._tallies_by_label.setdefault((namespace, *label), []).append(at)
            counts = tally.counts
            for bucket in self._matching(namespaces, selectors):
                bucket.watch(tally, living=living)
                for slot, count in bucket.count(living=living):
                    counts[slot] = counts.get(slot, 0) + count
        return tally

    def forget_domains(self) -> None:
        """Drop the sums by domain, because the nodes have changed."""
        for tally in self._tallies.values():
            tally.by_domain = {}

    def _matching(self, namespaces: Namespaces, selectors: tuple[Selector, ...]) -> Iterator[_Bucket]:
        required = {pair for selector in selectors for pair in selector.required}
        for namespace in self._by_namespace if namespaces is None else namespaces:
            having = [self._by_label.get((namespace, *pair), {}) for pair in required]
            candidates = min(having, key=len) if having else self._by_namespace.get(namespace, {})
            for bucket in candidates:
                if all(selector.matches(bucket.labels) for selector in selectors):
                    yield bucket

    def _new_bucket(self, namespace: str, labels: Labels) -> _Bucket:
        bucket = self._buckets[namespace, labels] = _Bucket(namespace, labels)
        self.kept += 1 + len(labels)
        self._by_namespace.setdefault(namespace, {})[bucket] = None
        for key, value in labels.items():
            self._by_label.setdefault((namespace, key, value), {})[bucket] = None
        for pair in (*labels.items(), ("", "")):
            for where in (namespace, None):
                for at in self._tallies_by_label.get((where, *pair), ()):
                    _, selectors, living = at
                    if all(selector.matches(labels) for selector in selectors):
                        bucket.watch(self._tallies[at], living=living)
        return bucket


def _change(counts: dict[int, int], slot: int, by: int) -> None:
    count = counts.get(slot, 0) + by
    if count:
        counts[slot] = count
    else:
        del counts[slot]


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
        """Sum a tally, which updates the sums from then on.

        `domain_of` has, by slot, the domain of each eligible node, and None for all others, and `size` is the number of
        different domains.
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

    If `keyless`, nodes without the key count too, as a domain called "".
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
        if keyless or column.present & ~eligible:
            values = (value or "" for value in column.values) if keyless else column.values
            domain_of = tuple(value if eligible >> slot & 1 else None for slot, value in enumerate(values))
        else:
            domain_of = tuple(column.values)
        return domain_of, len(set(domain_of) - {None})

    return derive
