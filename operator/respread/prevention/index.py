"""All ReplicaSets, updated from one snapshot to the next. What has not changed stays the same object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.incremental import are_same
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.prevention.replica_set import ReplicaSetPods, counts, deletes_by_cost
from respread.spread.group import GroupKey, SpreadGroup, template_of
from respread.spread.index import Spread, group_keys_of

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

    __slots__ = ("_by_uid", "_namespaces", "_strays")

    def __init__(self) -> None:
        self._by_uid: dict[str, ReplicaSetPods] = {}
        self._namespaces: dict[str, _Namespace] = {}
        self._strays: dict[str, tuple[Pod, ...]] = {}

    @property
    def by_uid(self) -> Mapping[str, ReplicaSetPods]:
        """The ReplicaSets after the last update."""
        return self._by_uid

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
            self._keep_strays(name, now)
        for uid in gone:
            self._by_uid.pop(uid, None)
        self._by_uid.update((each.controller.uid, each) for each in changed)
        return RankingChanges(changed, gone)

    def _keep_strays(self, name: str, namespace: _Namespace) -> None:
        strays = tuple(pod for bucket in namespace.buckets.values() for pod in bucket.strays)
        if strays:
            self._strays[name] = strays
        else:
            self._strays.pop(name, None)


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
        if controller is not None and deletes_by_cost(controller):
            by_controller.setdefault(controller.uid, (controller, []))[1].append(pod)
        elif pod.deletion_cost_is_ours and not pod.terminating:
            strays.append(pod)
    return _Bucket(names, tuple(_part(*each) for each in by_controller.values()), tuple(strays))


def _part(controller: OwnerReference, pods: list[Pod]) -> _Part:
    active = tuple(pod for pod in pods if not pod.terminating and not pod.finished)
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
