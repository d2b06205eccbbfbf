"""The number of evictions within the last hour, for `limits.perHour` and `limits.perHourPerGroup`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.fields import MAX_COUNT
from respread.api.record import MAX_RECENT_EVICTIONS

HOUR_SECONDS: Final = 3600.0
MINUTE_SECONDS: Final = 60


class MinuteOfEvictions(NamedTuple):
    """The evictions of a minute. They count as being made at the time of the last one."""

    last: float
    """Seconds since the epoch."""
    evictions: int

    @property
    def minute(self) -> int:
        """The minute, counted from the epoch."""
        return int(self.last // MINUTE_SECONDS)


class EvictionHistory(msgspec.Struct, frozen=True):
    """The evictions that count for a policy's `limits.perHour`, with their times.

    They are counted by minute, so an hour takes the same memory for a million evictions as for a few.
    """

    minutes: Map[str, tuple[MinuteOfEvictions, ...]] = Map()
    """By policy name, the oldest first, at most `MAX_RECENT_EVICTIONS`."""

    def with_evictions(self, policies: Iterable[str], last: float, evictions: int = 1) -> EvictionHistory:
        """Return the history with more evictions in one minute, and without those older than an hour.

        Args:
            policies: the names of the policies for which they count.
            last: when the last of them was made, in seconds since the epoch.
            evictions: their number.
        """
        minutes = self.minutes.mutate()
        for policy in policies:
            minutes[policy] = _with(self.in_last_hour(policy, last), MinuteOfEvictions(last, evictions))
        return EvictionHistory(minutes.finish())

    def in_last_hour(self, policy: str, now: float) -> tuple[MinuteOfEvictions, ...]:
        """Return the evictions of the last hour that count for a policy.

        Evictions in the future, from before a clock was set back, count too: too few evictions do no harm.
        """
        return tuple(each for each in self.minutes.get(policy, ()) if each.last > now - HOUR_SECONDS)

    def count_in_last_hour(self, policy: str, now: float) -> int:
        """Return the number of evictions of the last hour that count for a policy."""
        return sum(each.evictions for each in self.in_last_hour(policy, now))


class GroupHistory(msgspec.Struct, frozen=True):
    """The evictions of the last hour, by group. A value: every change returns another one.

    If something undoes the evictions, such as another descheduler or an autoscaler that scales up and down, their
    number must be bounded. So evictions that improved the group count like all others, because an oscillation consists
    of them. A group that becomes balanced in between keeps its count.
    """

    evictions: EvictionHistory = EvictionHistory()
    """By a name for the group that survives a restart."""
    policies: Map[str, str] = Map()
    """By the same names, the policy for which the last one was made. Its status stores them."""

    def with_evictions(self, policy: str, groups: Iterable[str], last: float, evictions: int = 1) -> GroupHistory:
        """Return it with more evictions for some groups.

        Args:
            policy: the policy for which they were made.
            groups: the names of the groups for which each of them was made.
            last: when the last of them was made, in seconds since the epoch.
            evictions: their number.
        """
        names = tuple(groups)
        policies = self.policies.update(dict.fromkeys(names, policy))
        return GroupHistory(self.evictions.with_evictions(names, last, evictions), policies)

    def in_last_hour(self, group: str, now: float) -> int:
        """Return the number of evictions for a group within the last hour."""
        return self.evictions.count_in_last_hour(group, now)

    def of_policy(self, policy: str, now: float) -> Iterator[tuple[str, tuple[MinuteOfEvictions, ...]]]:
        """Yield the groups with evictions for a policy within the last hour, and these evictions."""
        for name, known in self.policies.items():
            if known == policy and (recent := self.evictions.in_last_hour(name, now)):
                yield name, recent

    def without_old(self, now: float) -> GroupHistory:
        """Forget the groups without evictions in the last hour."""
        kept = {name: policy for name, policy in self.policies.items() if self.evictions.in_last_hour(name, now)}
        if len(kept) == len(self.policies):
            return self
        minutes = Map({name: self.evictions.minutes[name] for name in kept})
        return GroupHistory(EvictionHistory(minutes), Map(kept))


def _with(known: Iterable[MinuteOfEvictions], more: MinuteOfEvictions) -> tuple[MinuteOfEvictions, ...]:
    """Return minutes with another one, or with more evictions in one of them."""
    by_minute = {each.minute: each for each in known}
    same = by_minute.get(more.minute, more._replace(evictions=0))
    by_minute[more.minute] = _together(same, more)
    minutes = [each for _, each in sorted(by_minute.items())]
    if len(minutes) > MAX_RECENT_EVICTIONS:  # An hour has 61. Others come from clocks that were set back.
        oldest, second, *others = minutes
        minutes = [_together(oldest, second), *others]
    return tuple(minutes)


def _together(one: MinuteOfEvictions, other: MinuteOfEvictions) -> MinuteOfEvictions:
    return MinuteOfEvictions(max(one.last, other.last), min(one.evictions + other.evictions, MAX_COUNT))
