"""The policies there are, kept like the rest of the cluster: incrementally, and as one value."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from immutables import Map

from respread.api.policy import Policy, PolicyKind
from respread.api.status import PolicyStatus
from respread.cluster.meta import ObjectKey


class PolicyObject(NamedTuple):
    """A policy, and the status that was last seen on it."""

    policy: Policy
    status: PolicyStatus


class PolicyStore:
    """All policies of both kinds, by `Policy.name`."""

    __slots__ = ("_policies", "_statuses")

    def __init__(self) -> None:
        self._policies: Map[str, Policy] = Map()
        self._statuses: Map[str, PolicyStatus] = Map()

    @property
    def policies(self) -> Map[str, Policy]:
        """The policies as they are now; later changes don't touch what is returned."""
        return self._policies

    @property
    def statuses(self) -> Map[str, PolicyStatus]:
        """The statuses last seen in the API, by the policies' names."""
        return self._statuses

    def current(self, name: str) -> Policy | None:
        """Return the policy of that name as it is now, or None if there is none."""
        return self._policies.get(name)

    def keys(self, kind: PolicyKind) -> Collection[ObjectKey]:
        """Return the keys of the policies of one kind; those of ClusterRebalancePolicies have an empty namespace."""
        return [_key(policy) for policy in self._policies.values() if policy.kind == kind]

    def apply(self, changes: Iterable[tuple[ObjectKey, PolicyObject | None]]) -> int:
        """Take over changes, None for what is gone, and return how many policies changed in more than their status.

        The names of the two kinds never meet: only a RebalancePolicy's holds a slash.
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
        if changed:  # else it stays the same object, for whoever keeps what follows from it
            self._policies = policies.finish()
        return changed


def _key(policy: Policy) -> ObjectKey:
    return ObjectKey(policy.namespace, policy.object_name)
