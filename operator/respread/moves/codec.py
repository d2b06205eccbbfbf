"""Moves in flight as the policies' records contain them: how they are written, and how the next leader reads them.

A move is recorded before its eviction is sent. So a process that is killed at any moment leaves behind which pods it
evicted, or was about to, and for which groups. A snapshot shows what became of them: the next leader follows them to
their outcome, and commands plan beside them.

What is recorded of a move is computed when the move changes, not for every reconcile and every record that is written:
hundreds of moves may be in flight for minutes, and the pods of their controllers may be thousands.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec
from immutables import Map

from respread.api.record import (
    MAX_GROUPS_OF_MOVE,
    MAX_MOVES_IN_FLIGHT,
    MAX_NEWEST_PODS,
    MAX_WORKLOAD_LENGTH,
    LeftDomain,
    MoveInFlight,
    Recorded,
)
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.pod import Pod, PodSpec, WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.moves.entry import LONGEST_SECONDS, MoveEntry, MovePhase, Outcome, controller_uid_of
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.protection import siblings_of
from respread.spread.group import GroupKey, SpreadGroup
from respread.timing import ClockReading

GroupsByNamespace: TypeAlias = Mapping[str, Mapping[GroupKey, SpreadGroup]]
GroupsNamed: TypeAlias = Callable[[str], Mapping[str, GroupKey]]
"""Takes a namespace and returns its spread groups by their names in records."""

_API_VERSIONS: Final = {
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicationController": "v1",
    "CloneSet": "apps.kruise.io/v1alpha1",
}
"""The API versions of the controllers that replace evicted pods."""
_SECOND: Final = timedelta(seconds=1)
"""The API server stores creation timestamps in whole seconds."""
_LONG_AGO_SECONDS: Final = 30.0
"""Further than this the clocks of the API server and of this process are not apart: its Lease would not work either."""


def group_name(key: GroupKey) -> str:
    """Return a name for a group that is the same in every process."""
    return digest(key)


def by_name(groups: GroupsByNamespace) -> GroupsNamed:
    """Return the groups of a namespace by their names, which are computed when it is first requested."""

    @cache
    def named(namespace: str) -> Mapping[str, GroupKey]:
        return {group_name(key): key for key in groups.get(namespace, ())}

    return named


class GroupNames:
    """The names of groups, each computed once."""

    def __init__(self) -> None:
        self._names: dict[GroupKey, str] = {}

    def of(self, key: GroupKey) -> str:
        """Return a group's `group_name`."""
        if (name := self._names.get(key)) is None:
            name = self._names[key] = group_name(key)
        return name

    def keep(self, groups: Mapping[GroupKey, object]) -> None:
        """Forget the names of groups that are gone, when these are the majority."""
        if len(self._names) > 2 * len(groups):
            self._names = {key: name for key, name in self._names.items() if key in groups}


def digest(value: Any) -> str:
    """Return a short name for a value, which is the same in every process."""
    encoded = msgspec.json.encode(value, enc_hook=_sorted_map)
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _sorted_map(value: Any) -> dict[Any, Any]:
    if isinstance(value, Map):
        return dict(sorted(value.items()))
    raise NotImplementedError(f"no stable form of a {type(value).__name__} is known")


# Write


class RecordedMoves:
    """Returns moves in flight for records. It belongs to one event loop."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._by_policy: Mapping[str, tuple[MoveInFlight, ...]] = {}
        self._written: dict[str, tuple[MoveEntry, MoveInFlight]] = {}
        """By the UIDs of the pods: each move as it was, and what was recorded of it."""

    def of(self, ledger: Ledger, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
        """Return the moves that records contain by the policies' names, in the order in which they were sent.

        Only moves that have changed are compared with the snapshot: pods that are recorded as no replacement may be
        gone meanwhile, which changes nothing.
        """
        if ledger is not self._ledger:
            before, self._written = self._written, {}
            siblings = _YoungSiblings(snapshot)
            found: defaultdict[str, list[MoveInFlight]] = defaultdict(list)
            for entry in ledger.on_record:
                known = before.get(entry.uid)
                if known is None or known[0] is not entry:
                    known = entry, _recorded(entry, siblings)
                self._written[entry.uid] = known
                found[entry.move.policy].append(known[1])
            self._by_policy = {policy: tuple(moves[:MAX_MOVES_IN_FLIGHT]) for policy, moves in found.items()}
            self._ledger = ledger
        return self._by_policy


class _YoungSiblings:
    """The pods of controllers that were created at a moment or later, found once for all moves that ask for them."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[tuple[str, datetime], list[Pod]] = {}

    def known(self, entry: MoveEntry, moment: datetime) -> list[str]:
        """Return the names of those that are no replacement of a move, at most one more than a record may list."""
        siblings = self._since(entry, moment)
        names = (each.name for each in siblings if each.uid in entry.known and each.uid != entry.uid)
        return list(islice(names, MAX_NEWEST_PODS + 1))

    def _since(self, entry: MoveEntry, moment: datetime) -> list[Pod]:
        asked = controller_uid_of(entry.move), moment
        if (found := self._found.get(asked)) is None:
            siblings = siblings_of(self._snapshot, entry.move.pod)
            found = [each for each in siblings if (created := each.creation_timestamp) and created >= moment]
            found.sort(key=attrgetter("creation_timestamp"))  # first those that are known, then replacements
            self._found[asked] = found
        return found


def _recorded(entry: MoveEntry, siblings: _YoungSiblings) -> MoveInFlight:
    move, controller = entry.move, entry.move.pod.controller
    newest, newest_pods = _newest(entry, siblings)
    return MoveInFlight(
        uid=move.pod.uid,
        namespace=move.pod.namespace,
        pod=move.pod.name,
        node=move.pod.node_name,
        workload=str(move.workload)[:MAX_WORKLOAD_LENGTH],  # one that somebody forged may have no slash, and gets one
        controller_kind="" if controller is None else controller.kind,
        controller_name="" if controller is None else controller.name,
        controller_uid="" if controller is None else controller.uid,
        groups=tuple(
            LeftDomain(group_name(key), domain) for key, domain in zip(move.groups, move.from_domains, strict=True)
        )[:MAX_GROUPS_OF_MOVE],
        sent=datetime.fromtimestamp(int(entry.sent_time), UTC),
        newest=newest,
        newest_pods=newest_pods,
    )


def _newest(entry: MoveEntry, siblings: _YoungSiblings) -> tuple[datetime, tuple[str, ...]]:
    """Return a moment, and the pods created then or later that are not the replacement.

    Where the newest pod was created long before the eviction was sent, a second later is as good, and names nobody.
    Of very many pods created in the same second none is named, and the moment is a second later: a replacement made
    within that very second would be missed, and the move's outcome is then Unknown.
    """
    newest = entry.newest
    others = siblings.known(entry, newest)
    if len(others) > MAX_NEWEST_PODS or (others and entry.sent_time - newest.timestamp() > _LONG_AGO_SECONDS):
        newest += _SECOND
        others = siblings.known(entry, newest)
    return newest, tuple(sorted(others)[:MAX_NEWEST_PODS])


# Read


def recorded_moves(
    records: Mapping[str, Recorded], snapshot: ClusterSnapshot, groups_named: GroupsNamed, moment: ClockReading
) -> Iterator[MoveEntry]:
    """Yield the moves from records, as they were when they were recorded.

    The record of a RebalancePolicy only counts for its own namespace, so that its author can't affect others. The
    records are by the policies' names.
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
            yield _entry(move, each, snapshot, moment)


def moves_under_way(records: Mapping[str, Recorded], snapshot: ClusterSnapshot, time: datetime) -> Ledger:
    """Return the moves from records by the policies' names that are still in flight, for planning beside them.

    The time is that of the snapshot, with a time zone.
    """
    now, ledger = time.timestamp(), Ledger()
    entries = recorded_moves(records, snapshot, lambda _: {}, ClockReading(now, now))
    return ledger.resumed(entries).updated(snapshot, now, lambda *_: Outcome.UNKNOWN)[0]


def _move(
    policy: str, recorded: MoveInFlight, snapshot: ClusterSnapshot, names: Mapping[str, GroupKey], *, component: int
) -> Move:
    kind, _, name = recorded.workload.partition("/")
    groups = [(names[each.group], each.domain) for each in recorded.groups if each.group in names]
    return Move(
        pod=_pod(recorded, snapshot),
        policy=policy,
        workload=WorkloadName(kind, recorded.namespace, name),
        wave=0,
        component=component,
        groups=tuple(key for key, _ in groups),
        from_domains=tuple(domain for _, domain in groups),
        to_domains=tuple(() for _ in groups),
        nodes=0,
        certain=False,
    )


def _entry(move: Move, recorded: MoveInFlight, snapshot: ClusterSnapshot, moment: ClockReading) -> MoveEntry:
    sent_time = recorded.sent.timestamp()
    sent_at = moment.now - max(0.0, moment.time - sent_time)
    # If its pod is gone by now and has no replacement, none is expected.
    is_long_ago = moment.now - sent_at > LONGEST_SECONDS
    older = (
        each.uid
        for each in siblings_of(snapshot, move.pod)
        if (created := each.creation_timestamp) is None
        or created < recorded.newest
        or each.name in recorded.newest_pods
    )
    return MoveEntry(
        move=move,
        sent_at=sent_at,
        phase=MovePhase.LEAVING if is_long_ago and _there(recorded, snapshot) is None else MovePhase.SENT,
        phase_since=sent_at,
        known=frozenset(older) | {move.pod.uid},
        sent_time=sent_time,
        newest=recorded.newest,
    )


def _there(recorded: MoveInFlight, snapshot: ClusterSnapshot) -> Pod | None:
    there = snapshot.pods.get(ObjectKey(recorded.namespace, recorded.pod))
    return there if there is not None and there.uid == recorded.uid else None


def _pod(recorded: MoveInFlight, snapshot: ClusterSnapshot) -> Pod:
    """Return the evicted pod if it still exists, else one like its controller's other pods."""
    if (there := _there(recorded, snapshot)) is not None:
        return there
    bare = Pod(
        namespace=recorded.namespace,
        name=recorded.pod,
        uid=recorded.uid,
        spec=PodSpec(),
        controller=OwnerReference(
            _API_VERSIONS.get(recorded.controller_kind, ""),
            recorded.controller_kind,
            recorded.controller_name,
            recorded.controller_uid,
        ),
        node_name=recorded.node,
    )
    sibling = next(siblings_of(snapshot, bare), bare)
    return msgspec.structs.replace(sibling, name=bare.name, uid=bare.uid, node_name=bare.node_name)
