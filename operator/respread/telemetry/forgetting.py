"""Drops the counters of policies and namespaces that are gone, so that the number of series follows what exists."""

from __future__ import annotations

from collections.abc import Iterable

from respread.telemetry.metrics import Metrics


class Forgetting:
    """Remembers the policies and namespaces for which there may be counters."""

    __slots__ = ("_metrics", "_namespaces", "_policies")

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._policies: frozenset[str] = frozenset()
        self._namespaces: frozenset[str] = frozenset()

    def keep(self, policies: Iterable[str], namespaces: Iterable[str]) -> None:
        """Forget all others that were named in an earlier call."""
        before = self._policies, self._namespaces
        self._policies, self._namespaces = frozenset(policies), frozenset(namespaces)
        for policy in before[0] - self._policies:
            self._metrics.forget_policy(policy)
        for namespace in before[1] - self._namespaces:
            self._metrics.forget_namespace(namespace)
