"""Whether a spread group may have more evictions within the hour."""

from __future__ import annotations

from typing import NamedTuple

from respread.api.policy import Limits
from respread.api.reasons import Reason
from respread.planning.held import Held


class GroupPace(NamedTuple):
    """The evictions of a spread group, for `limits.perHourPerGroup`."""

    pods: int
    """The number of pods that the group counts."""
    in_last_hour: int
    """The evictions for it in the last hour."""

    def beyond(self, limiter: str, limits: Limits, more: int = 1) -> Held | None:
        """Return that this many more evictions would exceed the limit of a policy, or None."""
        limit = limits.per_hour_of_group(self.pods)
        if self.in_last_hour + more <= limit:
            return None
        if limit == 0:
            return Held(Reason.LIMIT_REACHED, f"limits.perHourPerGroup of policy {limiter} is 0: none is made")
        made = "1 eviction was" if self.in_last_hour == 1 else f"{self.in_last_hour} evictions were"
        return Held(
            Reason.LIMIT_REACHED,
            f"limits.perHourPerGroup of policy {limiter} is {limit} for this spread group, and {made} made for it "
            "within the last hour; something may undo them, such as an autoscaler that scales up and down, node "
            "consolidation or another descheduler",
        )
