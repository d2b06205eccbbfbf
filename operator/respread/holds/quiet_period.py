"""How long each spread group has been unchanged. A group is left alone for a quiet period after a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Final, NamedTuple

from respread.api.reasons import Reason
from respread.clock_reading import ClockReading
from respread.cluster.pod import Pod, workload_of
from respread.planning.held import Held
from respread.spread.group import GroupKey, SpreadGroup

BEGUN_SECONDS: Final = 600.0
"""For so long after our last change of a group room is kept for what is still to be done, if it stays violated."""


class _Known(NamedTuple):
    group: SpreadGroup
    since: float
    """Since when nobody else has changed it."""


class QuietPeriods:
    """Remembers since when each group is unchanged.

    A spread index keeps the same object for an unchanged group. It makes another one, which is equal, where a plan has
    taken a pod for gone that was then not evicted yet. Changes by our own moves don't count, because these restore the
    group.
    """

    __slots__ = ("_begun", "_known")

    def __init__(self) -> None:
        self._known: dict[GroupKey, _Known] = {}
        self._begun: dict[GroupKey, float] = {}
        """When a move of ours last changed a group that has been violated since."""

    def observe(self, groups: Mapping[GroupKey, SpreadGroup], ours: Iterable[Pod], now: float) -> None:
        """Take over the current groups.

        Args:
            groups: all groups.
            ours: the pods that our moves have evicted, or may have, since the last call.
            now: seconds on a monotonic clock.
        """
        moved = {(pod.namespace, pod.labels): pod for pod in ours}.values()
        before, self._known = self._known, {}
        for key, group in groups.items():
            known = before.get(key)
            if known is not None and known.group is group:
                self._known[key] = known
            elif known is not None and known.group == group:
                self._known[key] = _Known(group, known.since)
            elif known is not None and any(_concerns(pod, group) for pod in moved):
                self._known[key] = _Known(group, known.since)
                self._begun[key] = now
            else:
                self._known[key] = _Known(group, now)
        self._begun = {
            key: at
            for key, at in self._begun.items()
            if now < at + BEGUN_SECONDS and key in groups and groups[key].violated
        }

    @property
    def begun(self) -> AbstractSet[GroupKey]:
        """The groups that our moves have begun to restore, and for which room is kept."""
        return self._begun.keys()

    def held(self, key: GroupKey, quiet_period: timedelta, moment: ClockReading) -> Held | None:
        """Return why a group is left alone, or None once it has been quiet for long enough."""
        known = self._known[key]
        left = known.since + quiet_period.total_seconds() - moment.now
        if left <= 0:
            return None
        return Held(
            Reason.QUIET_PERIOD,
            f"it changed {moment.now - known.since:.0f} s ago, and the policy's quietPeriod is "
            f"{quiet_period.total_seconds():.0f} s",
            until=moment.time_of_day + timedelta(seconds=left),
        )


def _concerns(pod: Pod, group: SpreadGroup) -> bool:
    """Return whether a group counts a pod, or pods of its workload have the constraint."""
    if pod.namespace != group.key.namespace:
        return False
    return group.key.selector.matches(pod.labels) or workload_of(pod) in group.workloads
