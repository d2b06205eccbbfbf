"""All ReplicaSets: their pods and spread groups, whether a policy asks for costs, and the `Layout` that ranking uses.

A layout is where a ReplicaSet's pods are, as plain numbers without Kubernetes types. Every constraint counts the
ReplicaSet's own pods, which a scale-down deletes, and other pods, which it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.incremental import are_same
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.protection import is_active
from respread.spread.counts import Counts, LiveCounts
from respread.spread.group import GroupKey, SpreadGroup, template_of
from respread.spread.index import Spread, group_keys_of

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


def layout_of(replica_set: ReplicaSetPods, ranked: Sequence[Pod], staying: Iterable[Pod] = ()) -> Layout:
    """Return where pods of a ReplicaSet are.

    Pods of sibling ReplicaSets are excluded: a scale-down happens before or after a rollout, rarely during one. The
    ranked pods are the layout's pods in their order. Any scale-down deletes those that stay after all ranked ones, and
    all others before.
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
    """Nothing changes: until the policy, which is invalid, is fixed, or because the namespace is being deleted."""


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
    namespace = snapshot.namespaces.get(replica_set.namespace)
    if not replica_set.pods or (namespace is not None and namespace.terminating):
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


OUTSIDE: Final = -1
"""In a place: the pod is in no eligible domain of that constraint, or the constraint does not count it."""

Place: TypeAlias = tuple[int, ...]
"""A pod's domain in each constraint, as an index into that constraint's `counts`."""

HARD: Final = 1 << 40
"""The weight of a pod too many in a hard constraint. In a soft one it is 1, so that no possible number of soft
violations exceeds a single hard one."""


DomainTally: TypeAlias = LiveCounts[int]
"""The pods by domain of one constraint while pods are deleted or brought back."""


class Constraint(msgspec.Struct, frozen=True):
    """A spread group without the pods to rank."""

    hard: bool
    max_skew: int
    counts: tuple[int, ...]
    """For each domain with pods to rank, the number of other pods."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """All other eligible domains, including empty ones, as pairs of a number of pods and the number of domains."""
    min_domains: int = 1

    @property
    def weight(self) -> int:
        """The weight of a pod too many."""
        return HARD if self.hard else 1


class Layout(msgspec.Struct, frozen=True):
    """The pods to rank, by index, and their constraints."""

    constraints: tuple[Constraint, ...]
    places: tuple[Place, ...]


def violation(layout: Layout, deletion_order: Iterable[int]) -> int:
    """Return the total violation of an order, summed over every number of pods that a scale-down can leave.

    0 means that every scale-down keeps all constraints. Multiples of `HARD` are hard violations. The order has all pods
    of the layout, the first one is deleted first.
    """
    tallies = tallies_of(layout)
    total = 0
    for pod in deletion_order:
        for tally, domain, constraint in zip(tallies, layout.places[pod], layout.constraints, strict=True):
            if domain != OUTSIDE:
                tally.change(domain, -1)
            total += tally.excess * constraint.weight
    return total


def tallies_of(layout: Layout) -> list[DomainTally]:
    """Return the counts of each constraint, with all pods of the layout."""
    return [
        tally_of(constraint, (place[at] for place in layout.places)) for at, constraint in enumerate(layout.constraints)
    ]


def tally_of(constraint: Constraint, pods: Iterable[int] = ()) -> DomainTally:
    """Return the counts of a constraint: the other pods, and pods in the given domains; `OUTSIDE` is none."""
    counts = dict(enumerate(constraint.counts))
    for domain in pods:
        if domain != OUTSIDE:
            counts[domain] += 1
    domains_with = Counter(counts.values())
    for count, domains in constraint.elsewhere:
        domains_with[count] += domains
    return LiveCounts(counts, Counts(tuple(sorted(domains_with.items())), constraint.max_skew, constraint.min_domains))


TemplateIdentity: TypeAlias = tuple[Labels, int, OwnerReference | None]
"""See `Template.identity`."""


class RankingChanges(NamedTuple):
    """What the last update changed."""

    changed: Sequence[ReplicaSetPods]
    """ReplicaSets that are new or have changed."""
    gone: Sequence[str]
    """UIDs of those without pods now."""


class ReplicaSetIndex:
    """The ReplicaSets with pods, by UID."""

    def __init__(self) -> None:
        self.by_uid: dict[str, ReplicaSetPods] = {}
        """The ReplicaSets after the last update."""
        self._namespaces: dict[str, _Namespace] = {}
        self._strays: dict[str, tuple[Pod, ...]] = {}

    @property
    def strays(self) -> tuple[Pod, ...]:
        """Pods with a cost of ours whose controller does not use costs."""
        return tuple(pod for pods in self._strays.values() for pod in pods)

    def update(self, snapshot: ClusterSnapshot, spread: Spread) -> RankingChanges:
        """Take over a snapshot and its spread groups. This is cheap if they derive from the last ones."""
        changed: list[ReplicaSetPods] = []
        gone: list[str] = []
        for name in [name for name in self._namespaces if name not in snapshot.pods_by_labels]:
            gone.extend(self._namespaces.pop(name).replica_sets)
            self._strays.pop(name, None)
        for name, pods in snapshot.pods_by_labels.items():
            groups = spread.by_namespace.get(name, {})
            before = self._namespaces.get(name)
            if before is not None and before.pods is pods and before.groups is groups:
                continue
            now = self._namespaces[name] = _namespace(pods, groups, before)
            old = {} if before is None else before.replica_sets
            changed.extend(each for uid, each in now.replica_sets.items() if old.get(uid) is not each)
            gone.extend(uid for uid in old if uid not in now.replica_sets)
            if strays := tuple(pod for bucket in now.buckets.values() for pod in bucket.strays):
                self._strays[name] = strays
            else:
                self._strays.pop(name, None)
        for uid in gone:
            self.by_uid.pop(uid, None)
        self.by_uid.update((each.controller.uid, each) for each in changed)
        return RankingChanges(changed, gone)


class _Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The pods of one ReplicaSet that have the same labels; nearly always all of its pods."""

    controller: OwnerReference
    workload: WorkloadName
    pods: tuple[Pod, ...]
    terminating: bool
    keys: tuple[GroupKey, ...]
    """The groups of their own constraints that count them."""
    defaulted: tuple[TemplateIdentity, ...]
    """Their templates without constraints of their own. Their namespace knows the groups of their default
    constraints."""


class _Bucket(msgspec.Struct, frozen=True, eq=False):
    """What is derived from the pods with the same labels."""

    pods: PodsByName
    parts: tuple[_Part, ...]
    strays: tuple[Pod, ...]


class _Namespace(msgspec.Struct, frozen=True, eq=False):
    pods: Map[Labels, PodsByName]
    groups: Mapping[GroupKey, SpreadGroup]
    buckets: Mapping[Labels, _Bucket]
    parts: Mapping[str, tuple[tuple[_Part, ...], tuple[_Part, ...]]]
    """By UID, the ReplicaSet's own parts and those of its siblings."""
    replica_sets: Mapping[str, ReplicaSetPods]


def _by_default(groups: Mapping[GroupKey, SpreadGroup]) -> dict[TemplateIdentity, list[SpreadGroup]]:
    """Return the groups of the default constraints of templates."""
    found: dict[TemplateIdentity, list[SpreadGroup]] = {}
    for group in groups.values():
        for template in group.carriers:
            if template.controller is not None and counts(group.key, template.labels):
                found.setdefault(template.identity, []).append(group)
    return found


def _namespace(
    pods: Map[Labels, PodsByName], groups: Mapping[GroupKey, SpreadGroup], before: _Namespace | None
) -> _Namespace:
    old_buckets: Mapping[Labels, _Bucket] = {} if before is None else before.buckets
    buckets = {
        labels: bucket if (bucket := old_buckets.get(labels)) is not None and bucket.pods is names else _bucket(names)
        for labels, names in pods.items()
    }
    own: dict[str, tuple[_Part, ...]] = {}
    of_workload: dict[WorkloadName, dict[str, None]] = {}
    for bucket in buckets.values():
        for part in bucket.parts:
            uid = part.controller.uid
            own[uid] = (*own.get(uid, ()), part)
            of_workload.setdefault(part.workload, {})[uid] = None
    parts = {
        uid: (mine, tuple(part for other in of_workload[mine[0].workload] if other != uid for part in own[other]))
        for uid, mine in own.items()
    }
    by_default = _by_default(groups) if any(part.defaulted for own_parts in own.values() for part in own_parts) else {}
    replica_sets = {
        uid: _replica_set(uid, each, _groups_of(each[0], groups, by_default), before) for uid, each in parts.items()
    }
    return _Namespace(pods, groups, buckets, parts, replica_sets)


def _bucket(names: PodsByName) -> _Bucket:
    by_controller: dict[str, tuple[OwnerReference, list[Pod]]] = {}
    strays = []
    for pod in names.values():
        controller = pod.controller
        if controller is not None and _BY_COST.get(controller.kind) == controller.api_version.rpartition("/")[0]:
            by_controller.setdefault(controller.uid, (controller, []))[1].append(pod)
        elif pod.deletion_cost_is_ours and is_active(pod):
            strays.append(pod)
    return _Bucket(names, tuple(_part(*each) for each in by_controller.values()), tuple(strays))


def _part(controller: OwnerReference, pods: list[Pod]) -> _Part:
    active = tuple(filter(is_active, pods))
    templates = {id(pod.spec): pod for pod in active}.values()
    keys = dict.fromkeys(key for pod in templates for key in group_keys_of(pod) if counts(key, pod.labels))
    return _Part(
        controller=controller,
        workload=workload_of(pods[0]),
        pods=active,
        terminating=any(pod.terminating for pod in pods),
        keys=tuple(keys),
        defaulted=tuple(template_of(pod).identity for pod in templates if not pod.spec.topology_spread_constraints),
    )


def _replica_set(
    uid: str,
    parts: tuple[tuple[_Part, ...], tuple[_Part, ...]],
    counting: tuple[SpreadGroup, ...],
    before: _Namespace | None,
) -> ReplicaSetPods:
    own, siblings = parts
    if before is not None and (known := before.replica_sets.get(uid)) is not None:
        own_before, siblings_before = before.parts[uid]
        if are_same(own_before, own) and are_same(siblings_before, siblings) and are_same(known.groups, counting):
            return known
    return ReplicaSetPods(
        namespace=own[0].workload.namespace,
        controller=own[0].controller,
        workload=own[0].workload,
        pods=_pods(own),
        siblings=_pods(siblings),
        groups=counting,
        terminating=any(part.terminating for part in own),
    )


def _groups_of(
    parts: Iterable[_Part],
    groups: Mapping[GroupKey, SpreadGroup],
    by_default: Mapping[TemplateIdentity, Sequence[SpreadGroup]],
) -> tuple[SpreadGroup, ...]:
    found: dict[GroupKey, SpreadGroup] = {}
    for part in parts:
        found.update((key, group) for key in part.keys if (group := groups.get(key)) is not None)
        for template in part.defaulted:
            found.update((group.key, group) for group in by_default.get(template, ()))
    return tuple(found.values())


def _pods(parts: Iterable[_Part]) -> tuple[Pod, ...]:
    return tuple(pod for part in parts for pod in part.pods)
