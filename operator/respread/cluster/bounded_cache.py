"""Caches of what is computed from objects that anybody may write.

An object may have a hundred thousand values, and be replaced by another one every second. A cache of the last results
would keep them all. So results for large arguments are only kept as long as somebody else uses the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

MOST_RESULTS: Final = 16384
MOST_SMALL: Final = 16
"""The largest size of an argument that is small. Nearly all selectors have one to three values."""


def bounded_cache(size_of: Callable[[_K], int]) -> Callable[[Callable[[_K], _V]], Callable[[_K], _V]]:
    """Return a decorator that caches the results of a function.

    Args:
        size_of: returns how many values the argument of the function has. Weak references to large ones must be
            possible.
    """

    def decorate(compute: Callable[[_K], _V]) -> Callable[[_K], _V]:
        of_small = lru_cache(maxsize=MOST_RESULTS)(compute)
        of_large: WeakKeyDictionary[_K, _V] = WeakKeyDictionary()

        @wraps(compute)
        def cached(argument: _K) -> _V:
            if size_of(argument) <= MOST_SMALL:
                return of_small(argument)
            if (found := of_large.get(argument)) is None:
                found = of_large[argument] = compute(argument)
            return found

        return cached

    return decorate
