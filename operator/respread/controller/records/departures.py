"""Since when nodes are losing their pods without us: how long it is waited for them depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from immutables import Map

from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.leaving_nodes import MarkedNodes

_NO_PODS: Map[ObjectKey, Pod] = Map()


class _Departure(NamedTuple):
    pods: Map[ObjectKey, Pod]
    since: datetime


class Departures:
    """Remembers of each node that is losing its pods when it lost one last.

    A cordoned node is one of them from the first pod that somebody else evicts there until it takes pods again.
    """

    __slots__ = ("_known", "_marked")

    def __init__(self) -> None:
        self._marked = MarkedNodes()
        self._known: dict[str, _Departure] = {}

    def observe(self, snapshot: ClusterSnapshot, ours: Iterable[Pod], now: datetime) -> Mapping[str, datetime]:
        """Return when each node that is losing its pods lost one last, or began to.

        Args:
            snapshot: the cluster.
            ours: the pods that we have evicted.
            now: the time, with a time zone.
        """
        self._marked.advance(snapshot)
        drained = self._marked.drained(snapshot, ours, self._known)
        known: dict[str, _Departure] = {}
        for name in self._marked.tainted.keys() | drained:
            pods, before = snapshot.pods_by_node.get(name, _NO_PODS), self._known.get(name)
            lost = before is None or any(key not in pods for key in before.pods)
            known[name] = _Departure(pods, now if before is None or lost else before.since)
        self._known = known
        return {name: each.since for name, each in known.items()}
