"""The pods of a view by namespace and labels, and tallies of pods that selectors match.

Pods with the same labels are counted together. So a new tally adds up existing counts, and a pod that comes or goes
changes only the tallies that match its labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from respread.cluster.meta import Labels
from respread.cluster.selectors import Selector
from respread.scheduling.view.tallies import NodeTally

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

    __slots__ = ("_buckets", "_by_label", "_by_namespace", "_tallies", "_tallies_by_label", "kept")

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

        Args:
            namespace: the namespace of the pods.
            labels: the labels of the pods.
            slot: the slot of the node.
            present: the change; 0 for a pod that starts to terminate.
            terminating: the change of the terminating pods among them.
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

        Args:
            namespaces: the namespaces of the pods.
            selectors: selectors of their labels; at least one.
            living: whether terminating pods are excluded.
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
