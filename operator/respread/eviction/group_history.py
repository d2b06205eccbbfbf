"""The number of evictions for each spread group within the last hour.

If something undoes the evictions, such as another descheduler or an autoscaler that scales up and down, their number
must be bounded. So evictions that improved the group count like all others, because an oscillation consists of them. A
group that becomes balanced in between keeps its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from immutables import Map

from respread.eviction.history import EvictionHistory, MinuteOfEvictions


class GroupHistory(msgspec.Struct, frozen=True):
    """The evictions of the last hour, by group. A value: every change returns another one."""

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
