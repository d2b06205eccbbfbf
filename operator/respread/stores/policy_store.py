"""The policies, and the PriorityClasses that they may name: updated step by step, and available as values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from immutables import Map

from respread.api.policy import Policy, PolicyKind
from respread.api.status import PolicyStatus
from respread.cluster.meta import ObjectKey

Policies: TypeAlias = Map[str, Policy]
"""Policies by `Policy.name`."""


class PolicyObject(NamedTuple):
    """A policy and its last known status."""

    policy: Policy
    status: PolicyStatus


class PolicyStore:
    """All policies of both kinds, by `Policy.name`."""

    __slots__ = ("_policies", "_statuses")

    def __init__(self) -> None:
        self._policies: Policies = Map()
        self._statuses: Map[str, PolicyStatus] = Map()

    @property
    def policies(self) -> Policies:
        """The policies as they are now. Later changes don't affect the returned value."""
        return self._policies

    @property
    def statuses(self) -> Map[str, PolicyStatus]:
        """The last known statuses, by the policies' names."""
        return self._statuses

    def current(self, name: str) -> Policy | None:
        """Return the policy with that name, or None."""
        return self._policies.get(name)

    def keys(self, kind: PolicyKind) -> Collection[ObjectKey]:
        """Return the keys of the policies of one kind. Those of ClusterRebalancePolicies have an empty namespace."""
        return [_key(policy) for policy in self._policies.values() if policy.kind == kind]

    def apply(self, changes: Iterable[tuple[ObjectKey, PolicyObject | None]]) -> int:
        """Apply changes, None for deleted policies, and return how many policies changed in more than their status.

        Names of the two kinds are always different, because only the name of a RebalancePolicy contains a slash.
        """
        policies, statuses, changed = self._policies.mutate(), self._statuses.mutate(), 0
        for key, new in changes:
            name = str(key)
            if new is None:
                statuses.pop(name, None)
                changed += policies.pop(name, None) is not None
                continue
            statuses[name] = new.status
            if policies.get(name) != new.policy:
                policies[name] = new.policy
                changed += 1
        self._statuses = statuses.finish()
        if changed:  # Otherwise it stays the same object, so that values derived from it stay valid.
            self._policies = policies.finish()
        return changed


def _key(policy: Policy) -> ObjectKey:
    return ObjectKey(policy.namespace, policy.object_name)


class PriorityClassStore:
    """The value of each PriorityClass, by name."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: Map[str, int] = Map()

    @property
    def values(self) -> Map[str, int]:
        """The values as they are now. Later changes don't affect the returned value."""
        return self._values

    def apply(self, changes: Iterable[tuple[ObjectKey, int | None]]) -> int:
        """Apply changed values, None for deleted classes, and return how many changed."""
        values, changed = self._values.mutate(), 0
        for key, value in changes:
            if values.get(key.name) == value:
                continue
            changed += 1
            if value is None:
                del values[key.name]
            else:
                values[key.name] = value
        self._values = values.finish()
        return changed
