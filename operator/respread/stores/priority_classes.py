"""The values of PriorityClasses, which policies may name as a threshold."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from respread.cluster.meta import ObjectKey


class PriorityClassStore:
    """The value of each PriorityClass, by name."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: Map[str, int] = Map()

    @property
    def values(self) -> Map[str, int]:
        """The values as they are now. Later changes don't affect the returned value."""
        return self._values

    def apply(self, changes: Iterable[tuple[ObjectKey, int | None]]) -> int:
        """Apply changed values, None for deleted classes, and return how many changed."""
        values, changed = self._values.mutate(), 0
        for key, value in changes:
            if values.get(key.name) == value:
                continue
            changed += 1
            if value is None:
                del values[key.name]
            else:
                values[key.name] = value
        self._values = values.finish()
        return changed
