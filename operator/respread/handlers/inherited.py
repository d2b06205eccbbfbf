"""Moves that an earlier leader may have made and that are not over: they count for the limits of the one after it.

Which moves they were is not known any more. What is seen of them are pods that are going, and young ones that are not
Ready yet; whoever takes over takes all of these for moves, for as long as it would wait for its own. For a few minutes
that is rather too many than too few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import workload_of
from respread.planning.controllers import siblings_of
from respread.planning.plan import Move
from respread.planning.policies import PolicyIndex
from respread.spread.index import Spread

PATIENCE_SECONDS: Final = 300.0
"""As long as a move's step may take (`respread.eviction.in_flight.Patience`)."""


class Inherited:
    """The moves of earlier leaders."""

    __slots__ = ("_moves", "_until")

    def __init__(self) -> None:
        self._moves: dict[str, Move] = {}
        """By the controllers' UIDs: one pod of each, and what governs it."""
        self._until = 0.0

    def begin(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        policies: PolicyIndex,
        *,
        ours: Collection[str],
        now: datetime,
        seconds: float,
    ) -> None:
        """Take over whatever is under way.

        Args:
            snapshot: the cluster.
            spread: its spread groups.
            policies: who governs which pods.
            ours: UIDs of pods whose moves are known.
            now: the time of day, with a time zone.
            seconds: the time on a clock that is never set.
        """
        self._until = seconds + PATIENCE_SECONDS
        self._moves = {}
        young = now - timedelta(seconds=PATIENCE_SECONDS)
        for namespace, groups in spread.by_namespace.items():
            labels_known = snapshot.namespaces.get(namespace)
            index = policies.in_namespace(namespace, None if labels_known is None else labels_known.labels)
            for labels in {labels for group in groups.values() for labels in group.matched}:
                policy = index.governance(labels).policy
                for pod in snapshot.pods_by_labels[namespace].get(labels, {}).values():
                    if policy is None or pod.controller is None or pod.uid in ours or not _under_way(pod, young):
                        continue
                    matching = [group for group in groups.values() if labels in group.matched]
                    self._moves[pod.controller.uid] = Move(
                        pod=pod,
                        policy=policy.name,
                        workload=workload_of(pod),
                        turn=0,
                        component=0,
                        groups=tuple(group.key for group in matching),
                        from_domains=tuple("" for _ in matching),
                        to_domains=tuple(() for _ in matching),
                        nodes=0,
                        certain=False,
                    )

    def moves(self, snapshot: ClusterSnapshot, seconds: float) -> tuple[Move, ...]:
        """Return those that are not over, as moves that count for limits and keep their groups busy.

        Args:
            snapshot: the cluster now.
            seconds: the time on the clock.
        """
        if not self._moves:
            return ()
        if seconds >= self._until:
            self._moves = {}
        found: list[Move] = []
        for uid, move in list(self._moves.items()):
            siblings = list(siblings_of(snapshot, move.pod))
            # of one move there may be both to see, the pod that goes and the one that comes
            count = max(_count(pod.terminating for pod in siblings), _count(_coming(pod) for pod in siblings))
            if not count:
                del self._moves[uid]
            found.extend([move] * count)
        return tuple(found)


def _under_way(pod: Pod, young: datetime) -> bool:
    return pod.terminating or (_coming(pod) and (pod.creation_timestamp is None or pod.creation_timestamp >= young))


def _coming(pod: Pod) -> bool:
    return not pod.ready and not pod.terminating and not pod.finished


def _count(found: Iterable[bool]) -> int:
    return sum(found)
