"""Whether what is known of the cluster is fresh enough to act by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from respread.api.reasons import Reason
from respread.planning.held import Held

STALE_SECONDS: Final = 180.0
"""The API server sends a bookmark every minute: what was silent for so long may be far behind, and nothing is evicted
by it."""


def why_stale(ages_seconds: Mapping[str, float]) -> Held | None:
    """Return why nothing is evicted by what is known, or None if it is fresh.

    Args:
        ages_seconds: for each watched kind how long ago something was heard of it.
    """
    kind, age = max(ages_seconds.items(), key=lambda each: each[1])
    if age <= STALE_SECONDS:
        return None
    return Held(Reason.API_UNAVAILABLE, f"nothing was heard of {kind} for {age:.0f} s")
