"""The standing of namespaces that share limits: the results of their last replacements, and when they were last served.

A pod whose replacement never becomes Ready keeps its place in flight for minutes. So that two such namespaces don't use
all places, a namespace may use all of a limit only after a replacement in it was Ready; see `unproven_share`. The
places go to the namespace with the fewest moves in flight (`fair_order`).
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

import msgspec
from immutables import Map

UNPROVEN_SHARE: Final = 1 / 5
"""The part of `limits.inFlight` for all namespaces in which no replacement was Ready yet, or not the last one."""


class Standing(Enum):
    """The standing of a namespace."""

    PROVEN = "proven"
    """The last replacement was Ready."""
    NEW = "new"
    """No move there has ended yet."""
    FAILED = "failed"
    """Respread gave up on the last replacement before it was Ready."""


class Standings(msgspec.Struct, frozen=True):
    """A value: every change returns another one. Losing it only costs a little time."""

    ready: Map[str, bool] = Map()
    """By namespace, whether the last replacement was Ready."""
    served: Map[str, int] = Map()
    """By namespace, the number of the last eviction there."""
    evictions: int = 0
    """The number of evictions, in all namespaces."""

    def of(self, namespace: str) -> Standing:
        """Return the standing of a namespace."""
        ready = self.ready.get(namespace)
        if ready is None:
            return Standing.NEW
        return Standing.PROVEN if ready else Standing.FAILED

    def with_end(self, namespace: str, *, ready: bool) -> Standings:
        """Return them after a move has ended, and whether its replacement was Ready."""
        return msgspec.structs.replace(self, ready=self.ready.set(namespace, ready))

    def with_eviction(self, namespace: str) -> Standings:
        """Return them after a namespace was served."""
        number = self.evictions + 1
        return msgspec.structs.replace(self, served=self.served.set(namespace, number), evictions=number)

    def among(self, namespaces: Collection[str]) -> Standings:
        """Return them without namespaces that are gone."""
        if all(name in namespaces for known in (self.ready, self.served) for name in known):
            return self
        return msgspec.structs.replace(
            self,
            ready=Map({name: ready for name, ready in self.ready.items() if name in namespaces}),
            served=Map({name: number for name, number in self.served.items() if name in namespaces}),
        )


def unproven_share(in_flight: int) -> int:
    """Return how many of a limit's places unproven namespaces have together; at least one."""
    return max(1, round(in_flight * UNPROVEN_SHARE))
