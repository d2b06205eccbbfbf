"""Objects that can't be decoded and that spread groups may count, because their labels are unknown."""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.state import ClusterSnapshot
from respread.planning.held import Held

EVERYWHERE = ""
"""Stands for all namespaces."""


def uncounted(snapshot: ClusterSnapshot) -> Mapping[str, Held]:
    """Return why groups are left alone because they may count an object that can't be decoded, by namespace.

    The groups of a pod's namespace may count the pod, and a node may be a domain of any group.
    """
    if not snapshot.unread:
        return {}
    found: dict[str, Held] = {}
    for resource in ("pods", "nodes"):
        for key, each in snapshot.unread.get(resource, Map()).items():
            if not each.labels_read and key.namespace not in found:
                found[key.namespace] = Held(
                    Reason.UNREAD_OBJECT,
                    f"it is not known whether its constraint counts an object that can't be read: {each.fault}",
                )
    return found


def why_uncounted(found: Mapping[str, Held], namespace: str) -> Held | None:
    """Return why the groups of a namespace are left alone, or None."""
    return found.get(EVERYWHERE) or found.get(namespace)
