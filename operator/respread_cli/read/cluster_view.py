"""The cluster that a command reads: which, from an API server or a file, and how what is read of it is collected."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.record import Recorded
from respread.api.status import PolicyStatus
from respread.cluster.decode.decoder import KINDS, Kind
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import DecodeError
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import POLICY_KINDS, PRIORITY_CLASSES, RECORDS, Stores
from respread.program.command_line import CommandError

NOT_INSTALLED: Final = "Respread is not installed in this cluster: its CustomResourceDefinitions are missing."
"""The note about a cluster without them."""
OWNERS: Final = tuple(KINDS[resource] for resource in ("replicasets", "statefulsets", "replicationcontrollers"))
"""The owners of pods. The operator reads single ones when it needs them; a snapshot contains all of them."""
QUOTAS: Final = KINDS["resourcequotas"]
"""The operator reads those of a namespace when it needs them."""
OPTIONAL: Final = (*OWNERS, QUOTAS, *RECORDS.values())
"""What a snapshot may do without."""
READ_KINDS: Final = (
    *sorted(KINDS.values(), key=lambda kind: (kind.resource != "pods", kind.resource)),
    PRIORITY_CLASSES,
    *POLICY_KINDS,
    *RECORDS.values(),
)
"""Everything that a snapshot contains, in its order."""


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


class WantedKind(NamedTuple):
    """A kind to read."""

    kind: Kind
    required: bool
    """Whether the command can't continue without it."""
    namespace: str | None = None
    """Only the objects of this namespace."""

    @property
    def path(self) -> str:
        """The path of its list."""
        return self.kind.path_in_namespace.format(namespace=self.namespace) if self.namespace else self.kind.path


class Gathering(Stores):
    """Collects objects and returns the cluster that they form."""

    def decode_list(self, kind: Kind, pages: Iterable[bytes]) -> tuple[list[tuple[Any, Any]], list[DecodeError]]:
        """Decode the pages of a LIST, without adding them, and return the objects, and what can't be decoded in full.

        Raises:
            CommandError: they are no list.
        """
        objects: list[tuple[Any, Any]] = []
        faults: list[DecodeError] = []
        for body in pages:
            try:
                page = self.by_kind[kind].decode_page(body)
            except DecodeError as error:
                raise CommandError(f"the API server did not answer with a list: {error}.") from error
            objects += page.items
            faults += page.errors
        return objects, faults

    def view(
        self,
        *,
        time: datetime,
        source: str,
        namespace: str,
        notes: Iterable[str],
        server_version: str = "",
        left_out: Iterable[str] = (),
    ) -> ReadCluster:
        """Return the collected cluster."""
        policies = self.policies.policies
        return ReadCluster(
            snapshot=self.state.snapshot,
            policies=tuple(policies[name] for name in sorted(policies)),
            statuses=self.policies.statuses,
            records=self._recorded(),
            priority_classes=self.priority_classes.by_name,
            time=time,
            source=source,
            namespace=namespace,
            server_version=server_version,
            left_out=frozenset(left_out),
            notes=tuple(notes),
        )

    def _recorded(self) -> Map[str, Recorded]:
        """Return the policies' records, by the policies' names."""
        by_uid = {key: record for store in self.records.values() for key, record in store.objects.items()}
        keys = {name: ObjectKey(each.namespace, each.uid) for name, each in self.policies.policies.items()}
        return Map({name: by_uid[key] for name, key in keys.items() if key in by_uid})
