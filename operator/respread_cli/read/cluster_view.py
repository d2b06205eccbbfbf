"""The cluster that a command reads: which, from an API server or a file, and what was read."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.record import Recorded
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot

NOT_INSTALLED: Final = "Respread is not installed in this cluster: its CustomResourceDefinitions are missing."
"""The note about a cluster without them."""


class ConnectionOptions(msgspec.Struct, frozen=True):
    """Which cluster to ask, and as whom."""

    kubeconfig: str | None = None
    """A file, or several joined as in `KUBECONFIG`."""
    context: str | None = None
    as_user: str | None = None
    """The user to impersonate."""
    as_groups: tuple[str, ...] = ()
    """The groups to impersonate."""
    request_timeout_seconds: float | None = None
    """How long to wait for each answer; None for a default."""


class ClusterOptions(ConnectionOptions, frozen=True):
    """Which cluster to read: a live one, unless a snapshot is given."""

    snapshot: str | None = None
    """A file, or `-` for standard input."""


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
    only_namespace: str | None = None
    """The namespace whose objects were read, because the others' may not be; None if all were."""
    left_out: frozenset[str] = frozenset()
    """Existing resources that could not be read."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about what could not be read."""
