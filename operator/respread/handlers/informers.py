"""All stores, with the informers that fill them."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from respread.cluster.decode.decoder import Decoder, Kind
from respread.cluster.errors import DecodeError
from respread.cluster.meta import ObjectKey
from respread.cluster.state import ClusterState
from respread.handlers.health import WatchHealth
from respread.handlers.informer import Feed
from respread.stores.changes import ChangeSignal
from respread.stores.policy_store import PolicyStore
from respread.stores.priority_classes import PriorityClassStore
from respread.stores.stores import PolicySink, PrioritySink, Sink, StateSink
from respread.stores.watched_kinds import CLUSTER_POLICIES, NAMESPACED_POLICIES, PRIORITY_CLASSES
from respread.telemetry.metrics import Metrics


class Intake:
    """The cluster state, the policies and the priority classes, with an informer for each watched kind.

    It belongs to one event loop: the stores only change between awaits of their readers.
    """

    __slots__ = ("changes", "decoder", "feeds", "health", "policies", "priority_classes", "state")

    def __init__(self, kinds: Iterable[Kind], *, health: WatchHealth, metrics: Metrics) -> None:
        """Start empty.

        Args:
            kinds: The watched kinds.
            health: Created for these kinds.
            metrics: Receive lists, and objects that can't be decoded.
        """
        self.health = health
        self.changes = ChangeSignal()
        self.decoder = Decoder()
        """Use it for everything else in `state`, so that it shares what pods share."""
        self.state = ClusterState()
        self.policies = PolicyStore()
        self.priority_classes = PriorityClassStore()
        self.feeds: tuple[Feed, ...] = tuple(
            Feed(kind, self._sink(kind), health=health, metrics=metrics, notify=self.changes.notify) for kind in kinds
        )

    def undecodable(self) -> dict[str, Map[ObjectKey, DecodeError]]:
        """Return, by plural name of the resource, the objects of which only an older version or nothing is known."""
        return {feed.kind.resource: feed.undecodable for feed in self.feeds if feed.undecodable}

    def object_counts(self) -> dict[str, int]:
        """Return the number of stored objects of each watched kind."""
        return {feed.kind.resource: feed.count for feed in self.feeds}

    def lags_seconds(self) -> dict[str, float]:
        """Return, for each watched kind, how long the oldest event has been waiting at most."""
        return {feed.kind.resource: feed.lag_seconds() for feed in self.feeds}

    def _sink(self, kind: Kind) -> Sink:
        if kind == PRIORITY_CLASSES:
            return PrioritySink(kind, self.priority_classes)
        if kind == CLUSTER_POLICIES:
            return PolicySink("ClusterRebalancePolicy", self.policies)
        if kind == NAMESPACED_POLICIES:
            return PolicySink("RebalancePolicy", self.policies)
        return StateSink(kind.resource, self.decoder, self.state)
