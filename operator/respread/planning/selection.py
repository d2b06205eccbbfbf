"""Which policy governs which pods, and which spread groups are restored for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from respread.api.policy import Policy
from respread.cluster.meta import Labels
from respread.cluster.objects import Namespace
from respread.cluster.state import ClusterSnapshot
from respread.planning.components import components_of
from respread.planning.policies import PolicyIndex
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread


class Violated(NamedTuple):
    """A component of spread groups some of which are violated and are to be restored."""

    groups: tuple[SpreadGroup, ...]
    cure: Mapping[GroupKey, str]
    """Those, with the name of the policy that wants each restored."""


class NamespaceSelection(NamedTuple):
    """What the policies want of one namespace."""

    groups: Mapping[GroupKey, SpreadGroup]
    namespace: Namespace | None
    selected: dict[GroupKey, str]
    """The groups that are restored, with the policy that wants it."""
    violated: tuple[Violated, ...]


class Selection:
    """The policies as they apply to one snapshot after the other."""

    __slots__ = ("_namespaces", "_policies", "_selected", "_snapshot")

    def __init__(self, policies: PolicyIndex) -> None:
        """Prepare for policies, which stay the same."""
        self._policies = policies
        self._snapshot = ClusterSnapshot()
        self._namespaces: dict[str, NamespaceSelection] = {}
        self._selected: dict[GroupKey, str] = {}

    @property
    def selected(self) -> Mapping[GroupKey, str]:
        """The groups that policies restore in the last snapshot, each with the name of its policy."""
        return self._selected

    @property
    def namespaces(self) -> Mapping[str, NamespaceSelection]:
        """What policies want of each namespace; of one that has not changed, the same object as before."""
        return self._namespaces

    def advance(self, snapshot: ClusterSnapshot, spread: Spread) -> None:
        """Look at another snapshot, at the cost of what has changed."""
        self._snapshot = snapshot
        before, self._namespaces = self._namespaces, {}
        changed = len(before) != len(spread.by_namespace)
        for name in sorted(spread.by_namespace):
            groups, namespace = spread.by_namespace[name], snapshot.namespaces.get(name)
            known = before.get(name)
            if known is None or known.groups is not groups or known.namespace is not namespace:
                known = self._namespace(groups, namespace)
                changed = True
            self._namespaces[name] = known
        if changed:
            self._selected = {}
            for each in self._namespaces.values():
                self._selected.update(each.selected)

    def policy_of(self, namespace: str, labels: Labels) -> Policy | None:
        """Return the policy that governs pods of a namespace with these labels."""
        known = self._snapshot.namespaces.get(namespace)
        in_namespace = self._policies.in_namespace(namespace, None if known is None else known.labels)
        return in_namespace.governance(labels).policy

    def _namespace(self, groups: Mapping[GroupKey, SpreadGroup], namespace: Namespace | None) -> NamespaceSelection:
        selected = {key: name for key, group in groups.items() if (name := self._selecting(key, group)) is not None}
        violated = {key for key in selected if groups[key].violated}
        components = components_of(groups.values()) if violated else []
        return NamespaceSelection(
            groups,
            namespace,
            selected,
            tuple(
                Violated(component, {group.key: selected[group.key] for group in component if group.key in violated})
                for component in components
                if any(group.key in violated for group in component)
            ),
        )

    def _selecting(self, key: GroupKey, group: SpreadGroup) -> str | None:
        """Return the policy that restores a group: one that governs pods with the constraint, and wants such ones."""
        for policy in self._governing(key.namespace, {template.labels for template in group.carriers}):
            rules = policy.spec.constraints
            if key.when_unsatisfiable in rules.when_unsatisfiable and (
                not rules.topology_keys or key.topology_key in rules.topology_keys
            ):
                return policy.name
        return None

    def _governing(self, namespace: str, label_sets: Iterable[Labels]) -> list[Policy]:
        """Return the policies that govern pods with any of some label sets, in an order that is always the same."""
        found = {policy.name: policy for labels in label_sets if (policy := self.policy_of(namespace, labels))}
        return [found[name] for name in sorted(found)]
