"""How the namespaces stand that share limits: what their replacements came to lately, and who was served last.

A pod whose replacement never gets Ready keeps its place in flight for minutes. So that two such namespaces don't keep
all places from everybody, a namespace has all that limits allow only once a replacement in it was Ready; see
`unproven_share`. The places themselves go to whoever has the fewest in flight (`fair_order`).
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

import msgspec
from immutables import Map

UNPROVEN_SHARE: Final = 1 / 5
"""Which part of `limits.inFlight` namespaces have together in which no replacement was Ready yet, or not the last."""


class Standing(Enum):
    """What is known of a namespace."""

    PROVEN = "proven"
    """The last replacement was Ready."""
    NEW = "new"
    """No move there has ended yet."""
    FAILED = "failed"
    """The last replacement was not Ready when it was given up on."""


class Standings(msgspec.Struct, frozen=True):
    """A value: every change returns another one. Nothing is lost with it but a little time."""

    ready: Map[str, bool] = Map()
    """By namespace, whether the last replacement was Ready."""
    served: Map[str, int] = Map()
    """By namespace, the number of the last eviction there."""
    evictions: int = 0
    """How many there were, in all namespaces."""

    def of(self, namespace: str) -> Standing:
        """Return how a namespace stands."""
        ready = self.ready.get(namespace)
        if ready is None:
            return Standing.NEW
        return Standing.PROVEN if ready else Standing.FAILED

    def with_end(self, namespace: str, *, ready: bool) -> Standings:
        """Return them knowing that a move is over, and whether its replacement was Ready."""
        return msgspec.structs.replace(self, ready=self.ready.set(namespace, ready))

    def with_eviction(self, namespace: str) -> Standings:
        """Return them knowing that a namespace was served."""
        number = self.evictions + 1
        return msgspec.structs.replace(self, served=self.served.set(namespace, number), evictions=number)

    def among(self, namespaces: Collection[str]) -> Standings:
        """Return them without those of namespaces that are gone."""
        if all(name in namespaces for known in (self.ready, self.served) for name in known):
            return self
        return msgspec.structs.replace(
            self,
            ready=Map({name: ready for name, ready in self.ready.items() if name in namespaces}),
            served=Map({name: number for name, number in self.served.items() if name in namespaces}),
        )


def unproven_share(in_flight: int) -> int:
    """Return how many of a limit's places namespaces that are not proven have together; at least one."""
    return max(1, round(in_flight * UNPROVEN_SHARE))
