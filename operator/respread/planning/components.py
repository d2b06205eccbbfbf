"""Which spread groups must be planned together: those that share pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from respread.cluster.matching import Filed, file, under, unfile
from respread.cluster.meta import Labels
from respread.spread.group import GroupKey, SpreadGroup

Component: TypeAlias = frozenset[GroupKey]


class Components:
    """The groups of one namespace in the smallest sets such that no pod belongs to groups of two sets.

    A pod belongs to a group if the group's selector matches it, or if it has the group's constraint. A component is
    computed when it is requested, and kept until groups come, go, or get other pods.
    """

    __slots__ = ("_groups", "_known", "_with_labels")

    def __init__(self) -> None:
        self._groups: dict[GroupKey, SpreadGroup] = {}
        self._with_labels: Filed[Labels, GroupKey] = {}
        self._known: dict[GroupKey, Component] = {}

    def advance(self, changed: Mapping[GroupKey, SpreadGroup | None]) -> None:
        """Take over the current groups, with None for those that are gone."""
        joined: set[Labels] = set()
        for key, group in changed.items():
            before = self._groups.get(key)
            if before is not None and group is not None and _same_pods(before, group):
                self._groups[key] = group
                continue
            if before is not None:
                self._forget(key)
                for labels in labels_of(before):
                    unfile(self._with_labels, labels, key)
                del self._groups[key]
            if group is not None:
                self._groups[key] = group
                for labels in labels_of(group):
                    file(self._with_labels, labels, key)
                    joined.add(labels)
        for labels in joined:
            for other in under(self._with_labels, labels):
                self._forget(other)

    def of(self, key: GroupKey) -> Component:
        """Return the component of a group. It stays the same object while it does not change."""
        if (found := self._known.get(key)) is None:
            found = frozenset(self._reached_from(key))
            self._known.update(dict.fromkeys(found, found))
        return found

    def _forget(self, key: GroupKey) -> None:
        for each in self._known.get(key, ()):
            del self._known[each]

    def _reached_from(self, key: GroupKey) -> set[GroupKey]:
        found, left = {key}, [key]
        seen: set[Labels] = set()
        while left:
            labels = labels_of(self._groups[left.pop()]) - seen
            seen |= labels
            new = {other for each in labels for other in under(self._with_labels, each)} - found
            found |= new
            left.extend(new)
        return found


def labels_of(group: SpreadGroup) -> set[Labels]:
    """Return the label sets of the pods that belong to a group."""
    labels = set(group.matched)
    labels.update(template.labels for template in group.carriers)
    return labels


def _same_pods(one: SpreadGroup, other: SpreadGroup) -> bool:
    """Whether pods of the same label sets belong to two groups, by a quick check."""
    return one.matched is other.matched and one.carriers is other.carriers
