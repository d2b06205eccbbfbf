"""Why pods, spread groups, or everything is left alone for a time, and until when: the one table of holds.

key                      producer                                       ends
-----------------------  ---------------------------------------------  -----------------------------------
everything               `why_stale`: a watch is behind                 with its next event or bookmark
                         `Refusals`: the API server is unavailable      when it says, or after a second
a policy                 `Windows`: all are closed                      when one opens
                         `Breakers`: moves of several workloads failed  after a growing pause, with a trial
a spread group           `QuietPeriods`: it has changed                 `quietPeriod` after the last change
                         `BackOffs`: moves did not improve it           after a growing pause, or a change
                         `OtherEvictions`: of its pods, repeatedly      after a growing pause
                         `GroupPace`: `limits.perHourPerGroup`          with the hour
a pod's budgets, a pod,  `Refusals`: the API server's answer, or what   after a time; that of budgets also
its controller           the last look at its controller has shown      when one of them changes
a pod and its groups     `Refusals`: a move was held just now           after a second, growing if reads fail

Users see the first one that holds: for a group that of the group, and for a pod as listed, from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from respread.api.policy import Policy, Window
from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limiter import GroupPace
from respread.holds.other_evictions import Departures, OtherEvictions
from respread.holds.refusals import Refusals
from respread.moves.ledger import Ledger
from respread.planning.moving_pods import OnHold
from respread.spread.group import GroupKey, SpreadGroup
from respread.timing import ClockReading

STALE_SECONDS: Final = 180.0
"""The API server sends a bookmark every minute. A kind that was silent for this long may be far behind, and nothing is
evicted."""


class _PastMoves(Protocol):
    """What past moves mean for a group."""

    def why_left_alone(self, group: SpreadGroup) -> Held | None:
        """Return why a group is left alone after moves that did not improve it, or None if it is not."""
        ...

    def pace_of(self, group: SpreadGroup) -> GroupPace:
        """Return the evictions of a group for `limits.perHourPerGroup`."""
        ...


class Holds:
    """What is left alone at the moment. It belongs to one event loop."""

    def __init__(self, clock: Callable[[], float], others: OtherEvictions | None = None) -> None:
        self.quiet_periods = QuietPeriods()
        self.others = OtherEvictions() if others is None else others
        self.refusals = Refusals(clock)
        self.departures = Departures()

    def observe(
        self,
        snapshot: ClusterSnapshot,
        groups: Mapping[GroupKey, SpreadGroup],
        before: Ledger,
        after: Ledger,
        moment: ClockReading,
        *,
        leads: bool,
    ) -> None:
        """Take over how the cluster stands.

        `before` has the moves before they were followed in this snapshot, and `after` those now. If this replica does
        not lead, somebody else evicts for Respread.
        """
        self.quiet_periods.observe(groups, (each.move.pod for each in before.ours), moment.now)
        if leads:
            self.others.observe(snapshot, {each.uid for each in after.ours}, moment.time_of_day)
        else:
            self.others.forget()

    def of_groups(
        self,
        groups: Mapping[GroupKey, SpreadGroup],
        policies: Mapping[str, Policy],
        past: _PastMoves,
        moment: ClockReading,
    ) -> OnHold:
        """Return a function that returns why a group is left alone, or None if it is not."""
        now = moment.time_of_day

        def on_hold(key: GroupKey, policy: str) -> Held | None:
            spec, group = policies[policy].spec, groups[key]
            return (
                self.quiet_periods.held(key, spec.quiet_period, moment)
                or past.why_left_alone(group)
                or self.others.held(group, now)
                or past.pace_of(group).beyond(policy, spec.limits)
            )

        return on_hold

    def next_end(self, moment: ClockReading) -> float:
        """Return when a hold begins or ends that no plan shows, on the clock; infinity if none does."""
        return min(self.refusals.next_end(), self.others.next_due(moment))


def why_stale(ages_seconds: Mapping[str, float]) -> Held | None:
    """Return why the watched state is too old for evictions, or None if it is fresh.

    The ages of watched kinds are the times since their last event or bookmark.
    """
    kind, age = max(ages_seconds.items(), key=lambda each: each[1])
    if age <= STALE_SECONDS:
        return None
    return Held(Reason.API_UNAVAILABLE, f"nothing was heard of {kind} for more than {STALE_SECONDS:.0f} s")


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

    def __init__(self) -> None:
        self._known: dict[GroupKey, _Known] = {}
        self._begun: dict[GroupKey, float] = {}
        """When a move of ours last changed a group that has been violated since."""

    def observe(self, groups: Mapping[GroupKey, SpreadGroup], ours: Iterable[Pod], now: float) -> None:
        """Take over the current groups.

        `ours` are the pods that our moves have evicted, or may have, since the last call. `now` is on a monotonic
        clock.
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


class _Opening(msgspec.Struct, frozen=True):
    """A window, prepared for questions."""

    schedule: str
    duration: timedelta
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime | None:
        """Return when the window next opens after a time, in UTC; None if it does not within fifty years."""
        for time in CronSim(self.schedule, moment.astimezone(self.zone)):
            # In the hour that occurs twice, a schedule may answer with the first occurrence, which is over.
            if (opens := time.astimezone(UTC)) > moment:
                return opens
        return None

    def is_open(self, now: datetime) -> bool:
        """Return whether the window is open: from its opening until just before the end of its duration."""
        opened = self.after(now.astimezone(UTC) - self.duration)
        return opened is not None and opened <= now


class Windows(msgspec.Struct, frozen=True):
    """All windows of a policy. Without any, it is always open."""

    openings: tuple[_Opening, ...] = ()

    @classmethod
    def of(cls, windows: Iterable[Window]) -> Windows:
        """Prepare a policy's windows. `respread.api.decoding` has checked them."""
        return cls(tuple(_Opening(each.schedule, each.duration, ZoneInfo(each.time_zone)) for each in windows))

    def is_open(self, now: datetime) -> bool:
        """Return whether pods may be evicted now."""
        return not self.openings or any(each.is_open(now) for each in self.openings)

    def next_opening(self, now: datetime) -> datetime | None:
        """Return when the next window opens, in UTC; None if none ever does."""
        return min((opens for each in self.openings if (opens := each.after(now)) is not None), default=None)

    def why_closed(self, now: datetime) -> Held | None:
        """Return a message that all windows are closed and when one opens, or None if one is open."""
        if self.is_open(now):
            return None
        opens = self.next_opening(now)
        when = "never again" if opens is None else f"at {opens:%Y-%m-%d %H:%M} UTC"
        return Held(Reason.WINDOW_CLOSED, f"the policy's windows are all closed; the next one opens {when}")
