"""How long each spread group has been unchanged. A group is left alone for a quiet period after a change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from respread.api.reasons import Reason
from respread.cluster.workload import WorkloadName
from respread.planning.held import Held
from respread.spread.group import GroupKey, SpreadGroup


class QuietPeriods:
    """Remembers since when each group is unchanged.

    A spread index keeps the same object for an unchanged group, so a change is a new object. Changes by our own moves
    don't count, because these restore the group.
    """

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[GroupKey, tuple[SpreadGroup, float]] = {}

    def observe(self, groups: Mapping[GroupKey, SpreadGroup], ours: Collection[WorkloadName], now: float) -> None:
        """Take over the current groups.

        Args:
            groups: all groups.
            ours: workloads whose pods are being replaced by our moves.
            now: seconds on a monotonic clock.
        """
        since: dict[GroupKey, tuple[SpreadGroup, float]] = {}
        for key, group in groups.items():
            known = self._since.get(key)
            if known is not None and (known[0] is group or any(workload in ours for workload in group.workloads)):
                since[key] = (group, known[1])
            else:
                since[key] = (group, now)
        self._since = since

    def held(self, key: GroupKey, quiet_period: timedelta, now: float) -> Held | None:
        """Return why a group is left alone, or None once it has been quiet for long enough."""
        left = self._since[key][1] + quiet_period.total_seconds() - now
        if left <= 0:
            return None
        return Held(
            Reason.QUIET_PERIOD,
            f"it changed {now - self._since[key][1]:.0f} s ago, and the policy's quietPeriod is "
            f"{quiet_period.total_seconds():.0f} s",
        )

    def release(self, key: GroupKey, quiet_period: timedelta) -> float:
        """Return when the group's quiet period ends, in seconds on the same clock."""
        return self._since[key][1] + quiet_period.total_seconds()
