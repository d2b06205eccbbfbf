"""What a command looks at: a cluster as it was read, from an API server or from a file."""

from __future__ import annotations

from datetime import datetime

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot


class ReadCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and what a plan for it depends on besides."""

    snapshot: ClusterSnapshot
    policies: tuple[Policy, ...] = ()
    """Of both kinds, sorted by name."""
    statuses: Map[str, PolicyStatus] = Map()
    """What the operator says, by the policies' names."""
    priority_classes: Map[str, int] = Map()
    time: datetime
    """When it was like this, with a time zone."""
    source: str
    """What was read, as a sentence names it: `context prod`, `the file prod.json.gz`."""
    namespace: str = "default"
    """The current one."""
    server_version: str = ""
    """Of the API server, such as `v1.36.3`; empty if it is not known."""
    left_out: frozenset[str] = frozenset()
    """Resources that the cluster has and that could not be read."""
    notes: tuple[str, ...] = ()
    """What the person should know about what could not be read, each a sentence."""
