"""Why a pod is not evicted: a reason and a message, wherever the decision is made."""

from __future__ import annotations

from datetime import datetime

import msgspec

from respread.api.reasons import Reason


class Held(msgspec.Struct, frozen=True):
    """Something is not done, for now or permanently."""

    reason: Reason
    """One word, for metrics and conditions."""
    message: str
    """A sentence for the user: what holds it, with the numbers, and what would change that."""
    until: datetime | None = None
    """When it ends, with a time zone; None if only a change ends it, or if that is unknown."""
    full_domains: tuple[str, ...] = ()
    """Of a group: the domains with the fewest pods whose nodes only lack room for a replacement."""
    named: str = ""
    """What a user would change, by its name: a budget, an annotation, domains."""

    def __str__(self) -> str:
        """Return both, as `explain` shows them."""
        return f"{self.reason}: {self.message}"
