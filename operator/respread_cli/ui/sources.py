"""The sources of the page's cluster: an API server that is followed, or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from respread_cli.read.cluster_view import ClusterOptions, ReadCluster
from respread_cli.read.following import FollowedCluster, Lost
from respread_cli.read.gathering import OWNERS, WantedKind
from respread_cli.read.live import ApiReader
from respread_cli.read.reading import wanted_for_plan
from respread_cli.read.snapshot_file import read_snapshot
from respread_cli.ui.engine import Source
from respread_cli.ui.events import ReadEvents, read_operator_events


class FileSource:
    """A snapshot file, which never changes."""

    live = False
    lost: Lost | None = None

    def __init__(self, file: str) -> None:
        """Read it.

        Raises:
            CommandError: it can't be read.
        """
        self._view = read_snapshot(file)

    def take(self) -> ReadCluster:
        """Return the cluster."""
        return self._view

    def read_owners(self) -> bool:
        """Return False: the file contains them, or they are unknown."""
        return False

    def events(self, _namespaces: tuple[str, ...]) -> ReadEvents:
        """Return none."""
        return ReadEvents(unreadable="A snapshot contains no Events.")


class LiveSource:
    """An API server."""

    live = True

    def __init__(self, cluster: FollowedCluster, reader: ApiReader) -> None:
        self._cluster = cluster
        self._reader = reader

    @property
    def lost(self) -> Lost | None:
        """The start of the outage; None if there is a connection."""
        return self._cluster.lost

    def take(self) -> ReadCluster | None:
        """Return the cluster as it is now; None until everything was read."""
        return self._cluster.take()

    def read_owners(self) -> bool:
        """Read the pods' owners from now on, and return True; False if they are read already."""
        return self._cluster.add(WantedKind(kind, required=False) for kind in OWNERS)

    def events(self, namespaces: tuple[str, ...]) -> ReadEvents:
        """Read the operator's Events in some namespaces."""
        return read_operator_events(self._reader, namespaces)


@contextmanager
def open_source(options: ClusterOptions, *, with_policies: bool, changed: Callable[[], None]) -> Iterator[Source]:
    """Open the cluster that options select.

    Args:
        options: of the command.
        with_policies: whether to read the cluster's policies.
        changed: called when something has arrived, in any thread.

    Raises:
        CommandError: it can't be read.
    """
    if options.snapshot is not None:
        yield FileSource(options.snapshot)
        return
    from respread_cli.read.connection import connect  # noqa: PLC0415 - the clients take long to import

    wanted = wanted_for_plan(with_policies=with_policies)
    connection = connect(options)
    cluster = FollowedCluster(connection, changed)
    try:
        cluster.start(wanted)
        yield LiveSource(cluster, ApiReader(connection))
    finally:
        cluster.close()
        connection.close()
