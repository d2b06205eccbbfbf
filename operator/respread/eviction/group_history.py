"""How many evictions were made for each spread group within the last hour.

Whoever works against them, another descheduler or an autoscaler that swings, is to cost a bounded number of them. So
those that improved the group count like all others: that is what an oscillation is made of. A group that is balanced in
between keeps its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from immutables import Map

from respread.eviction.history import EvictionHistory, MinuteOfEvictions


class GroupHistory(msgspec.Struct, frozen=True):
    """The evictions of the last hour, by group. A value: every change returns another one."""

    evictions: EvictionHistory = EvictionHistory()
    """By a name for the group that is the same after a restart, instead of the policy's."""
    policies: Map[str, str] = Map()
    """By the same names, in which policy's name the last of them was made: its status remembers them."""

    def with_evictions(self, policy: str, groups: Iterable[str], last: float, evictions: int = 1) -> GroupHistory:
        """Return it with more evictions for some groups.

        Args:
            policy: in whose name they were made.
            groups: names of the groups that each of them was made for.
            last: when the last of them was made, in seconds since the epoch.
            evictions: how many there were.
        """
        names = tuple(groups)
        policies = self.policies.update(dict.fromkeys(names, policy))
        return GroupHistory(self.evictions.with_evictions(names, last, evictions), policies)

    def in_last_hour(self, group: str, now: float) -> int:
        """Return how many evictions were made for a group within the last hour."""
        return self.evictions.count_in_last_hour(group, now)

    def of_policy(self, policy: str, now: float) -> Iterator[tuple[str, tuple[MinuteOfEvictions, ...]]]:
        """Yield the groups for which evictions were made in the name of a policy within the last hour, and these."""
        for name, known in self.policies.items():
            if known == policy and (recent := self.evictions.in_last_hour(name, now)):
                yield name, recent

    def without_old(self, now: float) -> GroupHistory:
        """Forget the groups for which none was made within the last hour."""
        kept = {name: policy for name, policy in self.policies.items() if self.evictions.in_last_hour(name, now)}
        if len(kept) == len(self.policies):
            return self
        minutes = Map({name: self.evictions.minutes[name] for name in kept})
        return GroupHistory(EvictionHistory(minutes), Map(kept))
