"""Values stored under keys, where most keys have only one value.

A set for each would take most of an index's memory.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
Filed: TypeAlias = dict[_K, _V | dict[_V, None]]
"""One value, or several in their order, by key. Values are not dicts and not None."""


def under(filed: Filed[_K, _V], key: _K) -> Collection[_V]:
    """Return the values under a key."""
    found = filed.get(key)
    return () if found is None else found if isinstance(found, dict) else (found,)


def file(filed: Filed[_K, _V], key: _K, value: _V) -> None:
    """Add a value under a key, if it is not there."""
    found = filed.get(key)
    if found is None:
        filed[key] = value
    elif isinstance(found, dict):
        found[value] = None
    elif found != value:
        filed[key] = {found: None, value: None}


def unfile(filed: Filed[_K, _V], key: _K, value: _V) -> None:
    """Remove a value under a key."""
    found = filed[key]
    if isinstance(found, dict) and len(found) > 1:
        del found[value]
    else:
        del filed[key]
