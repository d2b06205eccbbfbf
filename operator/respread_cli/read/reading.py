"""Reads the cluster that a command's options select."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

import msgspec

from respread.cluster.decode.decoder import KINDS
from respread.spread.index import Spread, SpreadIndex
from respread.stores.watched_kinds import CLUSTER_POLICIES, NAMESPACED_POLICIES, POLICY_KINDS, RECORDS, watched_kinds
from respread_cli.read.cluster_view import ClusterOptions, ReadCluster
from respread_cli.read.gathering import OWNERS, WantedKind
from respread_cli.read.snapshot_file import read_snapshot


def read_for_skew(
    options: ClusterOptions, namespace: str | None, *, with_policies: bool, with_services: bool
) -> ReadCluster:
    """Read what the spread of the pods of a namespace, or of all pods, depends on.

    It also reads policies, if they are requested and may be read, and Services, on which default constraints depend.
    """
    if options.snapshot is not None:
        return read_snapshot(options.snapshot)
    wanted = [
        WantedKind(KINDS["pods"], required=True, namespace=namespace),
        WantedKind(KINDS["nodes"], required=True),
    ]
    if with_services:
        wanted.append(WantedKind(KINDS["services"], required=True, namespace=namespace))
    if with_policies:
        wanted += [
            WantedKind(KINDS["namespaces"], required=False),
            WantedKind(CLUSTER_POLICIES, required=False),
            WantedKind(NAMESPACED_POLICIES, required=False, namespace=namespace),
            WantedKind(RECORDS[CLUSTER_POLICIES], required=False),
            WantedKind(RECORDS[NAMESPACED_POLICIES], required=False, namespace=namespace),
        ]
    return _read(options, wanted)


def read_for_plan(options: ClusterOptions, *, with_policies: bool) -> ReadCluster:
    """Read what the operator reads, because the room for a replacement on a node depends on all pods there."""
    if options.snapshot is not None:
        return read_snapshot(options.snapshot)
    return _read(options, wanted_for_plan(with_policies=with_policies))


def wanted_for_plan(*, with_policies: bool) -> list[WantedKind]:
    """Return what a plan depends on. Records tell which evictions are in flight."""
    wanted = [WantedKind(kind, required=True) for kind in watched_kinds() if with_policies or kind not in POLICY_KINDS]
    records = [WantedKind(kind, required=False) for kind in RECORDS.values() if with_policies]
    return wanted + records


def spread_with_owners(
    options: ClusterOptions, view: ReadCluster, index: SpreadIndex, namespace: str | None = None
) -> tuple[ReadCluster, Spread]:
    """Return a view, with the pods' owners if default constraints depend on them, and the spread of its pods."""
    spread = index.update(view.snapshot)
    if spread.owners and options.snapshot is None:  # A snapshot contains them, or they are unknown.
        view = _with_owners(options, view, namespace)
        spread = index.update(view.snapshot)
    return view, spread


def _with_owners(options: ClusterOptions, view: ReadCluster, namespace: str | None) -> ReadCluster:
    """Return a view with the ReplicaSets and other owners of pods.

    The operator reads single ones. For a single run, a list needs fewer requests.
    """
    read = _read(options, [WantedKind(kind, required=False, namespace=namespace) for kind in OWNERS])
    snapshot = msgspec.structs.replace(
        view.snapshot,
        replica_sets=read.snapshot.replica_sets,
        stateful_sets=read.snapshot.stateful_sets,
        replication_controllers=read.snapshot.replication_controllers,
    )
    return msgspec.structs.replace(view, snapshot=snapshot, notes=(*view.notes, *read.notes))


def _read(options: ClusterOptions, wanted: Collection[WantedKind]) -> ReadCluster:
    # Importing the clients takes three times as long as reading and showing the snapshot of a small cluster.
    from respread_cli.read.connection import connect  # noqa: PLC0415 - see above
    from respread_cli.read.live import read_live  # noqa: PLC0415 - see above

    with closing(connect(options)) as connection:
        return read_live(connection, wanted)
