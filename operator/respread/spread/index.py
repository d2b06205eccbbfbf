"""The spread of a whole cluster, updated from one snapshot to the next.

Snapshots share what has not changed (see `cluster.state`), so a derived value is kept while the part that it came from
is the same object. A changed pod costs a look at the label set that it has, and an update of the groups that count or
carry that label set. A changed node costs something only if it changes a domain. A changed Service or owner costs
something for the label sets whose pods have default constraints that depend on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec
from immutables import Map

from respread.cluster.incremental import changed_keys
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.selectors import Filed, Matching, Selector, file, under, unfile
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.scheduling.configuration import SELECTING, SelectingOwner
from respread.spread.carried import DefaultConstraints, Difference, LabelSet, nodes_of, own_keys
from respread.spread.group import DomainIndex, Domains, Eligibility, GroupKey, SpreadGroup, Template, template_of


class Spread(msgspec.Struct, frozen=True):
    """Every spread group of a snapshot."""

    groups: Mapping[GroupKey, SpreadGroup]
    by_namespace: Mapping[str, Mapping[GroupKey, SpreadGroup]]
    owners: Mapping[str, frozenset[SelectingOwner]] = Map()
    """By namespace, the owners whose selectors default constraints depend on, known or not; never empty."""


def group_keys_of(pod: Pod) -> tuple[GroupKey, ...]:
    """Return the group of each of a pod's own topology spread constraints, in their order."""
    return own_keys(pod.namespace, template_of(pod))


class SpreadIndex:
    """Keeps what it derived from the last snapshot, and computes only what the next one changes."""

    def __init__(self, defaults: DefaultConstraints | None = None) -> None:
        """Start without a cluster. Without `defaults`, only the pods' own constraints form groups."""
        self._defaults = defaults
        self._snapshot = ClusterSnapshot()
        self._domains = DomainIndex()
        self._namespaces: dict[str, _NamespaceGroups] = {}
        self._spread = Spread({}, {})

    def update(self, snapshot: ClusterSnapshot) -> Spread:
        """Return the spread groups of a snapshot. This is cheap if the snapshot derives from the last one."""
        last, known = self._snapshot, self._namespaces
        self._namespaces = {}  # If this fails, the next call computes everything again.
        nodes_changed = snapshot.nodes is not last.nodes
        if nodes_changed:
            self._domains.advance(snapshot.nodes)
        may_differ = SELECTING if self._defaults is not None and self._defaults.exist else ()
        selectors_changed = any(getattr(snapshot, part) is not getattr(last, part) for part in may_differ)
        namespaces: dict[str, _NamespaceGroups] = {}
        changed: dict[str, set[GroupKey]] = {}
        for name, pods in snapshot.pods_by_labels.items():
            namespace = namespaces[name] = known.get(name) or _NamespaceGroups(name, self._defaults)
            if nodes_changed or selectors_changed or namespace.pods is not pods:
                changed[name] = namespace.advance(
                    pods, snapshot, self._domains.of, nodes_changed=nodes_changed, selectors_changed=selectors_changed
                )
        self._spread = _spread(self._spread, namespaces, changed if namespaces.keys() == known.keys() else None)
        if any(key not in self._spread.groups for keys in changed.values() for key in keys):
            self._domains.forget_others({(key.eligibility, key.topology_key) for key in self._spread.groups})
        self._snapshot, self._namespaces = snapshot, namespaces
        return self._spread


def _spread(
    before: Spread, namespaces: Mapping[str, _NamespaceGroups], changed: Mapping[str, set[GroupKey]] | None
) -> Spread:
    """Return the groups of all namespaces.

    `changed` are the groups that may differ, by namespace; None if the set of namespaces has changed.
    """
    owners = {name: each.owners for name, each in namespaces.items() if each.owners}
    if changed is None:
        groups = {key: group for each in namespaces.values() for key, group in each.groups.items()}
    elif any(changed.values()) or owners != before.owners:
        groups = dict(before.groups)
        for name, keys in changed.items():
            of_namespace = namespaces[name].groups
            for key in keys:
                if (group := of_namespace.get(key)) is None:
                    del groups[key]
                else:
                    groups[key] = group
    else:
        return before
    return Spread(groups, {name: each.groups for name, each in namespaces.items()}, owners)


_DomainsFor: TypeAlias = Callable[[Eligibility, str], Domains]


class _Changes:
    """What changes of label sets mean for groups."""

    def __init__(self) -> None:
        self.moved: dict[GroupKey, Counter[str]] = {}
        """The change of the pod count of each node, for the groups that existed before."""
        self.recarried: dict[GroupKey, dict[Labels, None]] = {}
        """Groups that other templates or workloads carry now, with their label sets."""
        self.rematched: set[Selector] = set()
        """The selectors that match other label sets now."""


class _NamespaceGroups:
    """The groups of one namespace. It must not be used any more after `advance` has failed."""

    __slots__ = ("_defaults", "_groups_of", "_label_sets", "_matching", "_name", "groups", "owners", "pods")

    def __init__(self, name: str, defaults: DefaultConstraints | None) -> None:
        """Start without pods."""
        self._name = name
        self._defaults = defaults
        self._label_sets: dict[Labels, LabelSet] = {}
        self._groups_of: Filed[Selector, GroupKey] = {}
        self._matching = Matching()
        """The label sets, and the selectors of groups except those that match everything."""
        self.pods: Map[Labels, PodsByName] = Map()
        self.groups: Mapping[GroupKey, SpreadGroup] = {}
        """The groups. It stays the same object while no group changes."""
        self.owners: frozenset[SelectingOwner] = frozenset()
        """The owners whose selectors default constraints depend on."""

    def advance(
        self,
        pods: Map[Labels, PodsByName],
        snapshot: ClusterSnapshot,
        domains_for: _DomainsFor,
        *,
        nodes_changed: bool,
        selectors_changed: bool,
    ) -> set[GroupKey]:
        """Take over the current state of the namespace.

        Its pods are by label set and name. Domains, and the basis of default selectors, may have changed. The groups
        that are new, changed, or gone are returned.
        """
        changes = _Changes()
        other_owners = False
        for labels in {*self.pods, *pods} if selectors_changed else changed_keys(self.pods, pods):
            other_owners |= self._follow(labels, pods.get(labels), snapshot, changes)
        self.pods = pods
        if other_owners:
            self.owners = frozenset(owner for each in self._label_sets.values() for owner in each.owners)
        return self._regroup(changes, domains_for, nodes_changed=nodes_changed)

    def _follow(self, labels: Labels, names: PodsByName | None, snapshot: ClusterSnapshot, changes: _Changes) -> bool:
        """Update one label set, and return whether the default constraints of its pods depend on other owners now."""
        label_set = self._label_sets.get(labels)
        comes_or_goes = label_set is None or names is None
        if label_set is None:
            label_set = self._label_sets[labels] = LabelSet(self._name, self._defaults)
            self._matching.add_labels(labels)
        carried, owners = label_set.carried, label_set.owners
        difference = label_set.advance(Map() if names is None else names, snapshot)
        if names is None:
            del self._label_sets[labels]
            self._matching.remove_labels(labels)
        self._recount(labels, difference, changes, comes_or_goes=comes_or_goes)
        if label_set.carried is not carried:
            for each in (*carried, *label_set.carried):
                changes.recarried.setdefault(each.key, {})[labels] = None
        return label_set.owners != owners

    def _recount(self, labels: Labels, difference: Difference, changes: _Changes, *, comes_or_goes: bool) -> None:
        """Note what added and removed pods of a label set mean for the existing groups that count them."""
        moved = Counter(nodes_of(difference.came))
        moved.subtract(nodes_of(difference.went))
        for selector in self._matching.selectors_of(labels):
            if comes_or_goes:
                changes.rematched.add(selector)
            if any(moved.values()):
                for key in under(self._groups_of, selector):
                    changes.moved.setdefault(key, Counter()).update(moved)

    def _regroup(self, changes: _Changes, domains_for: _DomainsFor, *, nodes_changed: bool) -> set[GroupKey]:
        """Compute the changed groups again, and return them."""
        groups = dict(self.groups)
        dirty = changes.recarried.keys() | changes.moved.keys()
        dirty.update(key for selector in changes.rematched for key in under(self._groups_of, selector))
        if nodes_changed:
            dirty.update(key for key, group in groups.items() if domains_for(*_where(key)) is not group.domains)
        changed: set[GroupKey] = set()
        for key in dirty:
            before = groups.get(key)
            now = self._group(key, before, changes, domains_for(*_where(key)))
            if now is before:
                continue
            changed.add(key)
            if now is None:
                self._forget(key)
                del groups[key]
            else:
                if before is None:
                    self._note(key)
                groups[key] = now
        if changed:
            self.groups = groups
        return changed

    def _note(self, key: GroupKey) -> None:
        if not key.selector.matches_everything:
            file(self._groups_of, key.selector, key)
            self._matching.add_selector(key.selector)

    def _forget(self, key: GroupKey) -> None:
        if not key.selector.matches_everything:
            unfile(self._groups_of, key.selector, key)
            if key.selector not in self._groups_of:
                self._matching.remove_selector(key.selector)

    def _group(
        self, key: GroupKey, before: SpreadGroup | None, changes: _Changes, domains: Domains
    ) -> SpreadGroup | None:
        """Return the current state of a group: the same object if nothing has changed, None if no pod carries it."""
        if before is None or key in changes.recarried:
            carriers, workloads = self._carriers(key, before, changes.recarried.get(key, ()))
            if not carriers:
                return None
        else:
            carriers, workloads = before.carriers, before.workloads
        matched = self._matched(key) if before is None or key.selector in changes.rematched else before.matched
        counts: Mapping[str, int]
        if before is None or domains is not before.domains:
            counts = self._counts(domains, matched)
        elif (moved := changes.moved.get(key)) is not None:
            counts = _changed_counts(before.counts, domains, moved)
        else:
            counts = before.counts
        if (
            before is not None
            and domains is before.domains
            and matched == before.matched
            and carriers is before.carriers
            and counts == before.counts
        ):
            return before
        return SpreadGroup(
            key=key, domains=domains, counts=counts, matched=matched, carriers=carriers, workloads=workloads
        )

    def _matched(self, key: GroupKey) -> tuple[Labels, ...]:
        # countPodsMatchSelector: an empty selector counts no pod at all.
        return () if key.selector.matches_everything else tuple(self._matching.labels_of(key.selector))

    def _carriers(
        self, key: GroupKey, before: SpreadGroup | None, changed: Iterable[Labels]
    ) -> tuple[tuple[Template, ...], tuple[WorkloadName, ...]]:
        """Return the templates that carry a group now, and the workloads of their pods."""
        label_sets = {} if before is None else {template.labels: None for template in before.carriers}
        label_sets.update(dict.fromkeys(changed))
        carried = [
            each
            for labels in label_sets
            if (label_set := self._label_sets.get(labels)) is not None
            for each in label_set.carried_with(key)
        ]
        workloads = {workload for each in carried for workload in each.workloads}
        return tuple(each.template for each in carried), tuple(sorted(workloads))

    def _counts(self, domains: Domains, matched: Iterable[Labels]) -> dict[str, int]:
        """Return the pods of each domain, without empty domains."""
        counts: Counter[str | None] = Counter()
        for labels in matched:
            counts.update(map(domains.of_node.get, nodes_of(self._label_sets[labels].pods.values())))
        return {domain: count for domain, count in counts.items() if domain is not None}


def _where(key: GroupKey) -> tuple[Eligibility, str]:
    return key.eligibility, key.topology_key


def _changed_counts(before: Mapping[str, int], domains: Domains, nodes: Mapping[str, int]) -> dict[str, int]:
    """Return the pods of each domain after the changes of the nodes' counts, without empty domains."""
    counts = dict(before)
    for node, by in nodes.items():
        if (domain := domains.of_node.get(node)) is not None:
            counts[domain] = counts.get(domain, 0) + by
            if not counts[domain]:
                del counts[domain]
    return counts
