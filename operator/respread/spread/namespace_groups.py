"""The spread groups of one namespace. Updates cost as much as the label sets whose pods have changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from immutables import Map

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.incremental import changed_keys
from respread.cluster.matching import Filed, Matching, file, under, unfile
from respread.cluster.meta import Labels
from respread.cluster.pod import WorkloadName
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.default_selector import SelectingOwner
from respread.spread.carried import DefaultConstraints
from respread.spread.domains import Domains, Eligibility
from respread.spread.group import GroupKey, SpreadGroup, Template
from respread.spread.label_set import Difference, LabelSet, nodes_of

DomainsFor: TypeAlias = Callable[[Eligibility, str], Domains]


class _Changes:
    """What changes of label sets mean for groups."""

    __slots__ = ("moved", "recarried", "rematched")

    def __init__(self) -> None:
        self.moved: dict[GroupKey, Counter[str]] = {}
        """The change of the pod count of each node, for the groups that existed before."""
        self.recarried: dict[GroupKey, dict[Labels, None]] = {}
        """Groups that other templates or workloads carry now, with their label sets."""
        self.rematched: set[Selector] = set()
        """The selectors that match other label sets now."""


class NamespaceGroups:
    """The groups of one namespace. It must not be used any more after `advance` has failed."""

    __slots__ = ("_defaults", "_groups_of", "_label_sets", "_matching", "_name", "groups", "owners", "pods")

    def __init__(self, name: str, defaults: DefaultConstraints | None) -> None:
        """Start without pods.

        Args:
            name: the name of the namespace.
            defaults: which default constraints form groups.
        """
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
        domains_for: DomainsFor,
        *,
        nodes_changed: bool,
        selectors_changed: bool,
    ) -> set[GroupKey]:
        """Take over the current state of the namespace.

        Args:
            pods: the pods of the namespace, by label set and name.
            snapshot: the cluster.
            domains_for: returns the domains of a topology key.
            nodes_changed: whether domains may have changed.
            selectors_changed: whether the basis of default selectors may have changed.

        Returns:
            The groups that are new, changed, or gone.
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
        counting = list(self._matching.selectors_of(labels))
        if not counting:
            return
        moved = Counter(nodes_of(difference.came))
        moved.subtract(nodes_of(difference.went))
        for selector in counting:
            if comes_or_goes:
                changes.rematched.add(selector)
            if any(moved.values()):
                for key in under(self._groups_of, selector):
                    changes.moved.setdefault(key, Counter()).update(moved)

    def _regroup(self, changes: _Changes, domains_for: DomainsFor, *, nodes_changed: bool) -> set[GroupKey]:
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
