"""Which spread groups have to be planned together: those that share pods."""

from __future__ import annotations

from collections.abc import Iterable

from respread.cluster.meta import Labels
from respread.spread.group import SpreadGroup


def components_of(groups: Iterable[SpreadGroup]) -> list[tuple[SpreadGroup, ...]]:
    """Sort groups into the smallest sets such that no pod is counted by, or carries, groups of two of them.

    A pod belongs to a group if the group's selector matches it, or if it carries the group's constraint.
    """
    components = _DisjointSets()
    first_with: dict[tuple[str, Labels], int] = {}
    listed = list(groups)
    for index, group in enumerate(listed):
        for labels in (*group.matched, *(template.labels for template in group.carriers)):
            components.join(index, first_with.setdefault((group.key.namespace, labels), index))
    found: dict[int, list[SpreadGroup]] = {}
    for index, group in enumerate(listed):
        found.setdefault(components.root(index), []).append(group)
    return [tuple(members) for members in found.values()]


class _DisjointSets:
    __slots__ = ("_parent",)

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def root(self, member: int) -> int:
        path = []
        while (parent := self._parent.get(member, member)) != member:
            path.append(member)
            member = parent
        for each in path:
            self._parent[each] = member
        return member

    def join(self, one: int, other: int) -> None:
        self._parent[self.root(one)] = self.root(other)
