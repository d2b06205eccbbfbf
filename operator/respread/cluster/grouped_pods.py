"""Pods by labels and by controller, during changes. Each changed map is copied once, however many pods change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias, TypeVar

from immutables import Map, MapMutation

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod

PodsByName: TypeAlias = Map[str, Pod]
_OfLabels: TypeAlias = tuple[str, Labels]
"""A namespace and labels."""
_OfController: TypeAlias = tuple[str, str]
"""A namespace and the UID of a controller."""

_K = TypeVar("_K")


class GroupedPods:
    """Pods by namespace and labels, and by namespace and controller, during changes.

    The pods of a controller usually have labels that no other pods have. Then both use the same map, which is stored
    and changed once.
    """

    __slots__ = ("_before", "_controller_of", "_labels_of", "_of_controller", "_with_labels")

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
