"""Why a pod is not evicted: a reason and a sentence, wherever the decision is made."""

from __future__ import annotations

from datetime import datetime

import msgspec

from respread.api.reasons import Reason


class Held(msgspec.Struct, frozen=True):
    """Something is not done, for now or for good."""

    reason: Reason
    """One word, for metrics, conditions and whoever counts."""
    message: str
    """A sentence for the person who wants it done: what holds it, with the numbers, and what would let it go."""
    until: datetime | None = None
    """When it ends by time alone, with a time zone; None where only a change ends it, or that is not known."""

    def __str__(self) -> str:
        """Return both, as `explain` shows them."""
        return f"{self.reason}: {self.message}"
