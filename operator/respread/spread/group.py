"""Spread groups: a topology spread constraint with the pods that share it, its current counts and skew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, PodSpec, WorkloadName
from respread.cluster.selectors import Selector
from respread.scheduling.filters.node_affinity import describe_affinity, matches_node_affinity
from respread.scheduling.filters.taint_toleration import untolerated_taint
from respread.scheduling.view.node_sets import NodeSet
from respread.scheduling.view.node_table import NodeTable
from respread.spread.counts import Counts, Histogram, histogram_of
from respread.spread.domains import Domains, Eligibility


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
    of_slot: list[str | None] = [domains.of_node.get(name) if name else None for name in table.names]
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
            value = f"={taint.value}" if taint.value else ""
            return f"has the taint {taint.key}{value}:{taint.effect}, and nodeTaintsPolicy is Honor"
    return None
