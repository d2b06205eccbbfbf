"""How long each spread group has been unchanged. A group is left alone for a quiet period after a change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from math import inf
from typing import Final, NamedTuple

from respread.api.reasons import Reason
from respread.cluster.workload import WorkloadName
from respread.planning.held import Held
from respread.spread.group import GroupKey, SpreadGroup

BEGUN_SECONDS: Final = 600.0
"""For so long after our last change of a group room is kept for what is still to be done, if it stays violated."""


class _Known(NamedTuple):
    group: SpreadGroup
    since: float
    """Since when nobody else has changed it."""
    ours: float
    """When a move of ours last changed it, since it has been violated; -infinity if none has."""


class QuietPeriods:
    """Remembers since when each group is unchanged.

    A spread index keeps the same object for an unchanged group, so a change is a new object. Changes by our own moves
    don't count, because these restore the group.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Know of no group yet."""
        self._known: dict[GroupKey, _Known] = {}

    def observe(self, groups: Mapping[GroupKey, SpreadGroup], ours: Collection[WorkloadName], now: float) -> None:
        """Take over the current groups.

        Args:
            groups: all groups.
            ours: workloads that our moves have changed since the last call.
            now: seconds on a monotonic clock.
        """
        before, self._known = self._known, {}
        for key, group in groups.items():
            known = before.get(key)
            if known is not None and known.group is group:
                self._known[key] = known
            elif known is not None and any(workload in ours for workload in group.workloads):
                self._known[key] = _Known(group, known.since, now if group.violated else -inf)
            else:
                self._known[key] = _Known(group, now, known.ours if known is not None and group.violated else -inf)

    def held(self, key: GroupKey, quiet_period: timedelta, now: float) -> Held | None:
        """Return why a group is left alone, or None once it has been quiet for long enough.

        Room is kept for a group that our moves have begun to restore. Otherwise other groups would take it, and nothing
        would come of the evictions that were made.
        """
        known = self._known[key]
        left = known.since + quiet_period.total_seconds() - now
        if left <= 0:
            return None
        return Held(
            Reason.QUIET_PERIOD,
            f"it changed {now - known.since:.0f} s ago, and the policy's quietPeriod is "
            f"{quiet_period.total_seconds():.0f} s",
            keeps_room=now < known.ours + BEGUN_SECONDS,
        )

    def release(self, key: GroupKey, quiet_period: timedelta) -> float:
        """Return when the group's quiet period ends, in seconds on the same clock."""
        return self._known[key].since + quiet_period.total_seconds()
