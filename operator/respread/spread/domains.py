"""Topology domains: which nodes count for a constraint, and the value of the topology key for each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from immutables import Map

from respread.cluster.incremental import changed_keys
from respread.cluster.meta import Labels
from respread.cluster.objects import Node
from respread.cluster.pod import NodeInclusionPolicy, NodeSelector, PodSpec, Toleration, TopologySpreadConstraint
from respread.scheduling.filters.node_affinity import matches_node_affinity
from respread.scheduling.filters.taint_toleration import for_scheduling, untolerated_taint


class Eligibility(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What decides which nodes count: the fields of a pod and its constraint that PodTopologySpread uses for that.

    Two constraints with equal eligibility and topology key have the same domains. Affinity and tolerations are empty if
    the constraint's policy ignores them, so that they make no difference.
    """

    required_keys: tuple[str, ...]
    """The topology keys of all constraints of the pod with the same `whenUnsatisfiable`, sorted. A node without one of
    them counts for none."""
    node_affinity_policy: NodeInclusionPolicy
    node_taints_policy: NodeInclusionPolicy
    node_selector: Labels = Map()
    node_affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()


class Domains(msgspec.Struct, frozen=True):
    """The eligible domains of one topology key."""

    of_node: Mapping[str, str]
    """Node name to domain, eligible nodes only."""
    nodes: Mapping[str, tuple[str, ...]]
    """Domain to the names of its eligible nodes; never empty."""


def eligibility_of(spec: PodSpec, constraint: TopologySpreadConstraint, required_keys: tuple[str, ...]) -> Eligibility:
    """Return what makes nodes eligible for a constraint of pods.

    Args:
        spec: the spec of the pods.
        constraint: their own constraint or a default one.
        required_keys: as from `topology_spread.required_keys`.
    """
    honor_affinity = constraint.node_affinity_policy == "Honor"
    return Eligibility(
        required_keys=required_keys,
        node_affinity_policy=constraint.node_affinity_policy,
        node_taints_policy=constraint.node_taints_policy,
        node_selector=spec.node_selector if honor_affinity else Map(),
        node_affinity=spec.node_affinity if honor_affinity else None,
        tolerations=for_scheduling(spec.tolerations) if constraint.node_taints_policy == "Honor" else (),
    )


class DomainIndex:
    """The domains that were requested, updated from one set of nodes to the next."""

    __slots__ = ("_known", "_nodes", "_with_key")

    def __init__(self) -> None:
        self._nodes: Map[str, Node] = Map()
        self._known: dict[tuple[Eligibility, str], Domains] = {}
        self._with_key: dict[str, list[Node]] | None = None
        """The nodes with each label key, once that was asked. A pod may name ten thousand keys that no node has."""

    def advance(self, nodes: Map[str, Node]) -> None:
        """Take over the current nodes. Unchanged domains stay the same objects."""
        names = changed_keys(self._nodes, nodes)
        changed = {name: node for name in names if (node := nodes.get(name)) is not None}
        gone = [name for name in names if name not in nodes]
        self._known = {at: _after(domains, at, changed, gone) for at, domains in self._known.items()}
        if nodes is not self._nodes:
            self._nodes, self._with_key = nodes, None

    def of(self, eligibility: Eligibility, topology_key: str) -> Domains:
        """Return the domains of the eligible nodes for a topology key."""
        at = (eligibility, topology_key)
        if (found := self._known.get(at)) is None:
            found = self._known[at] = domains_of(eligibility, topology_key, self._nodes_with(topology_key))
        return found

    def _nodes_with(self, key: str) -> Iterable[Node]:
        if self._with_key is None:
            self._with_key = {}
            for node in self._nodes.values():
                for each in node.labels:
                    self._with_key.setdefault(each, []).append(node)
        return self._with_key.get(key, ())

    def forget_others(self, used: Collection[tuple[Eligibility, str]]) -> None:
        """Keep only some of the requested domains."""
        self._known = {at: domains for at, domains in self._known.items() if at in used}


def domains_of(eligibility: Eligibility, topology_key: str, nodes: Iterable[Node]) -> Domains:
    """Return the domains of the eligible nodes for a topology key."""
    return _domains(
        {node.name: domain for node in nodes if (domain := _domain_of(node, eligibility, topology_key)) is not None}
    )


def _domains(of_node: Mapping[str, str]) -> Domains:
    in_domain: dict[str, list[str]] = {}
    for node, domain in of_node.items():
        in_domain.setdefault(domain, []).append(node)
    return Domains(of_node, {domain: tuple(sorted(names)) for domain, names in in_domain.items()})


def _after(before: Domains, at: tuple[Eligibility, str], changed: Mapping[str, Node], gone: Iterable[str]) -> Domains:
    """Return domains after some nodes have changed and others are gone."""
    moved = {
        name: domain for name, node in changed.items() if (domain := _domain_of(node, *at)) != before.of_node.get(name)
    }
    moved.update((name, None) for name in gone if name in before.of_node)
    if not moved:
        return before
    together = {**before.of_node, **moved}
    return _domains({name: domain for name, domain in together.items() if domain is not None})


def _domain_of(node: Node, eligibility: Eligibility, topology_key: str) -> str | None:
    domain = node.labels.get(topology_key)
    return domain if domain is not None and _eligible(eligibility, node) else None


def _eligible(eligibility: Eligibility, node: Node) -> bool:
    if not all(key in node.labels for key in eligibility.required_keys):
        return False
    # If a policy ignores a field, it is empty here, and empty affinity matches every node.
    if not matches_node_affinity(eligibility.node_selector, eligibility.node_affinity, node):
        return False
    if eligibility.node_taints_policy == "Ignore":
        return True
    return untolerated_taint(eligibility.tolerations, node.taints) is None
