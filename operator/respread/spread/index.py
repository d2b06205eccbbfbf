"""The spread of a whole cluster, updated from one snapshot to the next.

Snapshots share what has not changed (see `cluster.state`), so a derived value is kept while the part that it came from
is the same object. A changed pod costs a look at the label set that it has, and an update of the groups that count or
carry that label set. A changed node costs something only if it changes a domain. A changed Service or owner costs
something for the label sets whose pods have default constraints that depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.default_selector import SelectingOwner
from respread.spread.carried import DefaultConstraints, own_keys
from respread.spread.domains import DomainIndex
from respread.spread.group import GroupKey, SpreadGroup, template_of
from respread.spread.namespace_groups import NamespaceGroups


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

    __slots__ = ("_defaults", "_domains", "_namespaces", "_snapshot", "_spread")

    def __init__(self, defaults: DefaultConstraints | None = None) -> None:
        """Start without a cluster.

        Args:
            defaults: which default constraints form groups. Without it, only the pods' own constraints do.
        """
        self._defaults = defaults
        self._snapshot = ClusterSnapshot()
        self._domains = DomainIndex()
        self._namespaces: dict[str, NamespaceGroups] = {}
        self._spread = Spread({}, {})

    def update(self, snapshot: ClusterSnapshot) -> Spread:
        """Return the spread groups of a snapshot. This is cheap if the snapshot derives from the last one."""
        last, known = self._snapshot, self._namespaces
        self._namespaces = {}  # If this fails, the next call computes everything again.
        nodes_changed = snapshot.nodes is not last.nodes
        if nodes_changed:
            self._domains.advance(snapshot.nodes)
        selectors_changed = self._defaults is not None and self._defaults.exist and not _same_selectors(snapshot, last)
        namespaces: dict[str, NamespaceGroups] = {}
        changed: dict[str, set[GroupKey]] = {}
        for name, pods in snapshot.pods_by_labels.items():
            namespace = namespaces[name] = known.get(name) or NamespaceGroups(name, self._defaults)
            if nodes_changed or selectors_changed or namespace.pods is not pods:
                changed[name] = namespace.advance(
                    pods,
                    snapshot,
                    self._domains.of,
                    nodes_changed=nodes_changed,
                    selectors_changed=selectors_changed,
                )
        self._spread = _spread(self._spread, namespaces, changed if namespaces.keys() == known.keys() else None)
        if any(key not in self._spread.groups for keys in changed.values() for key in keys):
            self._domains.forget_others({(key.eligibility, key.topology_key) for key in self._spread.groups})
        self._snapshot, self._namespaces = snapshot, namespaces
        return self._spread


def _spread(
    before: Spread, namespaces: Mapping[str, NamespaceGroups], changed: Mapping[str, set[GroupKey]] | None
) -> Spread:
    """Return the groups of all namespaces.

    Args:
        before: the groups before.
        namespaces: all namespaces.
        changed: the groups that may differ, by namespace; None if the set of namespaces has changed.
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


def _same_selectors(one: ClusterSnapshot, other: ClusterSnapshot) -> bool:
    """Whether two snapshots have the same objects from which default selectors are derived."""
    return (
        one.services is other.services
        and one.replica_sets is other.replica_sets
        and one.stateful_sets is other.stateful_sets
        and one.replication_controllers is other.replication_controllers
    )
