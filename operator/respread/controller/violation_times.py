"""How long spread groups are violated, for the histogram of restoration times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from respread.spread.group import GroupKey, SpreadGroup


class ViolationTimes:
    """Remembers since when each group that a policy restores is violated."""

    __slots__ = ("_observe", "_since")

    def __init__(self, observe: Callable[[str, float], None]) -> None:
        """Report how long each violation lasted.

        Args:
            observe: called with the policy's name and the seconds when a group is balanced again. It is not called for
                a group that is gone or that no policy restores any more.
        """
        self._observe = observe
        self._since: dict[GroupKey, float] = {}

    def see(self, groups: Mapping[GroupKey, SpreadGroup], policies: Mapping[GroupKey, str], now: float) -> None:
        """Take over the current groups.

        Args:
            groups: all groups.
            policies: the policy of each group that a policy restores.
            now: seconds on a monotonic clock.
        """
        for key, since in self._since.items():
            if key in policies and not groups[key].violated:
                self._observe(policies[key], now - since)
        self._since = {key: self._since.get(key, now) for key in policies if groups[key].violated}
