"""The spread of a whole cluster, kept up to date from one snapshot to the next.

Snapshots share what has not changed between them (see `cluster.state`), so what was worked out from a part is kept for
as long as the part is the same object: a pod's change costs work in its own namespace only, there only for the label
set it has and for the groups that count it, and a node's change only where it changes a domain. A Service or an owner
that changes costs work for those label sets whose pods have default constraints by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_

import msgspec
from immutables import Map

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.cluster.workload import WorkloadName, workload_of
from respread.scheduling.default_selector import SelectingOwner, selecting_owner, selector_basis
from respread.scheduling.topology_spread import counts_as_pod
from respread.spread.carried import DefaultConstraints, own_keys
from respread.spread.domains import Domains, Eligibility, domains_of
from respread.spread.group import GroupKey, SpreadGroup, Template, template_of


class Spread(msgspec.Struct, frozen=True):
    """Every spread group of a snapshot."""

    groups: Mapping[GroupKey, SpreadGroup]
    by_namespace: Mapping[str, Mapping[GroupKey, SpreadGroup]]
    owners: Mapping[str, frozenset[SelectingOwner]] = Map()
    """By namespace, those whose selectors default constraints depend on, known or not; never empty."""


def spread_of(snapshot: ClusterSnapshot, defaults: DefaultConstraints | None = None) -> Spread:
    """Return the spread groups of a snapshot; see `SpreadIndex`."""
    return SpreadIndex(defaults).update(snapshot)


def group_keys_of(pod: Pod) -> tuple[GroupKey, ...]:
    """Return the group of each of a pod's own topology spread constraints, in their order."""
    return own_keys(pod.namespace, template_of(pod))


class SpreadIndex:
    """Keeps what it derived from the last snapshot and works out only what the next one changes."""

    __slots__ = ("_defaults", "_domains", "_namespaces", "_snapshot", "_spread")

    def __init__(self, defaults: DefaultConstraints | None = None) -> None:
        """Know of no cluster yet.

        Args:
            defaults: which default constraints form groups; without it only the pods' own do.
        """
        self._defaults = defaults
        self._snapshot = ClusterSnapshot()
        self._domains: dict[tuple[Eligibility, str], Domains] = {}
        self._namespaces: dict[str, _NamespaceSpread] = {}
        self._spread = Spread({}, {})

    def update(self, snapshot: ClusterSnapshot) -> Spread:
        """Return the spread groups of a snapshot, cheaply if it comes from the one before."""
        last, self._snapshot = self._snapshot, snapshot
        nodes_changed = snapshot.nodes is not last.nodes
        if nodes_changed:
            self._refresh_domains()
        selectors_changed = self._defaults is not None and not _same_selectors(snapshot, last)
        namespaces: dict[str, _NamespaceSpread] = {}
        changed = len(self._namespaces) != len(snapshot.pods_by_labels)
        for name, pods in snapshot.pods_by_labels.items():
            before = self._namespaces.get(name)
            if (
                before is not None
                and before.pods is pods
                and not nodes_changed
                and not (selectors_changed and before.is_outdated(snapshot))
            ):
                namespaces[name] = before
                continue
            now = namespaces[name] = self._namespace(name, pods, before)
            changed = changed or before is None or now.groups != before.groups or now.owners != before.owners
        self._namespaces = namespaces
        if changed:
            self._drop_unused_domains()
            self._spread = Spread(
                groups={key: group for each in namespaces.values() for key, group in each.groups.items()},
                by_namespace={name: each.groups for name, each in namespaces.items()},
                owners={name: each.owners for name, each in namespaces.items() if each.owners},
            )
        return self._spread

    def _namespace(self, name: str, pods: Map[Labels, PodsByName], before: _NamespaceSpread | None) -> _NamespaceSpread:
        old: Mapping[Labels, _Bucket] = {} if before is None else before.buckets
        buckets = {
            labels: bucket
            if (bucket := old.get(labels)) is not None
            and bucket.pods is names
            and not bucket.is_outdated(self._snapshot)
            else _bucket(name, names, self._defaults, self._snapshot)
            for labels, names in pods.items()
        }
        return _NamespaceSpread(
            pods,
            buckets,
            groups=_groups(buckets, {} if before is None else before.groups, self._domains_for),
            owners=frozenset(owner for bucket in buckets.values() for owner in bucket.owners()),
        )

    def _domains_for(self, eligibility: Eligibility, topology_key: str) -> Domains:
        at = (eligibility, topology_key)
        if (found := self._domains.get(at)) is None:
            found = self._domains[at] = domains_of(eligibility, topology_key, self._snapshot.nodes.values())
        return found

    def _refresh_domains(self) -> None:
        for at, before in self._domains.items():
            now = domains_of(*at, self._snapshot.nodes.values())
            if now != before:
                self._domains[at] = now

    def _drop_unused_domains(self) -> None:
        used = {(key.eligibility, key.topology_key) for each in self._namespaces.values() for key in each.groups}
        self._domains = {at: domains for at, domains in self._domains.items() if at in used}


def _same_selectors(one: ClusterSnapshot, other: ClusterSnapshot) -> bool:
    """Whether two snapshots have the same of all that default selectors are made from."""
    return (
        one.services is other.services
        and one.replica_sets is other.replica_sets
        and one.stateful_sets is other.stateful_sets
        and one.replication_controllers is other.replication_controllers
    )


class _Bucket(msgspec.Struct, frozen=True):
    """What is worked out from the pods that share one label set."""

    pods: PodsByName
    node_counts: Mapping[str, int]
    keys: tuple[tuple[GroupKey, Template, tuple[WorkloadName, ...]], ...]
    defaulted: tuple[tuple[Pod, tuple[object, ...]], ...]
    """A pod of each template with default constraints, with what their selector is made from."""

    def is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Whether the selector of default constraints may be another one now."""
        return any(not all(map(is_, basis, selector_basis(pod, snapshot))) for pod, basis in self.defaulted)

    def owners(self) -> Iterator[SelectingOwner]:
        """Yield the owners that the selectors of default constraints depend on."""
        for pod, _ in self.defaulted:
            if (owner := selecting_owner(pod)) is not None:
                yield owner


class _NamespaceSpread(msgspec.Struct, frozen=True):
    pods: Map[Labels, PodsByName]
    buckets: Mapping[Labels, _Bucket]
    groups: Mapping[GroupKey, SpreadGroup]
    owners: frozenset[SelectingOwner]

    def is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Whether the selector of some default constraint may be another one now."""
        return any(bucket.is_outdated(snapshot) for bucket in self.buckets.values())


def _groups(
    buckets: Mapping[Labels, _Bucket],
    before: Mapping[GroupKey, SpreadGroup],
    domains_for: Callable[[Eligibility, str], Domains],
) -> dict[GroupKey, SpreadGroup]:
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
        old = before.get(key)
        groups[key] = old if old == group else group
    return groups


def _bucket(
    namespace: str, names: PodsByName, defaults: DefaultConstraints | None, snapshot: ClusterSnapshot
) -> _Bucket:
    node_counts: Counter[str] = Counter()
    samples: dict[tuple[int, OwnerReference | None], tuple[Pod, set[WorkloadName]]] = {}
    for pod in names.values():
        if counts_as_pod(pod):
            node_counts[pod.node_name] += 1
        if not pod.finished:
            controller = None if pod.spec.topology_spread_constraints else pod.controller
            samples.setdefault((id(pod.spec), controller), (pod, set()))[1].add(workload_of(pod))
    keys: list[tuple[GroupKey, Template, tuple[WorkloadName, ...]]] = []
    defaulted: list[tuple[Pod, tuple[object, ...]]] = []
    for pod, workloads in samples.values():
        template, carrying = template_of(pod), tuple(sorted(workloads))
        found = own_keys(namespace, template)
        if defaults is not None and defaults.of(pod.spec):
            defaulted.append((pod, selector_basis(pod, snapshot)))
            found = defaults.keys_of(pod, snapshot)
        keys.extend((key, template, carrying) for key in found)
    return _Bucket(names, node_counts, tuple(keys), tuple(defaulted))


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
