"""The order in which namespaces share a limited number of places: one of each, then the second of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turns(items: Iterable[T], namespace_of: Callable[[T], str], served: Mapping[str, int] | None = None) -> list[T]:
    """Return items so that each namespace has its first before any has its second.

    Args:
        items: in their order within a namespace.
        namespace_of: returns an item's namespace.
        served: by namespace, a number that grows with the time when it was last served. The namespace served longest
            ago is first. Without it, the order of the items decides.
    """
    served = {} if served is None else served
    number: dict[str, int] = {}
    ranked: list[tuple[int, int, T]] = []
    for item in items:
        namespace = namespace_of(item)
        rank = number[namespace] = number.get(namespace, -1) + 1
        ranked.append((rank, served.get(namespace, -1), item))
    return [item for *_, item in sorted(ranked, key=lambda each: each[:2])]
