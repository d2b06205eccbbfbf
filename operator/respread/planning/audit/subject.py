"""What the rules of the audit look at: a constraint of pods, and what is known about pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec
from immutables import Map

from respread.cluster.objects import Node
from respread.cluster.pod import PodSpec, TopologySpreadConstraint
from respread.scheduling.filters.node_affinity import matches_node_affinity
from respread.scheduling.filters.node_unschedulable import UNSCHEDULABLE_TAINT
from respread.scheduling.filters.taint_toleration import tolerates, untolerated_taint
from respread.scheduling.filters.topology_spread import minimum_is_zero
from respread.spread.carried import own_keys
from respread.spread.group import DomainIndex, Domains, GroupKey, Template


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A topology spread constraint of the pods of one template. What is not known makes no rule apply."""

    template: Template
    key: GroupKey
    """The constraint as it counts pods and nodes."""
    keys: tuple[GroupKey, ...]
    """All constraints of the template, in their order."""
    position: int | None
    """Which of the template's own constraints it is; None for a default constraint of the scheduler."""
    nodes: KnownNodes | None = None
    pods: int | None = None
    """How many pods it counts, with those that have no node yet; None if not known."""
    only_own: bool = False
    """Whether all pods that it counts have it themselves."""
    waiting: int = 0
    """How many pods that have it have no node, although the scheduler has tried."""
    counts: Mapping[str, int] = Map()
    """Pods by domain, as in a `SpreadGroup`."""

    @property
    def hard(self) -> bool:
        """Whether it is a DoNotSchedule constraint."""
        return self.key.when_unsatisfiable == "DoNotSchedule"

    @property
    def constraint(self) -> TopologySpreadConstraint | None:
        """The constraint as in the pod's spec; None for a default one."""
        own = self.template.spec.topology_spread_constraints
        return None if self.position is None else own[self.position]

    @property
    def counts_own_pods(self) -> bool:
        """Whether the pods that have it count. An empty selector counts no pod (`countPodsMatchSelector`)."""
        return counts_own(self.key, self.template)


def counts_own(key: GroupKey, template: Template) -> bool:
    """Return whether a constraint counts pods of a template."""
    return not key.selector.matches_everything and key.selector.matches(template.labels)


def subjects_of(
    namespace: str, template: Template, nodes: KnownNodes | None = None, replicas: int | None = None
) -> tuple[Subject, ...]:
    """Return the constraints of a template of which no pod needs to exist, such as that of a manifest.

    Nodes, and how many pods there are to be, are None if not known.
    """
    keys = own_keys(namespace, template)
    return tuple(
        Subject(
            template=template,
            key=key,
            keys=keys,
            position=position,
            nodes=nodes,
            pods=replicas if counts_own(key, template) else None,
            only_own=True,
        )
        for position, key in enumerate(keys)
    )


NOT_SELECTED: Final = "does not match the pods' nodeSelector or affinity"
"""Why such a node takes no pod."""


class KnownNodes:
    """The nodes of one moment. What is derived from them is kept."""

    def __init__(self, nodes: Map[str, Node], domains: DomainIndex | None = None) -> None:
        """Prepare. An index of domains has these nodes already; by default, it is a new one."""
        self.nodes = nodes
        if domains is None:
            domains = DomainIndex()
            domains.advance(nodes)
        self._domains = domains
        self._closed: dict[tuple[object, ...], Mapping[str, str]] = {}
        self._nested: dict[tuple[object, ...], Sequence[int] | None] = {}

    @cached_property
    def values(self) -> Mapping[str, frozenset[str]]:
        """The values of each label key."""
        found: dict[str, set[str]] = {}
        for node in self.nodes.values():
            for key, value in node.labels.items():
                found.setdefault(key, set()).add(value)
        return {key: frozenset(values) for key, values in found.items()}

    @cached_property
    def _out_of_use(self) -> Mapping[str, Node]:
        """The nodes that are cordoned or have a taint for which a pod needs a toleration."""
        return {
            name: node
            for name, node in self.nodes.items()
            if node.unschedulable or any(taint.effect != "PreferNoSchedule" for taint in node.taints)
        }

    def domains(self, key: GroupKey) -> Domains:
        """Return the domains of the nodes that count for a constraint."""
        return self._domains.of(key.eligibility, key.topology_key)

    def too_few(self, key: GroupKey) -> bool:
        """Return whether a constraint has fewer domains than its minDomains, so that the minimum counts as 0."""
        return minimum_is_zero(len(self.domains(key).nodes), key.min_domains)

    def closed(self, key: GroupKey, spec: PodSpec) -> Mapping[str, str]:
        """Return the domains that count for a constraint and whose nodes take no pod of a spec, with any room.

        Returns:
            The reason for one of the nodes, by domain: `node-7 is cordoned`.
        """
        at = (key.eligibility, key.topology_key, spec.tolerations, spec.node_selector, spec.node_affinity)
        if (found := self._closed.get(at)) is None:
            found = self._closed[at] = self._find_closed(key, spec)
        return found

    def takes(self, spec: PodSpec) -> bool:
        """Return whether some node takes pods of a spec, if it has room and no constraint objects."""
        return any(_why_closed(spec, node) is None for node in self.nodes.values())

    def lacking(self, keys: Iterable[str], spec: PodSpec) -> Mapping[str, int]:
        """Return how many nodes that take pods of a spec lack a label, by those of the keys that some lack."""
        taking = [node for node in self.nodes.values() if _why_closed(spec, node) is None]
        missing = {key: sum(key not in node.labels for node in taking) for key in keys}
        return {key: number for key, number in missing.items() if number}

    def nested(self, outer: GroupKey, inner: GroupKey, spec: PodSpec) -> Sequence[int] | None:
        """Return how many inner domains that take pods of a spec each outer domain has; None if they are not nested."""
        at = (
            *(outer.eligibility, outer.topology_key, inner.eligibility, inner.topology_key),
            *(spec.tolerations, spec.node_selector, spec.node_affinity),
        )
        if at not in self._nested:
            self._nested[at] = self._find_nested(outer, inner, spec)
        return self._nested[at]

    def _find_nested(self, outer: GroupKey, inner: GroupKey, spec: PodSpec) -> Sequence[int] | None:
        around, domains, closed = self.domains(outer), self.domains(inner), self.closed(inner, spec)
        inside = dict.fromkeys(around.nodes, 0)
        for domain, names in domains.nodes.items():
            outside = {around.of_node.get(name) for name in names}
            if len(outside) != 1 or None in outside:
                return None
            if domain not in closed:
                inside[next(iter(outside)) or ""] += 1
        return tuple(inside.values()) or None

    def _find_closed(self, key: GroupKey, spec: PodSpec) -> Mapping[str, str]:
        domains = self.domains(key)
        affine = key.eligibility.node_affinity_policy == "Honor" or not (spec.node_selector or spec.node_affinity)
        nodes = self._out_of_use if affine else self.nodes
        why = {
            name: reason
            for name, node in nodes.items()
            if name in domains.of_node and (reason := _why_closed(spec, node)) is not None
        }
        touched = {domains.of_node[name]: name for name in sorted(why, reverse=True)}
        return {
            domain: f"{name} {why[name]}"
            for domain, name in sorted(touched.items())
            if all(each in why for each in domains.nodes[domain])
        }


def _why_closed(spec: PodSpec, node: Node) -> str | None:
    if not matches_node_affinity(spec.node_selector, spec.node_affinity, node):
        return NOT_SELECTED
    if node.unschedulable and not tolerates(spec.tolerations, UNSCHEDULABLE_TAINT):
        return "is cordoned"
    if (taint := untolerated_taint(spec.tolerations, node.taints)) is None:
        return None
    return f"has the taint {taint}"
