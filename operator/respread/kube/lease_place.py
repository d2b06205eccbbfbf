"""The namespace of the Lease by which all operators of a cluster elect their leader."""

from __future__ import annotations

from typing import Final

from respread.cluster.meta import Labels
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.controllers import is_active
from respread.planning.victims.protection import OWN_LABELS

INSTALLED_NAMESPACE: Final = "respread-system"
"""The namespace in which manifests/ install the operator."""
COMMON_NAMESPACE: Final = "default"
"""The namespace of the Lease for operators outside of a cluster if none is installed. Every cluster has it, and nobody
can delete it."""


class LeasePlace:
    """Finds the operator that is installed in a cluster by its pods, for operators outside of the cluster.

    It is called repeatedly, because an operator may be installed at any time. Only namespaces whose pods changed are
    examined.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, bool]] = {}

    def in_snapshot(self, snapshot: ClusterSnapshot) -> str:
        """Return the namespace of the installed operator, or else the common one."""
        known, self._known = self._known, {}
        for namespace, by_labels in snapshot.pods_by_labels.items():
            before = known.get(namespace)
            if before is None or before[0] is not by_labels:
                found = any(
                    _are_own(labels) and any(map(is_active, pods.values())) for labels, pods in by_labels.items()
                )
                before = (by_labels, found)
            self._known[namespace] = before
        installed = {namespace for namespace, (_, found) in self._known.items() if found}
        if INSTALLED_NAMESPACE in installed or INSTALLED_NAMESPACE in snapshot.namespaces:
            return INSTALLED_NAMESPACE
        return min(installed, default=COMMON_NAMESPACE)


def _are_own(labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in OWN_LABELS.items())
