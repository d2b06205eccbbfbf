"""Whether a policy asks for prevention for a ReplicaSet."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.replica_set import ReplicaSetPods
from respread.spread.group import GroupKey


class Wish(Enum):
    """What to do with a ReplicaSet's costs."""

    PROTECT = "protect"
    REMOVE = "remove"
    """No policy asks for our costs: existing ones are removed."""
    LEAVE = "leave"
    """The policy is invalid: nothing changes until it is fixed."""


class CostSelection(NamedTuple):
    """What to do with a ReplicaSet's costs, and which policy decides."""

    wish: Wish
    policy: str
    """Its name; empty if no policy governs the pods."""
    restored: tuple[GroupKey, ...] = ()
    """The constraints that the policy selects."""
    enabled: bool = False
    """Whether the policy enables prevention, for any constraint."""
    replacing: bool = False
    """Whether the policy lets Respread replace costs that somebody else wrote."""


def select(replica_set: ReplicaSetPods, policies: PolicyIndex, snapshot: ClusterSnapshot) -> CostSelection:
    """Return what to do with a ReplicaSet's costs.

    Only `spec.prevention.podDeletionCost` decides, in either mode, because DryRun is about evictions, and prevention is
    enabled explicitly. If a policy selects one of a workload's constraints, all of them are considered.
    """
    if not replica_set.pods:
        return CostSelection(Wish.LEAVE, "")
    governing = policies.in_namespace(replica_set.namespace, snapshot.namespaces)
    policy = governing.governance(replica_set.pods[0].labels).policy
    if policy is None:
        return CostSelection(Wish.REMOVE, "")
    if policy.problems:
        return CostSelection(Wish.LEAVE, policy.name)
    if policy.spec.prevention.pod_deletion_cost != "Enabled":
        return CostSelection(Wish.REMOVE, policy.name)
    rules = policy.spec.constraints
    keys = (group.key for group in replica_set.groups)
    restored = tuple(key for key in keys if rules.include(key.when_unsatisfiable, key.topology_key))
    return CostSelection(
        Wish.PROTECT if restored else Wish.REMOVE,
        policy.name,
        restored,
        enabled=True,
        replacing=policy.spec.prevention.costs_of_others == "Replace",
    )
