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
from respread.scheduling.view.pod_index import Namespaces
from respread.scheduling.view.tallies import NodeTally

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


def existing_terms(pod: Pod) -> Iterator[ExistingTerm]:
    """Yield the anti-affinity terms of a pod on a node."""
    for term in pod.spec.pod_anti_affinity:
        yield ExistingTerm(
            term.topology_key,
            compile_selector(term.label_selector),
            _named(pod, term),
            NOTHING if term.namespace_selector is None else compile_selector(term.namespace_selector),
        )


class ExistingTerms:
    """The anti-affinity terms of all pods on nodes, with the number of pods of each node that have each term."""

    __slots__ = ("_tallies", "_tallies_of", "by_label", "kept")

    def __init__(self) -> None:
        self.by_label: dict[tuple[str | None, str, str], list[tuple[ExistingTerm, NodeTally]]] = {}
        """By a namespace that the term names (None if it selects namespaces) and a label that matching pods have (two
        empty strings if unknown), in the order of arrival."""
        self._tallies: dict[ExistingTerm, NodeTally] = {}
        self._tallies_of: dict[tuple[int, str], tuple[object, tuple[NodeTally, ...]]] = {}
        self.kept = 0
        """The number of terms, and of values in their selectors, that are or were needed."""

    def change(self, pod: Pod, slot: int, by: int) -> None:
        """Add or remove a pod's terms on a node."""
        at = (id(pod.spec), pod.namespace)
        if (kept := self._tallies_of.get(at)) is None:
            tallies = tuple(self._tally(term) for term in existing_terms(pod))
            self.kept += 1 + len(tallies)
            kept = self._tallies_of[at] = (pod.spec, tallies)  # Keep the spec alive, so that its id stays unique.
        for tally in kept[1]:
            tally.change(slot, by)

    def forget_domains(self) -> None:
        """Drop the sums by domain, because the nodes have changed."""
        for tally in self._tallies.values():
            tally.by_domain = {}

    def _tally(self, term: ExistingTerm) -> NodeTally:
        if (tally := self._tallies.get(term)) is None:
            tally = self._tallies[term] = NodeTally()
            self.kept += 1 + term.selector.size + term.namespace_selector.size + len(term.namespaces)
            label = next(iter(term.selector.required), ("", ""))
            named = term.namespaces if term.namespace_selector.matches_nothing else (None,)
            for namespace in named:
                self.by_label.setdefault((namespace, *label), []).append((term, tally))
        return tally


class Repelling:
    """The terms among them that repel one pod."""

    __slots__ = ("_existing", "_found", "_pod", "_seen")

    def __init__(
        self, existing: ExistingTerms, namespace: str, namespace_labels: Mapping[str, str], labels: Labels
    ) -> None:
        self._existing = existing
        self._pod = (namespace, namespace_labels, labels)
        self._found: list[tuple[str, NodeTally]] = []
        self._seen = {(where, *label): 0 for label in (*labels.items(), ("", "")) for where in (namespace, None)}

    def terms(self) -> list[tuple[str, NodeTally]]:
        """Return the topology key of each, and the number of pods of each node that have it."""
        by_label = self._existing.by_label
        for at, seen in self._seen.items():
            terms = by_label.get(at)
            if terms is not None and seen < len(terms):
                self._seen[at] = len(terms)
                self._found.extend(
                    (term.topology_key, tally) for term, tally in terms[seen:] if term.matches(*self._pod)
                )
        return self._found


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
    either, the pod's own namespace is used.

    Args:
        pod: the pod to be placed.
        terms: the terms of its affinity or anti-affinity.
        namespaces: all namespaces.
        selector_kept: the bug up to 1.36.3 (kubernetes#141526): the namespaceSelector is also evaluated against empty
            labels, so that one with only NotIn and DoesNotExist requirements matches every namespace.
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
