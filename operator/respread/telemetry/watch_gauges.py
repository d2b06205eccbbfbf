"""The gauges about watches and what they brought. Each is computed at a scrape, in its thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time

from prometheus_client import CollectorRegistry

from respread.telemetry.gauges import ComputedGauge, GaugeDefinition, Samples


def register_watch_gauges(
    registry: CollectorRegistry,
    *,
    ages_seconds: Callable[[], Mapping[str, float]],
    object_counts: Callable[[], Mapping[str, int]],
    lags_seconds: Callable[[], Mapping[str, float]],
    decision_lag_seconds: Callable[[], float],
) -> None:
    """Register the gauges.

    Args:
        registry: where to register.
        ages_seconds: returns for each kind the time since the last event or bookmark.
        object_counts: returns for each kind the number of objects held.
        lags_seconds: returns for each kind how long the oldest event waits to be taken over, at most.
        decision_lag_seconds: returns how long the oldest change waits that the control loop has not looked at.
    """

    def add(name: str, documentation: str, read: Callable[[], Samples], *labels: str) -> None:
        registry.register(ComputedGauge(GaugeDefinition(name, documentation, labels), read))

    add(
        "respread_watch_last_event_timestamp_seconds",
        "When the last event or bookmark of the kind's watch came, as Unix time.",
        lambda: {(kind,): time() - age for kind, age in ages_seconds().items()},
        "kind",
    )
    add(
        "respread_cluster_objects",
        "Objects held in memory.",
        lambda: {(kind,): count for kind, count in object_counts().items()},
        "kind",
    )
    add(
        "respread_watch_lag_seconds",
        "How long the oldest event of the kind's watch has waited to be taken over, at most.",
        lambda: {(kind,): lag for kind, lag in lags_seconds().items()},
        "kind",
    )
    add(
        "respread_decision_lag_seconds",
        "How long the oldest change has waited that the control loop has not decided on.",
        lambda: {(): decision_lag_seconds()},
    )
