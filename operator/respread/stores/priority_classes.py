"""The values of PriorityClasses, which policies may name as their threshold."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from respread.cluster.meta import ObjectKey


class PriorityClassStore:
    """The value of each PriorityClass by its name."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: Map[str, int] = Map()

    @property
    def values(self) -> Map[str, int]:
        """The values as they are now; later changes don't touch what is returned."""
        return self._values

    def apply(self, changes: Iterable[tuple[ObjectKey, int | None]]) -> int:
        """Take over changed values, None for what is gone, and return how many changed."""
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
