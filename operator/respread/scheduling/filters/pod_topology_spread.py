"""PodTopologySpread: the filter for DoNotSchedule constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from respread.cluster.pod import Pod
from respread.cluster.selectors import NOTHING
from respread.scheduling.filters.node_affinity import own_nodes
from respread.scheduling.filters.taint_toleration import tolerated_nodes
from respread.scheduling.filters.topology_spread import SpreadConstraint, minimum_is_zero
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_table import NodeSet, NodeTable
from respread.scheduling.view.pod_index import DomainCounts, NodeTally, PodIndex, domain_counts


class HardConstraint:
    """A DoNotSchedule constraint with its current counts."""

    __slots__ = ("_present", "constraint", "domains")

    def __init__(self, constraint: SpreadConstraint, domains: DomainCounts, present: NodeSet) -> None:
        self.constraint = constraint
        self.domains = domains
        """Matching pods of each eligible domain."""
        self._present = present

    @property
    def minimum(self) -> int:
        """The global minimum: the smallest count, or 0 if there are fewer eligible domains than minDomains."""
        return 0 if self.too_few else self.domains.minimum

    @property
    def too_few(self) -> bool:
        """Whether there are fewer eligible domains than minDomains."""
        return minimum_is_zero(self.domains.size, self.constraint.min_domains)

    @property
    def most(self) -> int:
        """The most matching pods that a domain may have to accept one more pod like this one."""
        return self.constraint.max_skew + self.minimum - self.constraint.self_match

    def admitted(self) -> NodeSet:
        """Return the nodes that the constraint accepts for the pod."""
        return self._present & ~self.domains.nodes_above(self.most)


class PodTopologySpread:
    """The filter, for a pod with DoNotSchedule constraints."""

    __slots__ = ("_table", "constraints")
    plugin: ClassVar[Plugin] = "PodTopologySpread"

    def __init__(self, table: NodeTable, constraints: Sequence[HardConstraint]) -> None:
        self._table = table
        self.constraints = constraints

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that all constraints accept."""
        for each in self.constraints:
            nodes &= each.admitted()
        return nodes

    def reject(self, slot: int) -> Rejection | None:
        """For the first constraint that rejects the node, return its domain's count and the minimum."""
        for each in self.constraints:
            if each.admitted() >> slot & 1:
                continue
            key = each.constraint.topology_key
            domain = self._table.column(key).values[slot]
            if domain is None:
                return Rejection(self.plugin, f"has no label {key}, which the pod's constraint asks for")
            return Rejection(self.plugin, f"{key} {domain or repr(domain)} {_skew(each, domain)}")
        return None


def _skew(hard: HardConstraint, domain: str) -> str:
    constraint = hard.constraint
    count = hard.domains.counts.get(domain, 0)
    why = f" for want of {constraint.min_domains} domains" if hard.too_few else ""
    return (
        f"has {count} matching pods, where the minimum is {hard.minimum}{why}: with the pod the skew would be "
        f"{count + constraint.self_match - hard.minimum}, above maxSkew {constraint.max_skew}"
    )


def prepare(
    table: NodeTable, pods: PodIndex, pod: Pod, constraints: Sequence[SpreadConstraint]
) -> PodTopologySpread | None:
    """Return the filter for a pod with these effective DoNotSchedule constraints, or None if there are none."""
    if not constraints:
        return None
    keys = {each.topology_key for each in constraints}
    return PodTopologySpread(
        table,
        [
            HardConstraint(
                each,
                domain_counts(
                    table, matching_pods(pods, pod, each), each.topology_key, eligible_nodes(table, pod, each, keys)
                ),
                table.column(each.topology_key).present,
            )
            for each in constraints
        ],
    )


def matching_pods(pods: PodIndex, pod: Pod, constraint: SpreadConstraint) -> NodeTally:
    """Return the pods that a constraint counts, by node. An empty selector counts none (`countPodsMatchSelector`)."""
    selector = NOTHING if constraint.selector.matches_everything else constraint.selector
    return pods.tally(frozenset((pod.namespace,)), (selector,), living=True)


def eligible_nodes(
    table: NodeTable, pod: Pod, constraint: SpreadConstraint, required_keys: frozenset[str] | set[str]
) -> NodeSet:
    """Return the nodes that count for a constraint: their pods do, and their domains exist even without pods.

    By default, tainted, cordoned and not Ready nodes count. KEP 3094 defines the two policies. Free resources and
    readiness make no difference. `required_keys` are those of all constraints of the pod of the same kind.
    """
    nodes = table.every
    for key in required_keys:
        if not nodes:
            break
        nodes &= table.column(key).present
    if constraint.node_affinity_policy == "Honor":
        nodes &= own_nodes(table, pod)
    if constraint.node_taints_policy == "Honor":
        nodes &= tolerated_nodes(table, pod.spec.tolerations)
    return nodes
