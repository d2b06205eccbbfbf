"""Why pods, spread groups, or everything is left alone for a time, and until when: the one table of holds.

key                      producer                                       ends
-----------------------  ---------------------------------------------  -----------------------------------
everything               `why_stale`: a watch is behind                 with its next event or bookmark
                         `Refusals`: the API server is unavailable      when it says, or after a second
a policy                 `windows`: all are closed                      when one opens
                         `breaker`: moves of several workloads failed   after a growing pause, with a trial
a spread group           `quiet_period`: it has changed                 `quietPeriod` after the last change
                         `backoff`: moves did not improve it            after a growing pause, or a change
                         `other_evictions`: of its pods, repeatedly     after a growing pause
                         `GroupPace`: `limits.perHourPerGroup`          with the hour
a pod's budgets, a pod,  `Refusals`: the API server's answer, or what   after a time; that of budgets also
its controller           the last look at its controller has shown      when one of them changes
a pod and its groups     `Refusals`: a move was held just now           after a second, growing if reads fail

Users see the first one that holds: for a group that of the group, and for a pod as listed, from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.clock_reading import ClockReading
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limits.limiter import GroupPace
from respread.holds.other_evictions import Departures, OtherEvictions
from respread.holds.quiet_period import QuietPeriods
from respread.holds.refusals import Refusals
from respread.moves.ledger import Ledger
from respread.planning.held import Held
from respread.planning.moving_pods import OnHold
from respread.spread.group import GroupKey, SpreadGroup

STALE_SECONDS: Final = 180.0
"""The API server sends a bookmark every minute. A kind that was silent for this long may be far behind, and nothing is
evicted."""


class PastMoves(Protocol):
    """What past moves mean for a group."""

    def why_left_alone(self, group: SpreadGroup) -> Held | None:
        """Return why a group is left alone after moves that did not improve it, or None if it is not."""
        ...

    def pace_of(self, group: SpreadGroup) -> GroupPace:
        """Return the evictions of a group for `limits.perHourPerGroup`."""
        ...


class Holds:
    """What is left alone at the moment. It belongs to one event loop."""

    __slots__ = ("departures", "others", "quiet_periods", "refusals")

    def __init__(self, clock: Callable[[], float], others: OtherEvictions | None = None) -> None:
        """Hold nothing.

        Args:
            clock: a monotonic clock in seconds.
            others: recognizes evictions by others.
        """
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

        Args:
            snapshot: the cluster.
            groups: its spread groups.
            before: the moves before they were followed in this snapshot.
            after: the moves now.
            moment: now.
            leads: whether this replica acts. Otherwise, somebody else evicts for Respread.
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
        past: PastMoves,
        moment: ClockReading,
    ) -> OnHold:
        """Return a function that returns why a group is left alone, or None if it is not.

        Args:
            groups: all groups.
            policies: by name.
            past: what past moves mean for groups.
            moment: now.
        """
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

    Args:
        ages_seconds: for each watched kind, the time since its last event or bookmark.
    """
    kind, age = max(ages_seconds.items(), key=lambda each: each[1])
    if age <= STALE_SECONDS:
        return None
    return Held(Reason.API_UNAVAILABLE, f"nothing was heard of {kind} for more than {STALE_SECONDS:.0f} s")
