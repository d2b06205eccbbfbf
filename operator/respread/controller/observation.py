"""Everything that one reconcile goes by, as it was at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.controller.permits.permission import Policies
from respread.controller.records.history import History
from respread.eviction.in_flight import InFlight
from respread.planning.planner import PolicySetting
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.refused import Refused
from respread.spread.index import Spread


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A value: every step of a reconcile takes it, in whichever thread, and nothing changes it.

    What the evictions do that go on meanwhile is seen by the next one.
    """

    snapshot: ClusterSnapshot
    """The cluster as the watch shows it."""
    spread: Spread
    """Its spread groups."""
    policies: Policies
    index: PolicyIndex
    """Which policies govern what."""
    statuses: Mapping[str, PolicyStatus]
    """The policies' statuses, by name, as they were written last."""
    seen: Mapping[str, PolicyStatus]
    """The same as the watch shows them, which may be behind."""
    setting: PolicySetting
    """The policies and the priority classes that they refer to."""
    under_way: InFlight
    """The moves in flight, and those that are chosen as if they were sent."""
    history: History
    """What was done so far and came of it."""
    refused: Refused
    """What the API server refused lately."""
    now: float
    """Seconds on the loop's clock."""
    time: datetime
    """The same moment, with a time zone."""
    leads: bool
    """Whether this replica leads, and knows all that was done before it."""
