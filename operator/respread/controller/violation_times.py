"""How long spread groups are violated, for the histogram of how fast they are restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from respread.spread.group import GroupKey, SpreadGroup


class ViolationTimes:
    """Remembers since when each group that a policy restores is violated."""

    __slots__ = ("_observe", "_since")

    def __init__(self, observe: Callable[[str, float], None]) -> None:
        """Tell how long each violation lasted.

        Args:
            observe: called with the policy's name and the seconds when a group is balanced again; for a group that is
                gone, or that no policy restores any more, it is not called.
        """
        self._observe = observe
        self._since: dict[GroupKey, float] = {}

    def see(self, groups: Mapping[GroupKey, SpreadGroup], policies: Mapping[GroupKey, str], now: float) -> None:
        """Take over how the groups stand.

        Args:
            groups: all of them.
            policies: the policy that restores each group which one restores.
            now: seconds on a clock that is never set.
        """
        for key, since in self._since.items():
            if key in policies and not groups[key].violated:
                self._observe(policies[key], now - since)
        self._since = {key: self._since.get(key, now) for key in policies if groups[key].violated}
