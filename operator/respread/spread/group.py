"""Spread groups: one topology spread constraint as a set of pods share it, with its live counts and skew."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod, PodSpec, WhenUnsatisfiable
from respread.cluster.selectors import Selector
from respread.cluster.workload import WorkloadName
from respread.spread.domains import Domains, Eligibility


class GroupKey(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What makes two pods share a group: the scheduler would count the same pods in the same domains for both."""

    namespace: str
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    max_skew: int
    min_domains: int
    """1 where the constraint has none."""
    selector: Selector
    """The effective selector, `matchLabelKeys` applied."""
    eligibility: Eligibility

    def __str__(self) -> str:
        """Return the constraint as a person would write it down in a line."""
        domains = f", minDomains {self.min_domains}" if self.min_domains > 1 else ""
        return (
            f"{self.topology_key} (maxSkew {self.max_skew}{domains}, {self.when_unsatisfiable})"
            f" of {self.selector} in {self.namespace}"
        )


class Template(msgspec.Struct, frozen=True):
    """What pods that a controller made from one template have in common: replacements have it too."""

    labels: Labels
    spec: PodSpec
    controller: OwnerReference | None = None
    """Whose pods they are, where they have no constraints of their own: the selector of default ones depends on it."""

    @property
    def identity(self) -> tuple[Labels, int, OwnerReference | None]:
        """What is equal for equal templates of pods that exist, and quick to look up."""
        return self.labels, id(self.spec), self.controller


def template_of(pod: Pod) -> Template:
    """Return the template of a pod."""
    return Template(pod.labels, pod.spec, None if pod.spec.topology_spread_constraints else pod.controller)


class SpreadGroup(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A spread group as it stands.

    The skew of a domain is its matching pods minus the global minimum, which is the least count over the eligible
    domains, or 0 where there are fewer of them than minDomains (PodTopologySpread's `minMatchNum`).
    """

    key: GroupKey
    domains: Domains
    counts: Mapping[str, int]
    """Matching pods per eligible domain; domains without any are left out."""
    matched: tuple[Labels, ...]
    """The label sets of the namespace's pods that the selector matches."""
    carriers: tuple[Template, ...]
    """The templates whose pods carry the constraint."""
    workloads: tuple[WorkloadName, ...]
    """Whose pods carry it, sorted."""

    @cached_property
    def minimum(self) -> int:
        """The global minimum."""
        domains = len(self.domains.nodes)
        if domains < self.key.min_domains or len(self.counts) < domains or not domains:
            return 0
        return min(self.counts.values())

    @cached_property
    def skew(self) -> int:
        """The largest skew of any domain."""
        return max(self.counts.values(), default=0) - self.minimum if self.counts else 0

    @property
    def violated(self) -> bool:
        """Whether some domain holds more pods than the minimum and maxSkew allow."""
        return self.skew > self.key.max_skew

    @cached_property
    def excess(self) -> int:
        """How many pods are above what the minimum and maxSkew allow, summed over the domains."""
        most = self.minimum + self.key.max_skew
        return sum(count - most for count in self.counts.values() if count > most)

    def too_full(self, node: str) -> str | None:
        """Return the domain of a node if it holds more pods than the minimum and maxSkew allow, else None."""
        domain = self.domains.of_node.get(node)
        if domain is None or self.count(domain) <= self.minimum + self.key.max_skew:
            return None
        return domain

    def count(self, domain: str) -> int:
        """Return the matching pods of an eligible domain."""
        return self.counts.get(domain, 0)

    def all_counts(self) -> dict[str, int]:
        """Return the matching pods of every eligible domain, the empty ones included, sorted by name."""
        return {domain: self.counts.get(domain, 0) for domain in sorted(self.domains.nodes)}
