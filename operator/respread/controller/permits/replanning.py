"""Whether a plan could let go more than the last one did, while evictions are in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from respread.api.policy import Policy

ENOUGH_SHARE: Final = 0.1
"""A plan is made at once when this share of the moves in flight has ended, and at least one."""
ENDED_SECONDS: Final = 0.2
"""The maximum time for which places stay free until enough are. A replacement takes much longer."""
PROGRESS_SECONDS: Final = 0.5
"""How soon after the last plan the next one is made if no move has ended. An eviction brings about five changes (the
pod is being deleted, is gone, its replacement exists, has a node, is Ready); only the last one makes a place free."""
FULL_SECONDS: Final = 5.0
"""The same, if every policy has as many moves in flight as it may: no plan could let go more, and only statuses and
metrics show the changes."""


class Replanning:
    """Remembers what was in flight after the last plan. It belongs to one event loop."""

    __slots__ = ("_due", "_full", "_in_flight", "_planned_at")

    def __init__(self) -> None:
        """Start without a plan: the first one is due at once."""
        self._planned_at = 0.0
        self._due = 0.0
        self._full = False
        self._in_flight: AbstractSet[str] = frozenset()

    def planned(self, in_flight: AbstractSet[str], now: float, due: float, *, full: bool = False) -> None:
        """Record a plan.

        Args:
            in_flight: the UIDs of the pods of all moves in flight after it.
            now: the time on the clock.
            due: when the next plan is due if nothing changes, on the clock.
            full: whether every policy has as many moves in flight as its `limits.inFlight`.
        """
        self._in_flight, self._planned_at, self._due, self._full = in_flight, now, due, full

    def due_at(self, in_flight: AbstractSet[str]) -> float:
        """Return when the next plan is due, on the clock, given the UIDs of the pods of the moves now in flight."""
        if not self._in_flight:
            return self._planned_at
        ended = len(self._in_flight - in_flight)
        if ended >= max(1.0, ENOUGH_SHARE * len(self._in_flight)):
            return self._planned_at
        pause = ENDED_SECONDS if ended else FULL_SECONDS if self._full else PROGRESS_SECONDS
        return min(self._due, self._planned_at + pause)


def is_full(policies: Iterable[Policy], moves: Mapping[str, int]) -> bool:
    """Return whether every policy that evicts has as many moves in flight as its `limits.inFlight`, by their names."""
    evicting = [policy for policy in policies if policy.spec.mode != "DryRun" and not policy.problems]
    return bool(evicting) and all(moves.get(policy.name, 0) >= policy.spec.limits.in_flight for policy in evicting)
