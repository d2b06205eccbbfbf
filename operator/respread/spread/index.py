"""The spread of a whole cluster, kept up to date from one snapshot to the next.

Snapshots share what has not changed between them (see `cluster.state`), so what was worked out from a part is kept for
as long as the part is the same object: a pod's change costs work in its own namespace only, there only for the label
set it has and for the groups that count it, and a node's change only where it changes a domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec
from immutables import Map

from respread.cluster.meta import Labels
from respread.cluster.node import Node
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.cluster.workload import WorkloadName, workload_of
from respread.scheduling.topology_spread import counts_as_pod, effective_selector
from respread.spread.domains import Domains, Eligibility, domains_of, eligibility_of
from respread.spread.group import GroupKey, SpreadGroup, Template


class Spread(msgspec.Struct, frozen=True):
    """Every spread group of a snapshot."""

    groups: Mapping[GroupKey, SpreadGroup]
    by_namespace: Mapping[str, Mapping[GroupKey, SpreadGroup]]


def spread_of(snapshot: ClusterSnapshot) -> Spread:
    """Return the spread groups of a snapshot."""
    return SpreadIndex().update(snapshot)


def group_keys_of(pod: Pod) -> tuple[GroupKey, ...]:
    """Return the group of each of a pod's topology spread constraints, in their order."""
    return _group_keys(pod.namespace, Template(pod.labels, pod.spec))


class SpreadIndex:
    """Keeps what it derived from the last snapshot and works out only what the next one changes."""

    __slots__ = ("_domains", "_namespaces", "_nodes", "_spread")

    def __init__(self) -> None:
        self._nodes: Map[str, Node] = Map()
        self._domains: dict[tuple[Eligibility, str], Domains] = {}
        self._namespaces: dict[str, _NamespaceSpread] = {}
        self._spread = Spread({}, {})

    def update(self, snapshot: ClusterSnapshot) -> Spread:
        """Return the spread groups of a snapshot, cheaply if it comes from the one before."""
        nodes_changed = snapshot.nodes is not self._nodes
        if nodes_changed:
            self._nodes = snapshot.nodes
            self._refresh_domains()
        namespaces: dict[str, _NamespaceSpread] = {}
        changed = len(self._namespaces) != len(snapshot.pods_by_labels)
        for name, pods in snapshot.pods_by_labels.items():
            before = self._namespaces.get(name)
            if before is not None and before.pods is pods and not nodes_changed:
                namespaces[name] = before
                continue
            namespaces[name] = _namespace_spread(name, pods, before, self._domains_for)
            changed = changed or before is None or namespaces[name].groups != before.groups
        self._namespaces = namespaces
        if changed:
            self._drop_unused_domains()
            self._spread = Spread(
                groups={key: group for each in namespaces.values() for key, group in each.groups.items()},
                by_namespace={name: each.groups for name, each in namespaces.items()},
            )
        return self._spread

    def _domains_for(self, eligibility: Eligibility, topology_key: str) -> Domains:
        at = (eligibility, topology_key)
        if (found := self._domains.get(at)) is None:
            found = self._domains[at] = domains_of(eligibility, topology_key, self._nodes.values())
        return found

    def _refresh_domains(self) -> None:
        for at, before in self._domains.items():
            now = domains_of(*at, self._nodes.values())
            if now != before:
                self._domains[at] = now

    def _drop_unused_domains(self) -> None:
        used = {(key.eligibility, key.topology_key) for each in self._namespaces.values() for key in each.groups}
        self._domains = {at: domains for at, domains in self._domains.items() if at in used}


class _Bucket(msgspec.Struct, frozen=True):
    """What is worked out from the pods that share one label set."""

    pods: PodsByName
    node_counts: Mapping[str, int]
    keys: tuple[tuple[GroupKey, Template, tuple[WorkloadName, ...]], ...]


class _NamespaceSpread(msgspec.Struct, frozen=True):
    pods: Map[Labels, PodsByName]
    buckets: Mapping[Labels, _Bucket]
    groups: Mapping[GroupKey, SpreadGroup]


def _namespace_spread(
    namespace: str,
    pods: Map[Labels, PodsByName],
    before: _NamespaceSpread | None,
    domains_for: Callable[[Eligibility, str], Domains],
) -> _NamespaceSpread:
    old_buckets: Mapping[Labels, _Bucket] = {} if before is None else before.buckets
    buckets = {
        labels: bucket
        if (bucket := old_buckets.get(labels)) is not None and bucket.pods is names
        else _bucket(namespace, labels, names)
        for labels, names in pods.items()
    }
    carriers: dict[GroupKey, list[tuple[Template, tuple[WorkloadName, ...]]]] = {}
    for bucket in buckets.values():
        for key, template, workloads in bucket.keys:
            carriers.setdefault(key, []).append((template, workloads))
    matched = _matches({key.selector for key in carriers}, buckets)
    groups: dict[GroupKey, SpreadGroup] = {}
    for key, carrying in carriers.items():
        domains = domains_for(key.eligibility, key.topology_key)
        group = SpreadGroup(
            key=key,
            domains=domains,
            counts=_domain_counts(domains, (buckets[labels].node_counts for labels in matched[key.selector])),
            matched=matched[key.selector],
            carriers=tuple(template for template, _ in carrying),
            workloads=tuple(sorted({workload for _, workloads in carrying for workload in workloads})),
        )
        old = None if before is None else before.groups.get(key)
        groups[key] = old if old == group else group
    return _NamespaceSpread(pods, buckets, groups)


def _bucket(namespace: str, labels: Labels, names: PodsByName) -> _Bucket:
    node_counts: Counter[str] = Counter()
    workloads: dict[int, tuple[PodSpec, set[WorkloadName]]] = {}
    for pod in names.values():
        if counts_as_pod(pod):
            node_counts[pod.node_name] += 1
        if not pod.finished:
            workloads.setdefault(id(pod.spec), (pod.spec, set()))[1].add(workload_of(pod))
    keys = tuple(
        (key, template, tuple(sorted(found)))
        for spec, found in workloads.values()
        for template in [Template(labels, spec)]
        for key in _group_keys(namespace, template)
    )
    return _Bucket(names, node_counts, keys)


def _group_keys(namespace: str, template: Template) -> tuple[GroupKey, ...]:
    return tuple(_group_key(namespace, template, each) for each in template.spec.topology_spread_constraints)


def _group_key(namespace: str, template: Template, constraint: TopologySpreadConstraint) -> GroupKey:
    return GroupKey(
        namespace=namespace,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        selector=effective_selector(constraint, template.labels),
        eligibility=eligibility_of(template.spec, constraint),
    )


def _matches(selectors: Iterable[Selector], buckets: Mapping[Labels, _Bucket]) -> dict[Selector, tuple[Labels, ...]]:
    """Return the label sets that each selector matches, found through a label that it requires where it has one."""
    with_label: dict[tuple[str, str], list[Labels]] = {}
    for labels in buckets:
        for label in labels.items():
            with_label.setdefault(label, []).append(labels)
    found: dict[Selector, tuple[Labels, ...]] = {}
    for selector in selectors:
        if selector.matches_everything:
            # countPodsMatchSelector: an empty selector counts no pod at all.
            found[selector] = ()
            continue
        candidates: list[Labels] = min(
            (with_label.get(pair, []) for pair in selector.required), key=len, default=list(buckets)
        )
        found[selector] = tuple(labels for labels in candidates if selector.matches(labels))
    return found


def _domain_counts(domains: Domains, node_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    of_node = domains.of_node
    counts: Counter[str] = Counter()
    for by_node in node_counts:
        for node, count in by_node.items():
            if (domain := of_node.get(node)) is not None:
                counts[domain] += count
    return dict(counts)
