"""How many evictions were made within the last hour, for `limits.perHour`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.status import MAX_COUNT, MAX_RECENT_EVICTIONS

HOUR_SECONDS: Final = 3600.0
MINUTE_SECONDS: Final = 60


class MinuteOfEvictions(NamedTuple):
    """The evictions of a minute: they are as old as the last of them."""

    last: float
    """Seconds since the epoch."""
    evictions: int

    @property
    def minute(self) -> int:
        """Which minute it is, counted from the epoch."""
        return int(self.last // MINUTE_SECONDS)


class EvictionHistory(msgspec.Struct, frozen=True):
    """How many evictions were made that count for a policy's `limits.perHour`, and when.

    They are counted by the minute: an hour takes as little memory after a million evictions as after a few.
    """

    minutes: Map[str, tuple[MinuteOfEvictions, ...]] = Map()
    """By policy name, oldest first, `MAX_RECENT_EVICTIONS` of them at most."""

    def with_evictions(self, policies: Iterable[str], last: float, evictions: int = 1) -> EvictionHistory:
        """Return the history with evictions of one minute more, without what is older than an hour.

        Args:
            policies: names of the policies that they count for.
            last: when the last of them was made, in seconds since the epoch.
            evictions: how many there were.
        """
        minutes = self.minutes.mutate()
        for policy in policies:
            minutes[policy] = _with(self.in_last_hour(policy, last), MinuteOfEvictions(last, evictions))
        return EvictionHistory(minutes.finish())

    def in_last_hour(self, policy: str, now: float) -> tuple[MinuteOfEvictions, ...]:
        """Return the evictions of the last hour that count for a policy.

        Those in the future, from before a clock was set back, count as well: too few evictions do no harm.
        """
        return tuple(each for each in self.minutes.get(policy, ()) if each.last > now - HOUR_SECONDS)

    def count_in_last_hour(self, policy: str, now: float) -> int:
        """Return how many evictions of the last hour count for a policy."""
        return sum(each.evictions for each in self.in_last_hour(policy, now))


def _with(known: Iterable[MinuteOfEvictions], more: MinuteOfEvictions) -> tuple[MinuteOfEvictions, ...]:
    """Return minutes with another one, or with more evictions in one of them."""
    by_minute = {each.minute: each for each in known}
    same = by_minute.get(more.minute, more._replace(evictions=0))
    by_minute[more.minute] = _together(same, more)
    minutes = [each for _, each in sorted(by_minute.items())]
    if len(minutes) > MAX_RECENT_EVICTIONS:  # an hour has 61: the others come of clocks that were set back
        oldest, second, *others = minutes
        minutes = [_together(oldest, second), *others]
    return tuple(minutes)


def _together(one: MinuteOfEvictions, other: MinuteOfEvictions) -> MinuteOfEvictions:
    return MinuteOfEvictions(max(one.last, other.last), min(one.evictions + other.evictions, MAX_COUNT))
