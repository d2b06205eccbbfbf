"""Which policy governs which pods, and which spread groups are restored for it."""

from __future__ import annotations

from respread.api.policy import Policy
from respread.cluster.meta import Labels
from respread.cluster.state import ClusterSnapshot
from respread.planning.policies import PolicyIndex
from respread.spread.group import GroupKey
from respread.spread.index import Spread


class Selection:
    """The policies as they apply to one snapshot."""

    __slots__ = ("_policies", "_snapshot")

    def __init__(self, policies: PolicyIndex, snapshot: ClusterSnapshot) -> None:
        self._policies = policies
        self._snapshot = snapshot

    def policy_of(self, namespace: str, labels: Labels) -> Policy | None:
        """Return the policy that governs pods of a namespace with these labels."""
        known = self._snapshot.namespaces.get(namespace)
        in_namespace = self._policies.in_namespace(namespace, None if known is None else known.labels)
        return in_namespace.governance(labels).policy

    def selected(self, spread: Spread) -> dict[GroupKey, str]:
        """Return the groups that some policy restores, each with its name.

        It is the one that governs pods with the constraint, and wants such constraints restored.
        """
        selected: dict[GroupKey, str] = {}
        for key, group in spread.groups.items():
            for labels in {template.labels for template in group.carriers}:
                policy = self.policy_of(key.namespace, labels)
                if policy is not None and _wants(policy, key):
                    selected[key] = policy.name
                    break
        return selected


def _wants(policy: Policy, key: GroupKey) -> bool:
    rules = policy.spec.constraints
    return key.when_unsatisfiable in rules.when_unsatisfiable and (
        not rules.topology_keys or key.topology_key in rules.topology_keys
    )
