"""Pods on nodes that no longer exist.

The pod garbage collector of Kubernetes deletes them about a minute after their node, and only then do their controllers
create others. Until then, the scheduler counts them in no domain, and no Pending pod shows that they need room.
"""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.protection import why_not_replaced


class LostPods:
    """The pods of one snapshot after the other that have lost their node and will be replaced on another one."""

    __slots__ = ("_names", "pods")

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        """Nodes that don't exist and have pods."""
        self.pods: tuple[Pod, ...] = ()
        """Those of the last snapshot, except terminating ones."""

    def advance(self, snapshot: ClusterSnapshot, changed: Iterable[str]) -> None:
        """Look at another snapshot.

        Args:
            snapshot: the cluster.
            changed: the names of all nodes that came or went since the last one, or whose pods changed.
        """
        by_node = snapshot.pods_by_node
        self._names = frozenset(
            name for name in (*self._names, *changed) if name in by_node and name not in snapshot.nodes
        )
        unread = {key.name for key in snapshot.unread.get("nodes", Map())} if self._names else set()
        self.pods = tuple(
            pod
            for name in sorted(self._names - unread)
            for _, pod in sorted(by_node[name].items())
            if not pod.terminating and why_not_replaced(pod) is None
        )
