"""Observations, with defaults for everything that a test does not set."""

from __future__ import annotations

from typing import Any

from immutables import Map

from respread.cluster.state import ClusterSnapshot
from respread.controller.observation import Observation
from respread.controller.records.history import History
from respread.moves.ledger import Ledger
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.selection import NOTHING_REFUSED
from respread.timing import ClockReading
from tests.spreads import spread_of
from tests.worlds import NOW


def observation(snapshot: ClusterSnapshot, **fields: Any) -> Observation:
    """Return what a leader without policies observes in a cluster."""
    given: dict[str, Any] = {
        "spread": spread_of(snapshot),
        "policies": Map(),
        "statuses": {},
        "seen": {},
        "setting": PolicySetting(()),
        "limiters": (),
        "ledger": Ledger(),
        "history": History(NOW.timestamp),
        "refused": NOTHING_REFUSED,
        "moment": ClockReading(0.0, NOW.timestamp()),
        "term": 1,
        **fields,
    }
    return Observation(snapshot=snapshot, **given)
