"""The cluster as one value: persistent maps that are updated step by step. Taking a snapshot costs nothing.

Every map is an `immutables.Map` (a hash array mapped trie): a change creates a new map that shares all but a few small
nodes with the old one. A snapshot is therefore just the state at that moment. What has not changed between two
snapshots is the same object in both, so a value derived from a part is valid while the part is the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from immutables import Map, MapMutation

from respread.cluster.meta import Labels, ObjectKey
from respread.cluster.objects import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    ResourceQuota,
    Service,
    StorageClass,
    Unread,
    Workload,
)
from respread.cluster.pod import Pod

StateObject: TypeAlias = (
    Pod
    | Node
    | Namespace
    | PodDisruptionBudget
    | ResourceQuota
    | Service
    | Workload
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
)
PodsByName: TypeAlias = Map[str, Pod]
Change: TypeAlias = tuple[ObjectKey, StateObject | None]
"""An object's key, and the object as it is now, or None if it is gone."""

_K = TypeVar("_K")
_V = TypeVar("_V")


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cluster at one moment. It never changes."""

    pods: Map[ObjectKey, Pod] = Map()
    pods_by_labels: Map[str, Map[Labels, PodsByName]] = Map()
    """Namespace, then the pods' labels, then the pods' names."""
    pods_by_controller: Map[str, Map[str, PodsByName]] = Map()
    """Namespace, then the controller's UID, then the pods' names. Pods without a controller are not included."""
    pods_by_node: Map[str, Map[ObjectKey, Pod]] = Map()
    """Pods bound to a node of that name, whether or not the node exists, without finished pods."""
    nominated_pods: Map[ObjectKey, Pod] = Map()
    """Pods that are not bound yet and have a nominated node after a preemption."""
    waiting_pods: Map[ObjectKey, Pod] = Map()
    """Pods without a node, except those that are being deleted."""
    leaving_pods: Map[ObjectKey, Pod] = Map()
    """Pods with a node that are being deleted. They keep their resources until they are gone."""
    nodes: Map[str, Node] = Map()
    namespaces: Map[str, Namespace] = Map()
    disruption_budgets: Map[str, Map[str, PodDisruptionBudget]] = Map()
    """Namespace, then name."""
    services: Map[str, Map[str, Service]] = Map()
    resource_quotas: Map[str, Map[str, ResourceQuota]] = Map()
    replica_sets: Map[ObjectKey, Workload] = Map()
    stateful_sets: Map[ObjectKey, Workload] = Map()
    replication_controllers: Map[ObjectKey, Workload] = Map()
    persistent_volume_claims: Map[ObjectKey, PersistentVolumeClaim] = Map()
    persistent_volumes: Map[str, PersistentVolume] = Map()
    storage_classes: Map[str, StorageClass] = Map()
    csi_nodes: Map[str, CSINode] = Map()
    unread: Map[str, Map[ObjectKey, Unread]] = Map()
    """By resource, the objects that could not be decoded in full."""

    def pods_in(self, namespace: str | None) -> Iterator[Pod]:
        """Yield the pods of a namespace; None is all of them."""
        none: Map[Labels, PodsByName] = Map()
        found = self.pods_by_labels
        parts = found.values() if namespace is None else (found.get(namespace, none),)
        return (pod for by_labels in parts for pods in by_labels.values() for pod in pods.values())


# The resources (by the API's names in paths) and the maps of the snapshot that hold them: by name, by namespace and
# name in one key, or by namespace and then by name.
_BY_NAME = {
    "nodes": "nodes",
    "namespaces": "namespaces",
    "persistentvolumes": "persistent_volumes",
    "storageclasses": "storage_classes",
    "csinodes": "csi_nodes",
}
_BY_KEY = {
    "replicasets": "replica_sets",
    "statefulsets": "stateful_sets",
    "replicationcontrollers": "replication_controllers",
    "persistentvolumeclaims": "persistent_volume_claims",
}
_BY_NAMESPACE = {
    "poddisruptionbudgets": "disruption_budgets",
    "services": "services",
    "resourcequotas": "resource_quotas",
}

RESOURCES: frozenset[str] = frozenset({"pods", *_BY_NAME, *_BY_KEY, *_BY_NAMESPACE})
"""The resources of a `ClusterState`, by their plural names."""


class ClusterState:
    """The newest snapshot. Only this class creates the next one.

    An object that equals the stored one changes nothing, so heartbeats and irrelevant status updates don't cause any
    work.
    """

    def __init__(self, snapshot: ClusterSnapshot | None = None) -> None:
        self.snapshot = ClusterSnapshot() if snapshot is None else snapshot
        """The cluster as it is now. Later changes don't affect the returned value."""

    def apply(self, resource: str, changes: Iterable[Change]) -> int:
        """Apply changes of objects of one resource, and return how many of them changed anything.

        Raises:
            ValueError: if the resource is not in `RESOURCES`.
        """
        before = self.snapshot
        if resource == "pods":
            after, changed = _with_pods(before, changes)
        elif resource in _BY_NAME:
            field = _BY_NAME[resource]
            by_name, changed = with_changes(getattr(before, field), ((key.name, value) for key, value in changes))
            after = msgspec.structs.replace(before, **{field: by_name})
        elif resource in _BY_KEY:
            field = _BY_KEY[resource]
            by_key, changed = with_changes(getattr(before, field), changes)
            after = msgspec.structs.replace(before, **{field: by_key})
        elif resource in _BY_NAMESPACE:
            field = _BY_NAMESPACE[resource]
            by_namespace, changed = _with_nested_changes(getattr(before, field), changes)
            after = msgspec.structs.replace(before, **{field: by_namespace})
        else:
            raise ValueError(f"unknown resource {resource!r}: a ClusterState holds {', '.join(sorted(RESOURCES))}")
        if changed:
            self.snapshot = after
        return changed

    def note_unread(self, resource: str, changes: Iterable[tuple[ObjectKey, Unread | None]]) -> bool:
        """Store which objects of a resource could not be decoded in full; None for those that could be, or are gone.

        Returns:
            Whether anything has changed.
        """
        before: Map[ObjectKey, Unread] = self.snapshot.unread.get(resource, Map())
        after, changed = with_changes(before, changes)
        if changed:
            unread = self.snapshot.unread.mutate()
            _set_or_drop(unread, resource, after)
            self.snapshot = msgspec.structs.replace(self.snapshot, unread=unread.finish())
        return bool(changed)

    def replace(self, resource: str, objects: Iterable[StateObject]) -> int:
        """Apply a complete list: objects that it does not contain are gone. Return how many objects changed."""
        listed: dict[ObjectKey, StateObject] = {each.key: each for each in objects}
        gone: list[Change] = [(key, None) for key in self.keys(resource) if key not in listed]
        return self.apply(resource, [*gone, *listed.items()])

    def get(self, resource: str, key: ObjectKey) -> StateObject | None:
        """Return a stored object, or None."""
        held: Map[Any, Any]
        if resource in _BY_NAMESPACE:
            held = getattr(self.snapshot, _BY_NAMESPACE[resource]).get(key.namespace, Map())
        else:
            held = getattr(self.snapshot, _BY_NAME.get(resource) or _BY_KEY.get(resource) or resource)
        found: StateObject | None = held.get(key if resource == "pods" or resource in _BY_KEY else key.name)
        return found

    def keys(self, resource: str) -> Collection[ObjectKey]:
        """Return the keys of all stored objects of a resource."""
        if resource == "pods":
            return self.snapshot.pods.keys()
        if resource in _BY_NAME:
            return [ObjectKey("", name) for name in getattr(self.snapshot, _BY_NAME[resource])]
        if resource in _BY_KEY:
            held: Map[ObjectKey, Any] = getattr(self.snapshot, _BY_KEY[resource])
            return held.keys()
        nested: Map[str, Map[str, Any]] = getattr(self.snapshot, _BY_NAMESPACE[resource])
        return [ObjectKey(namespace, name) for namespace, names in nested.items() for name in names]


def with_changes(before: Map[_K, _V], changes: Iterable[tuple[_K, _V | None]]) -> tuple[Map[_K, _V], int]:
    """Return a map with changed values, without those that are None, and how many have changed."""
    after = before.mutate()
    changed = 0
    for key, new in changes:
        if after.get(key) == new:
            continue
        changed += 1
        if new is None:
            del after[key]
        else:
            after[key] = new
    return after.finish(), changed


def _with_nested_changes(
    before: Map[str, Map[str, _V]], changes: Iterable[tuple[ObjectKey, _V | None]]
) -> tuple[Map[str, Map[str, _V]], int]:
    by_namespace: dict[str, list[tuple[str, _V | None]]] = {}
    for key, new in changes:
        by_namespace.setdefault(key.namespace, []).append((key.name, new))
    after = before.mutate()
    changed = 0
    for namespace, inner_changes in by_namespace.items():
        inner, inner_changed = with_changes(after.get(namespace, Map()), inner_changes)
        changed += inner_changed
        _set_or_drop(after, namespace, inner)
    return after.finish(), changed


def _set_or_drop(outer: MapMutation[_K, Map[Any, Any]], key: _K, inner: Map[Any, Any]) -> None:
    if inner:
        outer[key] = inner
    elif key in outer:
        del outer[key]


def _with_pods(before: ClusterSnapshot, changes: Iterable[tuple[ObjectKey, Any]]) -> tuple[ClusterSnapshot, int]:
    pods = before.pods.mutate()
    indices = _PodIndices(before)
    changed = 0
    for key, new in changes:
        old = pods.get(key)
        if old == new:
            continue
        changed += 1
        if old is not None:
            indices.remove(key, old)
        if new is None:
            del pods[key]
        else:
            pods[key] = new
            indices.add(key, new)
    if not changed:
        return before, 0
    return msgspec.structs.replace(indices.finish(), pods=pods.finish()), changed


class _PodIndices:
    """The indices of a snapshot's pods during changes. Each changed map is copied once, however many pods change."""

    def __init__(self, before: ClusterSnapshot) -> None:
        self._before = before
        self._grouped = _GroupedPods(before.pods_by_labels, before.pods_by_controller)
        self._by_node: dict[str, MapMutation[ObjectKey, Pod]] = {}
        self._nominated = before.nominated_pods
        self._waiting = before.waiting_pods.mutate()
        self._leaving = before.leaving_pods.mutate()

    def add(self, key: ObjectKey, pod: Pod) -> None:
        for names in self._grouped.maps_of(pod):
            names[key.name] = pod
        if _occupies_node(pod):
            self._on_node(pod.node_name)[key] = pod
            if pod.terminating:
                self._leaving[key] = pod
        elif _is_nominated(pod):
            self._nominated = self._nominated.set(key, pod)
        if _is_waiting(pod):
            self._waiting[key] = pod

    def remove(self, key: ObjectKey, pod: Pod) -> None:
        for names in self._grouped.maps_of(pod):
            del names[key.name]
        if _occupies_node(pod):
            del self._on_node(pod.node_name)[key]
            if pod.terminating:
                del self._leaving[key]
        elif _is_nominated(pod):
            self._nominated = self._nominated.delete(key)
        if _is_waiting(pod):
            del self._waiting[key]

    def finish(self) -> ClusterSnapshot:
        nodes = self._before.pods_by_node.mutate()
        for name, pods in self._by_node.items():
            _set_or_drop(nodes, name, pods.finish())
        by_labels, by_controller = self._grouped.finish()
        return msgspec.structs.replace(
            self._before,
            pods_by_labels=by_labels,
            pods_by_controller=by_controller,
            pods_by_node=nodes.finish(),
            nominated_pods=self._nominated,
            waiting_pods=self._waiting.finish(),
            leaving_pods=self._leaving.finish(),
        )

    def _on_node(self, name: str) -> MapMutation[ObjectKey, Pod]:
        if (found := self._by_node.get(name)) is None:
            found = self._by_node[name] = self._before.pods_by_node.get(name, Map()).mutate()
        return found


def _occupies_node(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.finished


def _is_nominated(pod: Pod) -> bool:
    return bool(pod.nominated_node_name) and not pod.finished


def _is_waiting(pod: Pod) -> bool:
    return not pod.node_name and not pod.finished and not pod.terminating


_OfLabels: TypeAlias = tuple[str, Labels]
"""A namespace and labels."""
_OfController: TypeAlias = tuple[str, str]
"""A namespace and the UID of a controller."""


class _GroupedPods:
    """Pods by namespace and labels, and by namespace and controller, while many change. A changed map is copied once.

    The pods of a controller usually have labels that no other pods have. Then both use the same map, which is stored
    and changed once.
    """

    def __init__(self, by_labels: Map[str, Map[Labels, PodsByName]], by_controller: Map[str, Map[str, PodsByName]]):
        self._before = by_labels, by_controller
        self._with_labels: dict[_OfLabels, MapMutation[str, Pod]] = {}
        self._of_controller: dict[_OfController, MapMutation[str, Pod]] = {}
        self._controller_of: dict[_OfLabels, _OfController] = {}
        """For each changed label set, the controller whose pods, and no others, have it."""
        self._labels_of: dict[_OfController, _OfLabels] = {}
        """The reverse."""

    def maps_of(self, pod: Pod) -> Collection[MapMutation[str, Pod]]:
        """Return the maps that contain, or will contain, a pod by its name."""
        at = (pod.namespace, pod.labels)
        if pod.controller is None:
            self._part(at)
            return (self._labels_map(at),)
        of = (pod.namespace, pod.controller.uid)
        if self._controller_of.get(at) == of or self._may_share(at, of):
            return (self._with_labels[at],)
        self._part(at)
        self._part(self._labels_of.get(of))
        return self._labels_map(at), self._controller_map(of)

    def finish(self) -> tuple[Map[str, Map[Labels, PodsByName]], Map[str, Map[str, PodsByName]]]:
        """Return both as they are now."""
        by_labels, by_controller = self._before
        with_labels = {at: names.finish() for at, names in self._with_labels.items()}
        of_controller = {of: names.finish() for of, names in self._of_controller.items()}
        of_controller.update((of, with_labels[at]) for of, at in self._labels_of.items())
        return _with_maps(by_labels, with_labels), _with_maps(by_controller, of_controller)

    def _may_share(self, at: _OfLabels, of: _OfController) -> bool:
        """Let labels and a controller share a map if this is their first change, and they shared one or had none."""
        if at in self._with_labels or of in self._of_controller or of in self._labels_of:
            return False
        by_labels, by_controller = self._before
        names = _map_at(by_labels, at)
        if names is not _map_at(by_controller, of):
            return False
        self._with_labels[at] = (names or Map()).mutate()
        self._controller_of[at], self._labels_of[of] = of, at
        return True

    def _part(self, at: _OfLabels | None) -> None:
        """Give labels a map of their own instead of sharing one with a controller."""
        if at is not None and (of := self._controller_of.pop(at, None)) is not None:
            del self._labels_of[of]
            names = self._with_labels[at].finish()
            self._with_labels[at], self._of_controller[of] = names.mutate(), names.mutate()

    def _labels_map(self, at: _OfLabels) -> MapMutation[str, Pod]:
        if (found := self._with_labels.get(at)) is None:
            found = self._with_labels[at] = (_map_at(self._before[0], at) or Map()).mutate()
        return found

    def _controller_map(self, of: _OfController) -> MapMutation[str, Pod]:
        if (found := self._of_controller.get(of)) is None:
            found = self._of_controller[of] = (_map_at(self._before[1], of) or Map()).mutate()
        return found


def _map_at(maps: Map[str, Map[_K, PodsByName]], at: tuple[str, _K]) -> PodsByName | None:
    in_namespace = maps.get(at[0])
    return None if in_namespace is None else in_namespace.get(at[1])


def _with_maps(
    before: Map[str, Map[_K, PodsByName]], changed: Mapping[tuple[str, _K], PodsByName]
) -> Map[str, Map[_K, PodsByName]]:
    """Return maps by namespace and another key with some replaced, without empty ones."""
    namespaces = before.mutate()
    touched: dict[str, MapMutation[_K, PodsByName]] = {}
    for (namespace, key), names in changed.items():
        if (by_key := touched.get(namespace)) is None:
            by_key = touched[namespace] = namespaces.get(namespace, Map()).mutate()
        if names:
            by_key[key] = names
        else:
            by_key.pop(key, None)
    for namespace, by_key in touched.items():
        if len(by_key):
            namespaces[namespace] = by_key.finish()
        else:
            namespaces.pop(namespace, None)
    return namespaces.finish()
