"""The cluster that a command reads, from an API server or from a file."""

from __future__ import annotations

from datetime import datetime

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.record import Recorded
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot


class ReadCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and the other data that a plan for it depends on."""

    snapshot: ClusterSnapshot
    policies: tuple[Policy, ...] = ()
    """Of both kinds, sorted by name."""
    statuses: Map[str, PolicyStatus] = Map()
    """What the operator reports, by the policies' names."""
    records: Map[str, Recorded] = Map()
    """What the operator has recorded, by the policies' names."""
    priority_classes: Map[str, int] = Map()
    time: datetime
    """The time of the snapshot, with a time zone."""
    source: str
    """What was read, as in a sentence: `context prod`, `the file prod.json.gz`."""
    namespace: str = "default"
    """The current one."""
    server_version: str = ""
    """Of the API server, such as `v1.36.3`; empty if it is not known."""
    left_out: frozenset[str] = frozenset()
    """Existing resources that could not be read."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about what could not be read."""
