"""Outcomes of benches for tests of what these make of them."""

from __future__ import annotations

from typing import Any

from bench.balancing import Outcome
from bench.sides import Cost


def outcome(side: str, **changed: Any) -> Outcome:
    """Return the outcome of a side that restored everything, with other values of some fields."""
    found = Outcome(
        side="respread" if side == "respread" else "descheduler",
        fewest=2,
        violated=3,
        least_violated=0,
        evictions=2,
        refused=0,
        done_seconds=4.0,
        cost=Cost(1.0, 60.0),
        pending=0,
        still_violated=0,
        first_seconds=3.0,
    )
    return found._replace(**changed)
