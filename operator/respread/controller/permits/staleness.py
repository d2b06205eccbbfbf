"""Whether the watched state is fresh enough to evict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from respread.api.reasons import Reason
from respread.planning.held import Held

STALE_SECONDS: Final = 180.0
"""The API server sends a bookmark every minute. A kind that was silent for this long may be far behind, and nothing is
evicted."""


def why_stale(ages_seconds: Mapping[str, float]) -> Held | None:
    """Return why the watched state is too old for evictions, or None if it is fresh.

    Args:
        ages_seconds: for each watched kind, the time since its last event or bookmark.
    """
    kind, age = max(ages_seconds.items(), key=lambda each: each[1])
    if age <= STALE_SECONDS:
        return None
    return Held(Reason.API_UNAVAILABLE, f"nothing was heard of {kind} for more than {STALE_SECONDS:.0f} s")
