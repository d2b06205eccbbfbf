"""How fast costs are written: no more at once than an API server takes in its stride, and reranking slower still."""

from __future__ import annotations

from typing import Final

import msgspec

PATCHES_PER_SECOND: Final = 50.0
PATCHES_AT_ONCE: Final = 500
"""What may be saved up: a Deployment that starts is ranked without waiting."""
RERANKED_PER_MINUTE: Final = 300.0
"""Pods that get another cost than they had, in the whole cluster."""
RERANK_INTERVAL_SECONDS: Final = 60.0
"""From one reranking of a ReplicaSet to the next."""
REST_SECONDS: Final = 5.0
"""A ReplicaSet that is reranked has been left unchanged for so long, and all of its pods are Ready."""
UNREADY_REST_SECONDS: Final = 300.0
"""The same where some are not Ready: a node that does not answer is given up on after as long (`tolerationSeconds` of
the taints that DefaultTolerationSeconds tolerates)."""
GATHER_SECONDS: Final = 1.0
"""New pods wait this long for others of theirs that have no node yet: they are ranked better, and once, together."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done by now: it grows with time up to a limit."""

    per_second: float
    most: float
    saved: float
    at: float
    """When `saved` was right, in seconds on a clock that never goes back."""

    @classmethod
    def full(cls, per_second: float, most: float, now: float) -> Allowance:
        """Return an allowance of which nothing has been used."""
        return cls(per_second=per_second, most=most, saved=most, at=now)

    def left(self, now: float) -> float:
        """Return how much may be used now."""
        return min(self.most, self.saved + max(0.0, now - self.at) * self.per_second)

    def used(self, amount: float, now: float) -> Allowance:
        """Return what is left over; using more than there is is made up for by waiting longer afterwards."""
        return msgspec.structs.replace(self, saved=self.left(now) - amount, at=now)

    def wait_seconds(self, amount: float, now: float) -> float:
        """Return how long it takes until so much, or all that can be saved up, may be used."""
        return max(0.0, (min(amount, self.most) - self.left(now)) / self.per_second)
