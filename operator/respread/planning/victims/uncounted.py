"""Objects that can't be read and that spread groups may count: whose labels are not known."""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.state import ClusterSnapshot
from respread.planning.held import Held

EVERYWHERE = ""
"""In place of a namespace: all of them."""


def uncounted(snapshot: ClusterSnapshot) -> Mapping[str, Held]:
    """Return why groups are left alone since they may count what can't be read, by namespace.

    A pod may be counted by the groups of its namespace, and a node may be a domain of any.
    """
    if not snapshot.unread:
        return {}
    found: dict[str, Held] = {}
    for resource in ("pods", "nodes"):
        for key, each in snapshot.unread.get(resource, Map()).items():
            if not each.labels_read and key.namespace not in found:
                found[key.namespace] = Held(
                    Reason.UNREAD_OBJECT,
                    f"it can't be told whether its constraint counts what can't be read: {each.fault}",
                )
    return found


def why_uncounted(found: Mapping[str, Held], namespace: str) -> Held | None:
    """Return why the groups of a namespace are left alone, or None if they need not be."""
    return found.get(EVERYWHERE) or found.get(namespace)
