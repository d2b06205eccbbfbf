"""Terms of pod affinity and anti-affinity: which pods they match.

`matchLabelKeys` and `mismatchLabelKeys` are not evaluated, because the API server has already merged them into the
selectors (KEP 3633), and the scheduler only uses the selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from immutables import Map

from respread.cluster.meta import Labels
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod, PodAffinityTerm
from respread.cluster.selectors import NOTHING, Selector, compile_selector
from respread.scheduling.view.node_table import NodeSet, NodeTable
from respread.scheduling.view.pod_index import Namespaces, NodeTally, domain_counts

_NO_LABELS: Labels = Map()


class ExistingTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """A required anti-affinity term of pods that already have a node."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Labels) -> bool:
        """Return whether the term matches a pod, and so repels it."""
        return self.selector.matches(labels) and (
            namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        )


def _existing(pod: Pod, term: PodAffinityTerm) -> ExistingTerm:
    return ExistingTerm(
        term.topology_key,
        compile_selector(term.label_selector),
        _named(pod, term),
        NOTHING if term.namespace_selector is None else compile_selector(term.namespace_selector),
    )


class FiledTerms:
    """The terms that are filed under one namespace and label."""

    __slots__ = ("changes", "terms")

    def __init__(self) -> None:
        self.terms: list[tuple[ExistingTerm, NodeTally]] = []
        """In the order of arrival."""
        self.changes = 0
        """How often a tally has changed, or a term has arrived."""


class ExistingTerms:
    """The anti-affinity terms of all pods on nodes, with the number of pods of each node that have each term."""

    def __init__(self) -> None:
        self.by_label: dict[tuple[str | None, str, str], FiledTerms] = {}
        """By a namespace that the term names (None if it selects namespaces) and a label that matching pods have (two
        empty strings if unknown)."""
        self._tallies: dict[ExistingTerm, tuple[NodeTally, tuple[FiledTerms, ...]]] = {}
        self._of: dict[tuple[int, str], tuple[object, tuple[NodeTally, ...], tuple[FiledTerms, ...]]] = {}
        """The tallies of the terms of a spec in a namespace, and where these are filed."""
        self.kept = 0
        """The number of terms, and of values in their selectors, that are or were needed."""

    def change(self, pod: Pod, slot: int, by: int) -> None:
        """Add or remove a pod's terms on a node."""
        at = (id(pod.spec), pod.namespace)
        if (kept := self._of.get(at)) is None:
            filed = [self._file(_existing(pod, term)) for term in pod.spec.pod_anti_affinity]
            self.kept += 1 + len(filed)
            kept = self._of[at] = (  # Keep the spec alive, so that its id stays unique.
                pod.spec,
                tuple(tally for tally, _ in filed),
                tuple({id(each): each for _, places in filed for each in places}.values()),
            )
        for tally in kept[1]:
            tally.change(slot, by)
        for place in kept[2]:
            place.changes += 1

    def forget_domains(self) -> None:
        """Drop the sums by domain, because the nodes have changed."""
        for tally, _ in self._tallies.values():
            tally.by_domain = {}

    def _file(self, term: ExistingTerm) -> tuple[NodeTally, tuple[FiledTerms, ...]]:
        if (found := self._tallies.get(term)) is None:
            self.kept += 1 + term.selector.size + term.namespace_selector.size + len(term.namespaces)
            label = next(iter(term.selector.required), ("", ""))
            named = term.namespaces if term.namespace_selector.matches_nothing else (None,)
            places = tuple(self.by_label.setdefault((namespace, *label), FiledTerms()) for namespace in named)
            found = self._tallies[term] = NodeTally(), places
            for place in places:
                place.terms.append((term, found[0]))
        return found


class Repelling:
    """The terms among them that repel one pod, while the nodes stay the same."""

    __slots__ = ("_existing", "_found", "_nodes", "_pod", "_seen")

    def __init__(
        self, existing: ExistingTerms, namespace: str, namespace_labels: Mapping[str, str], labels: Labels
    ) -> None:
        self._existing = existing
        self._pod = (namespace, namespace_labels, labels)
        self._seen = {(where, *label): 0 for label in (*labels.items(), ("", "")) for where in (namespace, None)}
        self._found: dict[FiledTerms, list[tuple[str, NodeTally]]] = {}
        self._nodes: dict[FiledTerms, tuple[int, NodeSet]] = {}
        """For each place the nodes, and the number of changes at that time."""

    def terms(self) -> Iterator[tuple[str, NodeTally]]:
        """Yield the topology key of each, and the number of pods of each node that have it."""
        for _, found in self._places():
            yield from found

    def nodes(self, table: NodeTable) -> NodeSet:
        """Return the nodes from which they keep the pod.

        A single pod may have ten thousand terms. Only those are gone through again that may have changed.
        """
        repelling = 0
        for place, found in self._places():
            known = self._nodes.get(place)
            if known is None or known[0] != place.changes:
                nodes = 0
                for key, tally in found:
                    if tally.counts:
                        nodes |= domain_counts(table, tally, key, table.every).occupied_nodes()
                known = self._nodes[place] = place.changes, nodes
            repelling |= known[1]
        return repelling

    def _places(self) -> Iterator[tuple[FiledTerms, list[tuple[str, NodeTally]]]]:
        """Yield where terms are filed that may match the pod, with those that do."""
        by_label = self._existing.by_label
        for at, seen in self._seen.items():
            if (place := by_label.get(at)) is not None:
                found = self._found.setdefault(place, [])
                if seen < len(place.terms):
                    self._seen[at] = len(place.terms)
                    found += [
                        (term.topology_key, tally) for term, tally in place.terms[seen:] if term.matches(*self._pod)
                    ]
                if found:
                    yield place, found


class IncomingTerm(msgspec.Struct, frozen=True):
    """A required term of the pod to be placed, with its namespaces resolved."""

    topology_key: str
    selector: Selector
    namespaces: Namespaces

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Return whether the term matches a pod."""
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)


def incoming_terms(
    pod: Pod, terms: Iterable[PodAffinityTerm], namespaces: Mapping[str, Namespace], *, selector_kept: bool
) -> tuple[IncomingTerm, ...]:
    """Return the terms of a pod to be placed.

    A namespaceSelector adds the namespaces that it selects now to those that are named; `{}` selects all. Without
    either, the pod's own namespace is used. With the bug up to 1.36.3 (kubernetes#141526, `selector_kept`), the
    namespaceSelector is also evaluated against empty labels, so that one with only NotIn and DoesNotExist requirements
    matches every namespace.
    """
    return tuple(
        IncomingTerm(
            term.topology_key,
            compile_selector(term.label_selector),
            _resolved(pod, term, namespaces, selector_kept=selector_kept),
        )
        for term in terms
    )


def differs_by_quirk(term: PodAffinityTerm) -> bool:
    """Return whether the bug up to 1.36.3 (see `incoming_terms`) changes the meaning of a term."""
    if term.namespace_selector is None:
        return False
    selector = compile_selector(term.namespace_selector)
    return not selector.matches_everything and selector.matches(_NO_LABELS)


def _resolved(
    pod: Pod, term: PodAffinityTerm, namespaces: Mapping[str, Namespace], *, selector_kept: bool
) -> Namespaces:
    named = _named(pod, term)
    if term.namespace_selector is None:
        return named
    selector = compile_selector(term.namespace_selector)
    if selector.matches_everything or (selector_kept and selector.matches(_NO_LABELS)):
        return None
    return named | {each.name for each in namespaces.values() if selector.matches(each.labels)}


def _named(pod: Pod, term: PodAffinityTerm) -> frozenset[str]:
    if not term.namespaces and term.namespace_selector is None:
        return frozenset((pod.namespace,))
    return frozenset(term.namespaces)
