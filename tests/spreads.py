"""The spread groups of a cluster as it is once, without what a spread index keeps from one snapshot to the next."""

from __future__ import annotations

from respread.cluster.state import ClusterSnapshot
from respread.spread.carried import DefaultConstraints
from respread.spread.index import Spread, SpreadIndex


def spread_of(snapshot: ClusterSnapshot, defaults: DefaultConstraints | None = None) -> Spread:
    """Return the spread groups of a snapshot."""
    return SpreadIndex(defaults).update(snapshot)
