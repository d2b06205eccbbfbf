"""Finds which of many selectors match which of many label sets, without trying every pair.

`Filed` are values stored under keys, where most keys have only one value. A set for each would take most of an index's
memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias, TypeVar

from respread.cluster.meta import Labels
from respread.cluster.selectors import Selector

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


_Pair: TypeAlias = tuple[str, str]
"""A label's key and value."""


class Matching:
    """Selectors and label sets that are added and removed.

    Label sets are found by the rarest label that a selector requires, and selectors by one of their required labels.
    Only selectors that require no label value are tried on everything.
    """

    __slots__ = ("_filed_under", "_label_sets", "_selectors", "_with_pair")

    def __init__(self) -> None:
        self._label_sets: dict[Labels, None] = {}
        self._with_pair: Filed[_Pair, Labels] = {}
        self._selectors: Filed[_Pair | None, Selector] = {}
        """By a required label, or under None for selectors that require no label value."""
        self._filed_under: dict[Selector, _Pair | None] = {}

    def add_labels(self, labels: Labels) -> None:
        """Add a label set."""
        self._label_sets[labels] = None
        for pair in labels.items():
            file(self._with_pair, pair, labels)

    def remove_labels(self, labels: Labels) -> None:
        """Remove an existing label set."""
        del self._label_sets[labels]
        for pair in labels.items():
            unfile(self._with_pair, pair, labels)

    def add_selector(self, selector: Selector) -> None:
        """Add a selector, if it is not there."""
        if selector not in self._filed_under:
            selectors = self._selectors
            pair = min(selector.required, key=lambda pair: len(under(selectors, pair)), default=None)
            self._filed_under[selector] = pair
            file(selectors, pair, selector)

    def remove_selector(self, selector: Selector) -> None:
        """Remove an existing selector."""
        unfile(self._selectors, self._filed_under.pop(selector), selector)

    def labels_of(self, selector: Selector) -> Iterator[Labels]:
        """Yield the label sets that a selector matches. The selector need not have been added."""
        having = [under(self._with_pair, pair) for pair in selector.required]
        candidates: Collection[Labels] = min(having, key=len, default=self._label_sets)
        return (labels for labels in candidates if selector.matches(labels))

    def selectors_of(self, labels: Labels) -> Iterator[Selector]:
        """Yield the added selectors that match a label set. The label set need not have been added."""
        for pair in (*labels.items(), None):
            for selector in under(self._selectors, pair):
                if selector.matches(labels):
                    yield selector
