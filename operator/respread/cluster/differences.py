"""The differences between two persistent maps, one of which normally derives from the other."""

from __future__ import annotations

from itertools import compress
from operator import eq, is_not
from typing import TypeVar

from immutables import Map

_K = TypeVar("_K")
_V = TypeVar("_V")


def changed_keys(before: Map[_K, _V], now: Map[_K, _V]) -> list[_K]:
    """Return the keys whose values are different objects in two maps, and the keys that only one of them has."""
    if before is now:
        return []
    # Maps with the same keys usually have them in the same order. Then no look-up is necessary.
    if len(before) == len(now) and all(map(eq, before, now)):
        return list(compress(now, map(is_not, before.values(), now.values())))
    changed = [key for key, value in now.items() if key not in before or before[key] is not value]
    changed.extend(key for key in before if key not in now)
    return changed
