"""Reads the cluster that a command's options select."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import Final

import msgspec
from immutables import Map

from respread.cluster.decode.decoder import KINDS
from respread.cluster.objects import Node
from respread.cluster.state import ClusterState
from respread.cluster.stores import CLUSTER_POLICIES, NAMESPACED_POLICIES, POLICY_KINDS, RECORDS, watched_kinds
from respread.scheduling.filters.topology_spread_score import HOSTNAME
from respread.spread.index import Spread, SpreadIndex
from respread_cli.read.cluster_view import OWNERS, QUOTAS, ClusterOptions, ReadCluster, WantedKind
from respread_cli.read.snapshot_file import read_snapshot

LEFT_OUT: Final = "Left out:"
"""How a note begins that says that a kind could not be read."""
_COPIED_TO_PODS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_ROOM_FOR_ALL: Final = Map(pods=1_000_000, cpu=10**9, memory=10**15)


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
        WantedKind(KINDS["nodes"], required=namespace is None),
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
    return seen_from_pods(_read(options, wanted))


def with_all_that_decides(
    options: ClusterOptions, view: ReadCluster, *, with_policies: bool
) -> tuple[ReadCluster, bool]:
    """Return a view with all that kube-scheduler decides by, which is why pods are Pending; and whether it is complete.

    It is read again, because pods of all namespaces share the nodes. If pods or nodes may not be read, the view stays
    as it is. Other kinds that may not be read are left out, with notes.
    """
    if options.snapshot is not None:
        return view, True
    read = _read(options, [each._replace(required=False) for each in wanted_for_plan(with_policies=with_policies)])
    complete = read.left_out.isdisjoint({KINDS["pods"].resource, KINDS["nodes"].resource})
    return (read if complete else view), complete


def read_for_plan(options: ClusterOptions, namespace: str | None = None, *, with_policies: bool) -> ReadCluster:
    """Read what the operator reads, because the room for a replacement on a node depends on all pods there.

    If that is not allowed and a namespace is named, what may be read of it is read, with notes about what is missing.
    """
    if options.snapshot is not None:
        return read_snapshot(options.snapshot)
    wanted = wanted_for_plan(with_policies=with_policies)
    if namespace is None:
        return _read(options, wanted)
    from respread_cli.read.live import NotAllowedError  # noqa: PLC0415 - see `_read`

    try:
        return _read(options, wanted)
    except NotAllowedError:
        return _of_namespace(options, wanted, namespace)


def _of_namespace(options: ClusterOptions, wanted: Collection[WantedKind], namespace: str) -> ReadCluster:
    """Return what may be read of one namespace, and of the cluster, with one note about what may not."""
    view = _read(
        options,
        [
            each._replace(namespace=namespace if each.kind.namespaced else None, required=each.kind == KINDS["pods"])
            for each in wanted
        ],
    )
    notes = [note for note in view.notes if not note.startswith(LEFT_OUT)]
    missing = f" You are not allowed to list {', '.join(sorted(view.left_out))}." if view.left_out else ""
    notes.append(
        f"Only namespace {namespace} was read, because you are not allowed to read all that the operator reads. Pods "
        f"of other namespaces are not counted, so nodes seem to have more room than they have.{missing} For the result "
        "that an administrator gets, ask for the ClusterRole view by a ClusterRoleBinding."
    )
    return seen_from_pods(msgspec.structs.replace(view, only_namespace=namespace, notes=tuple(notes)))


def seen_from_pods(view: ReadCluster) -> ReadCluster:
    """Return a view whose nodes may not be read with those that its pods tell of.

    Since Kubernetes 1.35, a pod has the zone and region of its node as labels (PodTopologyLabelsAdmission). What else a
    node has is not known: it is taken to have room for every pod.
    """
    if KINDS["nodes"].resource not in view.left_out:
        return view
    nodes: dict[str, Node] = {}
    for pod in view.snapshot.pods.values():
        if pod.node_name:
            zones = {key: pod.labels[key] for key in _COPIED_TO_PODS if key in pod.labels}
            named = Map({HOSTNAME: pod.node_name, **zones})
            nodes[pod.node_name] = Node(name=pod.node_name, labels=named, allocatable=_ROOM_FOR_ALL)
    state = ClusterState(view.snapshot)
    state.replace("nodes", nodes.values())
    note = (
        "You are not allowed to list nodes, so only domains with pods of yours are known, by the pods' zone and region "
        "labels, and no node's room or taints. Ask for the ClusterRole respread-cluster-view, which Respread installs, "
        "by a ClusterRoleBinding."
    )
    notes = [each for each in view.notes if not each.startswith(f"{LEFT_OUT} you are not allowed to list nodes")]
    return msgspec.structs.replace(view, snapshot=state.snapshot, notes=(*notes, note))


def wanted_for_plan(*, with_policies: bool) -> list[WantedKind]:
    """Return what a plan depends on. Records tell which evictions are in flight, and quotas which are not made."""
    wanted = [WantedKind(kind, required=True) for kind in watched_kinds() if with_policies or kind not in POLICY_KINDS]
    records = [WantedKind(kind, required=False) for kind in RECORDS.values() if with_policies]
    return [*wanted, *records, WantedKind(QUOTAS, required=False)]


def spread_with_owners(
    options: ClusterOptions, view: ReadCluster, index: SpreadIndex, namespace: str | None = None
) -> tuple[ReadCluster, Spread]:
    """Return a view, with the pods' owners if default constraints depend on them, and the spread of its pods."""
    spread = index.update(view.snapshot)
    if spread.owners:
        view = with_owners(options, view, namespace)
        spread = index.update(view.snapshot)
    return view, spread


def with_owners(options: ClusterOptions, view: ReadCluster, namespace: str | None = None) -> ReadCluster:
    """Return a view with the ReplicaSets and other owners of pods.

    The operator reads single ones. For a single run, a list needs fewer requests. A snapshot contains them, or they are
    unknown.
    """
    if options.snapshot is not None:
        return view
    of = namespace or view.only_namespace
    read = _read(options, [WantedKind(kind, required=False, namespace=of) for kind in OWNERS])
    snapshot = msgspec.structs.replace(
        view.snapshot,
        replica_sets=read.snapshot.replica_sets,
        stateful_sets=read.snapshot.stateful_sets,
        replication_controllers=read.snapshot.replication_controllers,
    )
    return msgspec.structs.replace(view, snapshot=snapshot, notes=(*view.notes, *read.notes))


def with_namespaces(options: ClusterOptions, view: ReadCluster) -> ReadCluster:
    """Return a view with the namespaces, if they may be read. A snapshot contains them."""
    if options.snapshot is not None or view.snapshot.namespaces:
        return view
    read = _read(options, [WantedKind(KINDS["namespaces"], required=False)])
    snapshot = msgspec.structs.replace(view.snapshot, namespaces=read.snapshot.namespaces)
    return msgspec.structs.replace(view, snapshot=snapshot)


def _read(options: ClusterOptions, wanted: Collection[WantedKind]) -> ReadCluster:
    # Importing the clients takes three times as long as reading and showing the snapshot of a small cluster.
    from respread_cli.read.connection import connect  # noqa: PLC0415 - see above
    from respread_cli.read.live import read_live  # noqa: PLC0415 - see above

    with closing(connect(options)) as connection:
        return read_live(connection, wanted)
