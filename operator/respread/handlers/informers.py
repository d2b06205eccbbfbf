"""All stores, with the informers that fill them."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map
from prometheus_client import CollectorRegistry

from respread.cluster.decode.decoder import Decoder, Kind
from respread.cluster.errors import DecodeError
from respread.cluster.meta import ObjectKey
from respread.cluster.state import ClusterState
from respread.handlers.health import WatchHealth
from respread.handlers.informer import Informer
from respread.stores.changes import ChangeSignal
from respread.stores.stores import KindStore, PolicyKindStore, PolicyStore, PriorityClassKindStore, StateKindStore
from respread.stores.watched_kinds import CLUSTER_POLICIES, NAMESPACED_POLICIES, PRIORITY_CLASSES
from respread.telemetry.gauges import register_watch_gauges
from respread.telemetry.metrics import Metrics


class Informers:
    """The cluster state, the policies and the priority classes, with an informer for each watched kind.

    It belongs to one event loop: the stores only change between awaits of their readers.
    """

    __slots__ = ("all", "changes", "decoder", "health", "policies", "priority_classes", "state")

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
        self.priority_classes = PriorityClassKindStore(PRIORITY_CLASSES)
        self.all: tuple[Informer, ...] = tuple(
            Informer(kind, self._store(kind), health=health, metrics=metrics, notify=self.changes.notify)
            for kind in kinds
        )

    def register_gauges(self, registry: CollectorRegistry) -> None:
        """Register the gauges of the watches, which are computed at each scrape."""
        register_watch_gauges(
            registry,
            ages_seconds=self.health.ages_seconds,
            object_counts=self.object_counts,
            lags_seconds=self.lags_seconds,
            decision_lag_seconds=self.changes.lag_seconds,
        )

    def undecodable(self) -> dict[str, Map[ObjectKey, DecodeError]]:
        """Return, by plural name of the resource, the objects of which only an older version or nothing is known."""
        return {informer.kind.resource: informer.undecodable for informer in self.all if informer.undecodable}

    def object_counts(self) -> dict[str, int]:
        """Return the number of stored objects of each watched kind."""
        return {informer.kind.resource: informer.count for informer in self.all}

    def lags_seconds(self) -> dict[str, float]:
        """Return, for each watched kind, how long the oldest event has been waiting at most."""
        return {informer.kind.resource: informer.lag_seconds() for informer in self.all}

    def _store(self, kind: Kind) -> KindStore:
        if kind == PRIORITY_CLASSES:
            return self.priority_classes
        if kind == CLUSTER_POLICIES:
            return PolicyKindStore("ClusterRebalancePolicy", self.policies)
        if kind == NAMESPACED_POLICIES:
            return PolicyKindStore("RebalancePolicy", self.policies)
        return StateKindStore(kind.resource, self.decoder, self.state)
