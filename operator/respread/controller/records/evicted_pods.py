"""The pods that Respread evicted, until they are gone, however early their moves end."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName
from respread.planning.plan import Move


class EvictedPods:
    """Remembers the pods that Respread evicted as long as they are being deleted. It belongs to one event loop.

    A move ends when its replacement is Ready, which is often sooner than the evicted pod has terminated.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, WorkloadName] = {}
        """By the pods' UIDs."""

    @property
    def uids(self) -> AbstractSet[str]:
        """The UIDs of the pods, and of those whose moves were in flight at the last call of `observe`."""
        return self._known.keys()

    def observe(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> frozenset[WorkloadName]:
        """Return the workloads that our moves have changed since the last call, or may have.

        Args:
            moves: the moves in flight, including those that have just ended.
            snapshot: the cluster.
        """
        before, self._known = self._known, {move.pod.uid: move.workload for move in moves}
        if before:
            here = {pod.uid for pod in snapshot.leaving_pods.values()}
            self._known |= {uid: workload for uid, workload in before.items() if uid in here}
        return frozenset((*before.values(), *self._known.values()))
