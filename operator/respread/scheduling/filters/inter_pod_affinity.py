"""InterPodAffinity: required affinity and anti-affinity between the pod and the pods on nodes, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from immutables import Map

from respread.cluster.meta import Labels
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_table import NodeSet, NodeTable
from respread.scheduling.view.pod_affinity_terms import ExistingTerms, IncomingTerm, Repelling, incoming_terms
from respread.scheduling.view.pod_index import DomainCounts, Namespaces, NodeTally, PodIndex, domain_counts

_NO_LABELS: Labels = Map()


class InterPodAffinity:
    """The filter. Terminating pods count like all others."""

    __slots__ = ("_affinity", "_anti_affinity", "_repelling", "_table", "affinity_terms", "anti_affinity_terms")
    plugin: ClassVar[Plugin] = "InterPodAffinity"

    def __init__(
        self,
        table: NodeTable,
        pods: PodIndex,
        existing: ExistingTerms,
        pod: Pod,
        namespaces: Mapping[str, Namespace],
        *,
        selector_kept: bool,
    ) -> None:
        """Prepare the filter for a pod.

        `existing` has the anti-affinity terms of the pods on nodes, and `selector_kept` is the bug up to 1.36.3; see
        `incoming_terms`.
        """
        own, spec = namespaces.get(pod.namespace), pod.spec
        self._table = table
        self._repelling = Repelling(existing, pod.namespace, _NO_LABELS if own is None else own.labels, pod.labels)
        self.affinity_terms = incoming_terms(pod, spec.pod_affinity, namespaces, selector_kept=selector_kept)
        """The pod's own affinity terms."""
        self.anti_affinity_terms = incoming_terms(pod, spec.pod_anti_affinity, namespaces, selector_kept=selector_kept)
        """Its own anti-affinity terms."""
        self._affinity = _Affinity(table, pods, pod, self.affinity_terms) if self.affinity_terms else None
        self._anti_affinity = [
            (term, pods.tally(term.namespaces, (term.selector,), living=False)) for term in self.anti_affinity_terms
        ]

    @property
    def is_first_of_its_set(self) -> bool:
        """Whether the pod has affinity to pods like itself, and none of them is on a node."""
        return self._affinity is not None and self._affinity.is_first

    @property
    def has_terms(self) -> bool:
        """Whether the pod has terms, or a pod on a node has an anti-affinity term that matches it."""
        return bool(self.affinity_terms or self.anti_affinity_terms or any(True for _ in self._repelling.terms()))

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that no term of either side excludes."""
        if self._affinity is not None:
            nodes &= self._affinity.nodes()
        for term, tally in self._anti_affinity:
            nodes &= ~self._domains(tally, term.topology_key).occupied_nodes()
        return nodes & ~self._repelling.nodes(self._table)

    def reject(self, slot: int) -> Rejection | None:
        """Return which term excludes the node."""
        if self._affinity is not None and not self._affinity.nodes() >> slot & 1:
            return Rejection(self.plugin, self._affinity.why_not(slot))
        for term, tally in self._anti_affinity:
            if self._domains(tally, term.topology_key).occupied_nodes() >> slot & 1:
                domain = self._table.column(term.topology_key).values[slot]
                return Rejection(
                    self.plugin,
                    f"the pod's anti-affinity keeps it from {term.topology_key} {domain}, which has pods that match "
                    f"{term.selector}",
                )
        repelling = [
            key for key, tally in self._repelling.terms() if self._domains(tally, key).occupied_nodes() >> slot & 1
        ]
        if repelling:
            key = min(repelling)
            domain = self._table.column(key).values[slot]
            return Rejection(self.plugin, f"the anti-affinity of pods in {key} {domain} keeps the pod from it")
        return None

    def _domains(self, tally: NodeTally, key: str) -> DomainCounts:
        return domain_counts(self._table, tally, key, self._table.every)


class _Affinity:
    """Required affinity: for the key of each term, the node's domain must contain a pod that all terms match.

    The first pod of a set with affinity to itself is accepted if no such pod exists anywhere.
    """

    __slots__ = ("_matches_itself", "_table", "_tally", "_terms")

    def __init__(self, table: NodeTable, pods: PodIndex, pod: Pod, terms: Sequence[IncomingTerm]) -> None:
        self._table = table
        self._terms = terms
        self._matches_itself = all(term.matches(pod.namespace, pod.labels) for term in terms)
        self._tally = pods.tally(
            _common_namespaces(terms), tuple(dict.fromkeys(term.selector for term in terms)), living=False
        )

    @property
    def is_first(self) -> bool:
        """Whether the pod matches its own terms, and no pod on a node does."""
        return self._matches_itself and not any(
            domain_counts(self._table, self._tally, term.topology_key, self._table.every).counts for term in self._terms
        )

    def nodes(self) -> NodeSet:
        """Return the nodes that satisfy it."""
        if not self.is_first:
            admitted = self._table.every
            for key in {term.topology_key: None for term in self._terms}:
                admitted &= domain_counts(self._table, self._tally, key, self._table.every).occupied_nodes()
            return admitted
        with_keys = self._table.every
        for term in self._terms:
            with_keys &= self._table.column(term.topology_key).present
        return with_keys

    def why_not(self, slot: int) -> str:
        """Return what a node lacks that does not satisfy it."""
        for term in self._terms:
            domain = self._table.column(term.topology_key).values[slot]
            if domain is None:
                return f"the pod's affinity needs the label {term.topology_key}, which the node has not"
            if not domain_counts(self._table, self._tally, term.topology_key, self._table.every).counts.get(domain):
                return (
                    f"the pod's affinity needs a pod that matches {term.selector} in {term.topology_key} {domain}, and "
                    "none there matches all its terms"
                )
        return "the pod's affinity is not satisfied"


def _common_namespaces(terms: Sequence[IncomingTerm]) -> Namespaces:
    common: Namespaces = None
    for term in terms:
        if term.namespaces is not None:
            common = term.namespaces if common is None else common & term.namespaces
    return common
