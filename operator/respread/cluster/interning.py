"""Keeping equal parts of many objects as one object, for as long as anyone uses it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from weakref import WeakValueDictionary

from immutables import Map

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import PodSpec


class Interning:
    """Tables of parts that are shared between objects; what nobody uses any more leaves them by itself."""

    __slots__ = ("_labels", "_owners", "_specs")

    def __init__(self) -> None:
        self._labels: WeakValueDictionary[tuple[tuple[str, str], ...], Labels] = WeakValueDictionary()
        self._owners: WeakValueDictionary[tuple[str, str, str, str], OwnerReference] = WeakValueDictionary()
        self._specs: WeakValueDictionary[bytes, PodSpec] = WeakValueDictionary()

    def labels(self, labels: Mapping[str, str] | None) -> Labels:
        """Return the one map that holds these labels."""
        if not labels:
            return _NO_LABELS
        key = tuple(sorted(labels.items()))
        kept = self._labels.get(key)
        if kept is None:
            kept = self._labels[key] = Map({sys.intern(name): sys.intern(value) for name, value in key})
        return kept

    def owner(self, api_version: str, kind: str, name: str, uid: str) -> OwnerReference:
        """Return the one reference to this owner."""
        key = (uid, name, kind, api_version)
        kept = self._owners.get(key)
        if kept is None:
            kept = OwnerReference(sys.intern(api_version), sys.intern(kind), name, uid)
            self._owners[key] = kept
        return kept

    def spec(self, content: bytes) -> PodSpec | None:
        """Return the one spec kept for this content, if it is in use."""
        return self._specs.get(content)

    def keep_spec(self, content: bytes, spec: PodSpec) -> PodSpec:
        """Keep a spec as the one for this content, and return it."""
        self._specs[content] = spec
        return spec

    @property
    def specs(self) -> int:
        """How many distinct pod specs are in use."""
        return len(self._specs)


_NO_LABELS: Labels = Map()
