"""The pods of the controllers whose pods are to be moved: their number, and which are not Ready."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Move, Step
from respread.planning.victims.controllers import is_active, siblings_of


class ControllerPods:
    """Examines each controller once."""

    __slots__ = ("_accounted", "_found", "_snapshot")

    def __init__(self, snapshot: ClusterSnapshot, accounted: Collection[str]) -> None:
        """Use a snapshot.

        Args:
            snapshot: the cluster.
            accounted: UIDs of pods that already count, because they are evicted or are replacements.
        """
        self._snapshot = snapshot
        self._accounted = set(accounted)
        self._found: dict[str, tuple[int, dict[str, str]]] = {}

    def go(self, step: Step) -> None:
        """Record that the pods of a step are evicted now."""
        self._accounted.update(move.pod.uid for move in step)

    def replicas(self, move: Move) -> int:
        """Return the number of pods of a move's controller. It wants no fewer, or its last look would hold the move."""
        return self._of(move)[0]

    def not_ready(self, move: Move, step: Step) -> Sequence[str]:
        """Return the names of the controller's pods that are not Ready, except those in flight or in a step."""
        found = self._of(move)[1]
        if not found:
            return ()
        leaving = {each.pod.uid for each in step}
        return [name for uid, name in found.items() if uid not in self._accounted and uid not in leaving]

    def _of(self, move: Move) -> tuple[int, dict[str, str]]:
        uid = "" if move.pod.controller is None else move.pod.controller.uid
        if (known := self._found.get(uid)) is None:
            active = [pod for pod in siblings_of(self._snapshot, move.pod) if is_active(pod)]
            known = self._found[uid] = (len(active), {pod.uid: pod.name for pod in active if not pod.ready})
        return known
