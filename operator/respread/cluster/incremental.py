"""What is kept from one round to the next, so that a round costs only what has changed, and what is not kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, wraps
from itertools import compress
from operator import eq, is_, is_not
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

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


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether two sequences hold the same objects. Equal ones don't count, because comparing may cost much."""
    return len(one) == len(other) and all(map(is_, one, other))


class Incremental(Generic[_Key, _Value]):
    """Values by key. One is made again only if it was made of other objects.

    What a round had no use for is forgotten by the next one. The objects are held, so a key may contain their
    identities.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: dict[_Key, tuple[Sequence[object], _Value]] = {}
        self._now: dict[_Key, tuple[Sequence[object], _Value]] = {}

    def begin(self) -> None:
        """Begin a round, and forget what the last one had no use for."""
        self._before, self._now = self._now, {}

    def of(self, key: _Key, basis: Sequence[object], make: Callable[[], _Value]) -> _Value:
        """Return the value that was made of the same objects, or make it."""
        known = self._now.get(key) or self._before.get(key)
        if known is None or not are_same(known[0], basis):
            known = basis, make()
        self._now[key] = known
        return known[1]


MOST_RESULTS: Final = 16384
MOST_SMALL: Final = 16
"""The largest size of an argument that is small. Nearly all selectors have one to three values."""


def bounded_cache(size_of: Callable[[_Key], int]) -> Callable[[Callable[[_Key], _Value]], Callable[[_Key], _Value]]:
    """Return a decorator that caches the results of a function of an object that anybody may write.

    An object may have a hundred thousand values, and be replaced by another one every second. A cache of the last
    results would keep them all. So results for large arguments are only kept as long as somebody uses the argument.

    Args:
        size_of: returns how many values the argument of the function has. Weak references to large ones must be
            possible.
    """

    def decorate(compute: Callable[[_Key], _Value]) -> Callable[[_Key], _Value]:
        of_small = lru_cache(maxsize=MOST_RESULTS)(compute)
        of_large: WeakKeyDictionary[_Key, _Value] = WeakKeyDictionary()

        @wraps(compute)
        def cached(argument: _Key) -> _Value:
            if size_of(argument) <= MOST_SMALL:
                return of_small(argument)
            if (found := of_large.get(argument)) is None:
                found = of_large[argument] = compute(argument)
            return found

        return cached

    return decorate
