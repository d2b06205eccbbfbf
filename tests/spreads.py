"""The spread groups of one snapshot, without the state that a spread index keeps between snapshots."""

from __future__ import annotations

from respread.cluster.state import ClusterSnapshot
from respread.spread.carried import DefaultConstraints
from respread.spread.index import Spread, SpreadIndex


def spread_of(snapshot: ClusterSnapshot, defaults: DefaultConstraints | None = None) -> Spread:
    """Return the spread groups of a snapshot."""
    return SpreadIndex(defaults).update(snapshot)
