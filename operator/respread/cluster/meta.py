"""Common parts of Kubernetes objects: names, labels, the controller that owns them, and annotations that are read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

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


OWN_PREFIX: Final = "respread.dev/"
VERSION: Final = "respread.dev/version"
"""On the Lease: the version of the operator that holds it."""
EVICT: Final = "respread.dev/evict"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_TO_EVICT_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

MIRROR: Final = "kubernetes.io/config.mirror"
"""Set on the mirror pod of a static pod; stored as `Pod.is_mirror`."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"

MAX_KEPT_LENGTH: Final = 4096
"""No meaningful value is longer."""
_MAX_OTHERS: Final = 8
"""The maximum number of annotations with our prefix that have no meaning now."""

_KEPT: Final = frozenset(
    {EVICT, SAFE_TO_EVICT, SAFE_TO_EVICT_LOCAL_VOLUMES, DO_NOT_DISRUPT, PREFER_NO_EVICTION, POD_DELETION_COST}
)


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a pod that Respread reads."""
    kept = [key for key in annotations if key in _KEPT]
    ours = (key for key in annotations if key.startswith(OWN_PREFIX) and key not in _KEPT)
    return {key: annotations[key][:MAX_KEPT_LENGTH] for key in (*kept, *islice(ours, _MAX_OTHERS))}
