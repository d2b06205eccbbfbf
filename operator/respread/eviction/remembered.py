"""Moves in flight from the records of policies. A snapshot shows what became of them.

The next leader follows them to their outcome, and commands plan beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec

from respread.api.record import MoveInFlight, Recorded
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName
from respread.moves.entry import MoveEntry, MovePhase, Outcome, Patience
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.controllers import siblings_of
from respread.spread.group import GroupKey

GroupsNamed: TypeAlias = Callable[[str], Mapping[str, GroupKey]]
"""Takes a namespace and returns its spread groups by their names in records."""

_API_VERSIONS: Final = {
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicationController": "v1",
    "CloneSet": "apps.kruise.io/v1alpha1",
}
"""The API versions of the controllers that replace evicted pods."""


class ClockReading(NamedTuple):
    """One time on two clocks."""

    now: float
    """Seconds on a monotonic clock."""
    time: float
    """Seconds since the epoch."""


def remembered_moves(
    records: Mapping[str, Recorded],
    snapshot: ClusterSnapshot,
    groups_named: GroupsNamed,
    moment: ClockReading,
    patience: Patience,
) -> Iterator[MoveEntry]:
    """Yield the moves from records, as they were when they were recorded.

    The record of a RebalancePolicy only counts for its own namespace, so that its author can't affect others.

    Args:
        records: by the policies' names.
        snapshot: the cluster as the watch shows it.
        groups_named: the spread groups by name.
        moment: now.
        patience: how long a move may take.
    """
    number = 0
    for policy, record in records.items():
        namespace = policy.rpartition("/")[0]
        for each in record.moves_in_flight:
            if namespace and each.namespace != namespace:
                continue
            # Records don't store which moves were of one step, and no plan has components below 0.
            number -= 1
            move = _move(policy, each, snapshot, groups_named(each.namespace), component=number)
            yield _entry(move, each, snapshot, moment, patience)


def moves_under_way(records: Mapping[str, Recorded], snapshot: ClusterSnapshot, time: datetime) -> Ledger:
    """Return the moves from records that are still in flight in a snapshot, for planning beside them.

    Args:
        records: by the policies' names.
        snapshot: the cluster.
        time: the time of the snapshot, with a time zone.
    """
    now, ledger = time.timestamp(), Ledger()
    entries = remembered_moves(records, snapshot, lambda _: {}, ClockReading(now, now), ledger.patience)
    return ledger.resumed(entries).updated(snapshot, now, lambda *_: Outcome.UNKNOWN)[0]


def _move(
    policy: str, remembered: MoveInFlight, snapshot: ClusterSnapshot, names: Mapping[str, GroupKey], *, component: int
) -> Move:
    kind, _, name = remembered.workload.partition("/")
    groups = [(names[each.group], each.domain) for each in remembered.groups if each.group in names]
    return Move(
        pod=_pod(remembered, snapshot),
        policy=policy,
        workload=WorkloadName(kind, remembered.namespace, name),
        wave=0,
        component=component,
        groups=tuple(key for key, _ in groups),
        from_domains=tuple(domain for _, domain in groups),
        to_domains=tuple(() for _ in groups),
        nodes=0,
        certain=False,
    )


def _entry(
    move: Move, remembered: MoveInFlight, snapshot: ClusterSnapshot, moment: ClockReading, patience: Patience
) -> MoveEntry:
    sent_time = remembered.sent.timestamp()
    sent_at = moment.now - max(0.0, moment.time - sent_time)
    # If its pod is gone by now and has no replacement, none is expected.
    is_long_ago = moment.now - sent_at > patience.longest_seconds
    older = (each.uid for each in siblings_of(snapshot, move.pod) if _is_older(each, remembered))
    return MoveEntry(
        move=move,
        sent_at=sent_at,
        phase=MovePhase.LEAVING if is_long_ago and _there(remembered, snapshot) is None else MovePhase.SENT,
        phase_since=sent_at,
        known=frozenset(older) | {move.pod.uid},
        sent_time=sent_time,
        newest=remembered.newest,
    )


def _is_older(sibling: Pod, remembered: MoveInFlight) -> bool:
    created = sibling.creation_timestamp
    return created is None or created < remembered.newest or sibling.name in remembered.newest_pods


def _there(remembered: MoveInFlight, snapshot: ClusterSnapshot) -> Pod | None:
    there = snapshot.pods.get(ObjectKey(remembered.namespace, remembered.pod))
    return there if there is not None and there.uid == remembered.uid else None


def _pod(remembered: MoveInFlight, snapshot: ClusterSnapshot) -> Pod:
    """Return the evicted pod if it still exists, else one like its controller's other pods."""
    if (there := _there(remembered, snapshot)) is not None:
        return there
    bare = Pod(
        namespace=remembered.namespace,
        name=remembered.pod,
        uid=remembered.uid,
        spec=PodSpec(),
        controller=OwnerReference(
            _API_VERSIONS.get(remembered.controller_kind, ""),
            remembered.controller_kind,
            remembered.controller_name,
            remembered.controller_uid,
        ),
        node_name=remembered.node,
    )
    sibling = next(siblings_of(snapshot, bare), bare)
    return msgspec.structs.replace(sibling, name=bare.name, uid=bare.uid, node_name=bare.node_name)
