"""Everything that one reconcile uses, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.history import History
from respread.eviction.limits.limiter import Limiter
from respread.moves.ledger import Ledger
from respread.planning.planner import PolicySetting
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.refused import Refused
from respread.spread.index import Spread
from respread.stores.policy_store import Policies


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A value that every step of a reconcile uses, in any thread. It never changes.

    The effects of evictions during the reconcile are visible in the next one.
    """

    snapshot: ClusterSnapshot
    """The cluster as the watch shows it."""
    spread: Spread
    """Its spread groups."""
    policies: Policies
    index: PolicyIndex
    """Which policies govern which pods."""
    statuses: Mapping[str, PolicyStatus]
    """The last written statuses, by policy name."""
    seen: Mapping[str, PolicyStatus]
    """The statuses as the watch shows them, which may be older."""
    setting: PolicySetting
    """The policies and the priority classes that they refer to."""
    limiters: tuple[Limiter, ...]
    """The limits in effect, one for each policy."""
    ledger: Ledger
    """The moves."""
    history: History
    """What was done so far, and its outcomes."""
    refused: Refused
    """What the API server has refused lately."""
    now: float
    """Seconds on the loop's clock."""
    time: datetime
    """The same moment, with a time zone."""
    leads: bool
    """Whether this replica leads, and knows everything that was done before it."""
