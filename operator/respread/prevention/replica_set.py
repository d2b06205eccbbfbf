"""A ReplicaSet: its pods and spread groups, whether a policy asks for costs, and the `Layout` that ranking uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.layout import OUTSIDE, Constraint, Layout, Place
from respread.spread.group import GroupKey, SpreadGroup

_BY_COST: Final = {"ReplicaSet": "apps", "ReplicationController": ""}
"""The controllers that use pod deletion costs, with their API group. ReplicationControllers are run by the ReplicaSet
controller's code (`replication.NewReplicationManager`)."""


class ReplicaSetPods(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A ReplicaSet (or ReplicationController). It stays the same object while nothing in it changes."""

    namespace: str
    controller: OwnerReference
    workload: WorkloadName
    pods: tuple[Pod, ...]
    """Pods that are neither being deleted nor finished, bound or not (`FilterActivePods`)."""
    siblings: tuple[Pod, ...] = ()
    """Such pods of other ReplicaSets of the same Deployment: a rollout is in progress, or paused."""
    groups: tuple[SpreadGroup, ...] = ()
    """The spread groups of its pods' constraints that count them."""
    terminating: bool = False
    """Whether one of its pods is being deleted."""

    @property
    def in_motion(self) -> bool:
        """Whether pods come or go."""
        return self.terminating or bool(self.siblings) or not all(pod.node_name for pod in self.pods)

    @property
    def on_its_way_out(self) -> bool:
        """Whether another ReplicaSet of the Deployment has the newest pod, so that a rollout replaces these pods."""
        return bool(self.siblings) and _newest(self.siblings) > _newest(self.pods)


def deletes_by_cost(controller: OwnerReference | None) -> bool:
    """Return whether a controller deletes the pods with the lowest pod deletion cost first when it is scaled down."""
    return controller is not None and _BY_COST.get(controller.kind) == controller.api_version.rpartition("/")[0]


def layout_of(replica_set: ReplicaSetPods, ranked: Sequence[Pod], staying: Iterable[Pod] = ()) -> Layout:
    """Return where pods of a ReplicaSet are.

    Pods of sibling ReplicaSets are excluded: a scale-down happens before or after a rollout, rarely during one.

    Args:
        replica_set: the ReplicaSet.
        ranked: its pods to rank, which are the layout's pods in their order.
        staying: its pods that any scale-down deletes after all ranked ones. All others are deleted before.
    """
    remaining = tuple(staying)
    uids = {pod.uid for pod in ranked}
    unranked = (*(pod for pod in replica_set.pods if pod.uid not in uids), *replica_set.siblings)
    views = [_view(group, ranked, unranked, remaining) for group in replica_set.groups]
    return Layout(
        tuple(constraint for constraint, _ in views),
        tuple(zip(*(domains for _, domains in views), strict=True)) if views else ((),) * len(ranked),
    )


def counted_in(group: SpreadGroup, pods: Iterable[Pod]) -> Iterator[str | None]:
    """Return each pod's domain in a group; None if the group does not count the pod."""
    of_node = group.domains.of_node
    matching: dict[Labels, bool] = {}
    for pod in pods:
        if (matches := matching.get(pod.labels)) is None:
            matches = matching[pod.labels] = counts(group.key, pod.labels)
        yield of_node.get(pod.node_name) if matches else None


def counts(key: GroupKey, labels: Labels) -> bool:
    """Return whether a group counts pods with these labels.

    An empty selector counts none (`countPodsMatchSelector`).
    """
    return not key.selector.matches_everything and key.selector.matches(labels)


def _view(
    group: SpreadGroup, ranked: Sequence[Pod], unranked: Sequence[Pod], staying: Sequence[Pod]
) -> tuple[Constraint, Place]:
    """Return a group in the form for ranking, and each ranked pod's domain."""
    domains = list(counted_in(group, ranked))
    index: dict[str, int] = {}
    others: dict[str, int] = {}
    for domain in domains:
        if domain is not None:
            index.setdefault(domain, len(index))
            others[domain] = others.get(domain, 0) - 1
    for pods, sign in ((unranked, -1), (staying, 1)):
        for domain in counted_in(group, pods):
            if domain is not None:
                others[domain] = others.get(domain, 0) + sign
    elsewhere = Counter(dict(group.levels.levels))
    for domain, difference in others.items():
        before = group.counts.get(domain, 0)
        elsewhere[before] -= 1
        if domain not in index:
            elsewhere[before + difference] += 1
    constraint = Constraint(
        hard=group.key.when_unsatisfiable == "DoNotSchedule",
        max_skew=group.key.max_skew,
        counts=tuple(group.counts.get(domain, 0) + others[domain] for domain in index),
        elsewhere=tuple((count, number) for count, number in elsewhere.items() if number),
        min_domains=group.key.min_domains,
    )
    return constraint, tuple(OUTSIDE if domain is None else index[domain] for domain in domains)


def _newest(pods: Iterable[Pod]) -> float:
    """Return when the newest pod was created, in seconds since the epoch."""
    return max(
        (0.0 if pod.creation_timestamp is None else pod.creation_timestamp.timestamp() for pod in pods), default=0.0
    )


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
