"""Common parts of Kubernetes objects: names, labels and the controller that owns them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec
from immutables import Map

Labels: TypeAlias = Map[str, str]


class ObjectKey(NamedTuple):
    """A namespace and a name. The namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`, or only the name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, weakref=True):
    """The controller of an object (`ownerReferences` with `controller: true`)."""

    api_version: str
    kind: str
    name: str
    uid: str
