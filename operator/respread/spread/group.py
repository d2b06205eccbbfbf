"""Spread groups: a topology spread constraint with the pods that share it, its eligible domains, counts and skew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
from immutables import Map

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.incremental import changed_keys
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.objects import Node
from respread.cluster.pod import (
    NodeInclusionPolicy,
    NodeSelector,
    Pod,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
    WorkloadName,
)
from respread.cluster.selectors import Selector
from respread.scheduling.filters.node_affinity import describe_affinity, matches_node_affinity
from respread.scheduling.filters.taint_toleration import for_scheduling, untolerated_taint
from respread.scheduling.filters.topology_spread import required_keys
from respread.scheduling.view.node_table import NodeSet, NodeTable
from respread.spread.counts import Counts, Histogram, histogram_of


class GroupKey(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Two pods share a group if the scheduler counts the same pods in the same domains for both."""

    namespace: str
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    max_skew: int
    min_domains: int
    """1 if the constraint has none."""
    selector: Selector
    """The effective selector, including `matchLabelKeys`."""
    eligibility: Eligibility

    def counts(self, by_domain: Mapping[str, int], domains: int) -> Counts:
        """Return the counts of so many eligible domains. Empty ones need not be given."""
        return Counts(histogram_of(by_domain, domains), self.max_skew, self.min_domains)

    def __str__(self) -> str:
        """Return the constraint in a readable line."""
        domains = f", minDomains {self.min_domains}" if self.min_domains > 1 else ""
        return (
            f"{self.topology_key} (maxSkew {self.max_skew}{domains}, {self.when_unsatisfiable})"
            f" of {self.selector} in {self.namespace}"
        )


class Template(msgspec.Struct, frozen=True):
    """What pods from one template have in common, and their replacements too."""

    labels: Labels
    spec: PodSpec
    controller: OwnerReference | None = None
    """The controller, if the pods have no constraints of their own, because the selector of default ones depends on
    it."""

    @property
    def identity(self) -> tuple[Labels, int, OwnerReference | None]:
        """Values that are equal for equal templates of existing pods, and fast to look up."""
        return self.labels, id(self.spec), self.controller


def template_of(pod: Pod) -> Template:
    """Return the template of a pod."""
    return Template(pod.labels, pod.spec, None if pod.spec.topology_spread_constraints else pod.controller)


class SpreadGroup(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A spread group with its current counts."""

    key: GroupKey
    domains: Domains
    counts: Mapping[str, int]
    """Matching pods per eligible domain, without empty domains."""
    matched: tuple[Labels, ...]
    """The label sets of the namespace's pods that the selector matches."""
    carriers: tuple[Template, ...]
    """The templates of the pods that have the constraint."""
    workloads: tuple[WorkloadName, ...]
    """The workloads whose pods have the constraint, sorted."""

    @cached_property
    def levels(self) -> Counts:
        """How many domains have how many pods."""
        return self.key.counts(self.counts, len(self.domains.nodes))

    @property
    def minimum(self) -> int:
        """The global minimum."""
        return self.levels.minimum

    @cached_property
    def skew(self) -> int:
        """The largest skew of any domain."""
        return self.levels.skew

    @property
    def violated(self) -> bool:
        """Whether a domain has more pods than the limit."""
        return self.skew > self.key.max_skew

    @property
    def excess(self) -> int:
        """The pods above the limit, summed over the domains."""
        return self.levels.excess

    def too_full(self, node: str) -> str | None:
        """Return the domain of a node if it has more pods than the limit, else None."""
        domain = self.domains.of_node.get(node)
        return domain if domain is not None and self.count(domain) > self.levels.limit else None

    def count(self, domain: str) -> int:
        """Return the matching pods of an eligible domain."""
        return self.counts.get(domain, 0)

    def all_counts(self) -> dict[str, int]:
        """Return the matching pods of every eligible domain, including empty ones, sorted by name."""
        return {domain: self.counts.get(domain, 0) for domain in sorted(self.domains.nodes)}


class DomainMap(msgspec.Struct, frozen=True):
    """A group's eligible domains by the slots of nodes."""

    of_slot: Sequence[str | None]
    """None for nodes that don't count."""
    nodes: dict[str, NodeSet]
    """By domain; never empty."""
    single: bool
    """Whether every domain is a single node."""
    eligible: NodeSet
    size: int
    """The number of domains."""

    def closed(self, reachable: NodeSet, counts: Mapping[str, int]) -> Histogram:
        """Return the counts of the domains that contain none of some nodes."""
        histogram: Counter[int] = Counter()
        if self.single:
            closed = self.eligible & ~reachable
            if not closed:
                return ()
            histogram.update(count for domain, count in counts.items() if self.nodes[domain] & closed)
            histogram[0] += closed.bit_count() - histogram.total()
        else:
            histogram.update(counts.get(domain, 0) for domain, nodes in self.nodes.items() if not nodes & reachable)
        return tuple(sorted(pair for pair in histogram.items() if pair[1]))


def domain_map(table: NodeTable, group: SpreadGroup) -> DomainMap:
    """Return a group's domains by slots. Groups of equal eligibility share them."""
    key = ("spread domains", group.key.eligibility, group.key.topology_key)
    return table.derived(key, lambda: _domain_map(table, group.domains))


def _domain_map(table: NodeTable, domains: Domains) -> DomainMap:
    of_slot: list[str | None] = [domains.of_node.get(name) for name in table.names]
    single = len(domains.of_node) == len(domains.nodes)
    eligible = 0
    nodes: dict[str, NodeSet] = {}
    for domain, names in domains.nodes.items():
        together = 0
        for name in names:
            together |= 1 << table.slot_of[name]
        eligible |= together
        nodes[domain] = together
    return DomainMap(of_slot, nodes, single, eligible, len(domains.nodes))


class IneligibleNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that don't count for the same reason."""

    domain: str | None
    """Their value of the topology key; None without the label."""
    why: str
    nodes: tuple[str, ...]
    """Their names, sorted; never empty."""


def ineligible_nodes(group: SpreadGroup, nodes: Iterable[Node]) -> list[IneligibleNodes]:
    """Return the nodes that don't count for a group, grouped by reason."""
    alike: dict[tuple[str | None, str], list[str]] = {}
    key = group.key
    for node in nodes:
        if (why := why_ineligible(key.eligibility, key.topology_key, node)) is not None:
            alike.setdefault((node.labels.get(key.topology_key), why), []).append(node.name)
    return [
        IneligibleNodes(domain=domain, why=why, nodes=tuple(sorted(names)))
        for (domain, why), names in sorted(alike.items(), key=lambda each: (each[0][0] or "", each[0][1]))
    ]


def why_ineligible(eligibility: Eligibility, topology_key: str, node: Node) -> str | None:
    """Return why a node belongs to no domain of a topology key, such as `has no label rack`; None if it does."""
    for key in (topology_key, *eligibility.required_keys):
        if key not in node.labels:
            return f"has no label {key}"
    if not matches_node_affinity(eligibility.node_selector, eligibility.node_affinity, node):
        return f"does not satisfy {describe_affinity(eligibility.node_selector, eligibility.node_affinity)}"
    if eligibility.node_taints_policy == "Honor":
        taint = untolerated_taint(eligibility.tolerations, node.taints)
        if taint is not None:
            return f"has the taint {taint}, and nodeTaintsPolicy is Honor"
    return None


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


def eligibility_of(
    spec: PodSpec, constraint: TopologySpreadConstraint, together: Iterable[TopologySpreadConstraint]
) -> Eligibility:
    """Return what makes nodes eligible for a constraint of pods, their own or a default one.

    Nodes need the topology keys of all those constraints `together` with it that are of its kind.
    """
    honor_affinity = constraint.node_affinity_policy == "Honor"
    return Eligibility(
        required_keys=required_keys(together, constraint.when_unsatisfiable),
        node_affinity_policy=constraint.node_affinity_policy,
        node_taints_policy=constraint.node_taints_policy,
        node_selector=spec.node_selector if honor_affinity else Map(),
        node_affinity=spec.node_affinity if honor_affinity else None,
        tolerations=for_scheduling(spec.tolerations) if constraint.node_taints_policy == "Honor" else (),
    )


class DomainIndex:
    """The domains that were requested, updated from one set of nodes to the next."""

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
    if domain is None or not all(key in node.labels for key in eligibility.required_keys):
        return None
    # If a policy ignores a field, it is empty here, and empty affinity matches every node.
    if not matches_node_affinity(eligibility.node_selector, eligibility.node_affinity, node):
        return None
    honors_taints = eligibility.node_taints_policy == "Honor"
    return None if honors_taints and untolerated_taint(eligibility.tolerations, node.taints) else domain
