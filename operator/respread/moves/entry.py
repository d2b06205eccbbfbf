"""One move: its phase, how long it may take, and how it ended.

A move's phases are its life. Whoever needs to know what becomes of a move asks for its phase, and nobody else keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from math import inf
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.planning.plan import Move
from respread.planning.victims.protection import is_active
from respread.spread.group import GroupKey

PLACED_SECONDS: Final = 15.0
"""How long it takes at most until a replacement exists, and then until it has a node, if nothing is wrong."""
CERTAIN_SECONDS: Final = 180.0
"""How long after a former leader's Lease has ended, and after our last request, no request for an eviction can be on
its way. An API server closes a connection on which nothing has come for 90 s (IdleTimeout in secure_serving.go), so
what a frozen process or a broken network holds back longer is not accepted. It works on a request for at most a minute.
"""
AGAIN_SECONDS: Final = 5.0
"""How long after the API server did not say what became of a pod it is asked again."""
LEAVING_SINCE: Final = datetime.fromtimestamp(0, UTC)
"""The deletion timestamp of pods that the watch does not show as terminating yet. Only its presence is used."""

_NO_PODS: Final[PodsByName] = Map()
_NONE: Final[Map[str, PodsByName]] = Map()


UNCONFIRMED_SECONDS: Final = 75.0
"""After an eviction without an answer, a pod that still exists counts as not evicted after this time. An API server
works on a request for at most a minute (`--request-timeout`)."""
STEP_SECONDS: Final = 300.0
"""How long each phase may take: the pod is terminating, is replaced, the replacement has a node."""
TERMINATION_SECONDS: Final = 3600.0
"""How long it may take until a StatefulSet's pod is gone, because it is replaced only then."""
LONGEST_SECONDS: Final = UNCONFIRMED_SECONDS + TERMINATION_SECONDS + 3 * STEP_SECONDS
"""How long after it was sent a move may still be in flight."""


class Outcome(StrEnum):
    """The effect of a move on the spread.

    The value is the label in the metrics. After all but `Improved`, the groups back off.
    """

    IMPROVED = "Improved"
    UNCHANGED = "Unchanged"
    """The replacement is in the same domain as the pod was."""
    WORSE = "Worse"
    UNPLACED = "Unplaced"
    """The replacement found no node."""
    NOT_READY = "NotReady"
    """The replacement has a node, and did not become or stay Ready."""
    UNKNOWN = "Unknown"
    """No replacement came, or the pod never went."""


FAILURES: Final = frozenset({Outcome.UNCHANGED, Outcome.WORSE, Outcome.UNPLACED, Outcome.NOT_READY})
"""Outcomes that improved nothing."""

Compare: TypeAlias = Callable[[Move, Pod], Outcome]
"""Compares the replacement's place with the pod's. The replacement has a node."""


class MovePhase(IntEnum):
    """What has become of a move. Plans, and limits of what is in flight, count it until `PLACED`."""

    CHOSEN = 0
    """A reconcile has chosen it. Its pod's controller is looked at, and nothing was written or sent."""
    RECORDED = 1
    """Every record that is written contains it, because its eviction may be sent at any moment."""
    OWED = 2
    """The eviction was refused although others of its step were made. It will be sent again."""
    SENT = 3
    """The eviction was sent. It is not known (yet) whether it was accepted."""
    EVICTED = 4
    """The API server has accepted the eviction."""
    LEAVING = 5
    """The watch shows the pod as terminating or gone."""
    REPLACED = 6
    """The replacement exists."""
    PLACED = 7
    """The replacement has a node."""
    STEADYING = 8
    """The replacement is Ready. If it stays so for a while, the move counts as a success."""
    UNCERTAIN = 9
    """Respread has given up on it, and it may have been made all the same: it counts for the limits of an hour."""
    OVER = 10
    """Nothing more is to be known of it, except that its pod may still be being deleted."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A finished move."""

    move: Move
    outcome: Outcome
    replacement: Pod | None
    seconds: float
    """From the eviction to the end."""
    message: str
    """How it ended, in a sentence."""
    unreplaced: bool = False
    """Whether the pod is gone and its controller created no replacement although it wants one."""
    unmade: bool = False
    """Whether the pod is still there, so that the move may not have been made."""

    @property
    def failed(self) -> bool:
        """Whether it improved nothing. A scale-down in between is not a failure."""
        return self.unreplaced or self.outcome in FAILURES


class Counting(NamedTuple):
    """What a move counts for in the limits of an hour."""

    policy: str
    bounded: tuple[str, ...]
    """Names of the policies whose `limits.perHour` it counts for."""
    groups: tuple[GroupKey, ...]

    def beside(self, other: Counting | None) -> Counting:
        """Return it so that it counts wherever it or another move of the same pod does: a pod is evicted once."""
        if other is None:
            return self
        return self._replace(
            bounded=tuple(dict.fromkeys((*self.bounded, *other.bounded))),
            groups=tuple(dict.fromkeys((*self.groups, *other.groups))),
        )


class MoveEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One move and its phase. A value: every event makes another one."""

    move: Move
    sent_at: float
    """When its eviction was sent, in seconds on the caller's clock; before that, when it was chosen or recorded."""
    phase: MovePhase
    phase_since: float
    known: frozenset[str]
    """UIDs of pods that are not the replacement: its controller had them before, or they replace others."""
    number: int = 0
    """It increases with each move that is chosen, sent or recovered."""
    sent_time: float = 0.0
    """The same time as `sent_at` in seconds since the epoch, for the next leader."""
    newest: datetime = LEAVING_SINCE
    """When the newest of its controller's earlier pods was created, by the API server's clock."""
    replacement: Pod | None = None
    placed_at: float | None = None
    """When a replacement, this one or an earlier one, first had a node. Several that fail one after another get no more
    time than one."""
    is_bereft: bool = False
    """Whether a replacement was deleted or has failed."""
    ours: bool = True
    """Whether it may be sent again if it is not known to be made. Not if another process started it and our rules now
    forbid it."""
    wanted: bool = True
    """Whether its controller wants a replacement. It does not after a scale-down or in a rollout."""
    asked_at: float = -inf
    """When the API server was last asked about it, on the caller's clock."""
    counts: Counting | None = None
    """What it counts for, until it is certain whether it was made. Then it is counted for good, or not at all."""
    doubted_at: float | None = None
    """When a request for it may have been sent last, if it is not certain whether one was accepted; else None."""
    ended: Ended | None = None
    """While its replacement is to stay Ready: how it has ended."""
    lingers: bool = False
    """Whether the pod may still be being deleted, although the move is over."""

    @property
    def uid(self) -> str:
        """The UID of the evicted pod."""
        return self.move.pod.uid

    @property
    def time_sent(self) -> datetime:
        """When the eviction was sent, with a time zone."""
        return datetime.fromtimestamp(self.sent_time, UTC)

    @property
    def is_in_flight(self) -> bool:
        """Whether the pod is evicted, or may be, and its replacement is not Ready yet."""
        return MovePhase.OWED <= self.phase <= MovePhase.PLACED

    @property
    def is_owed(self) -> bool:
        """Whether it was refused although others of its step were made."""
        return self.phase is MovePhase.OWED

    @property
    def may_be_unmade(self) -> bool:
        """Whether it is in flight, and its eviction may not have been made."""
        return MovePhase.OWED <= self.phase <= MovePhase.SENT


def controller_uid_of(move: Move) -> str:
    """Return the UID of a pod's controller, or an empty string."""
    return "" if move.pod.controller is None else move.pod.controller.uid


def pods_of(snapshot: ClusterSnapshot, namespace: str, controller_uid: str) -> PodsByName:
    """Return a controller's pods, by name."""
    return snapshot.pods_by_controller.get(namespace, _NONE).get(controller_uid, _NO_PODS)


def waiting(entry: MoveEntry, ready_seconds: Mapping[str, float]) -> tuple[float, float]:
    """Return since when a move waits in its phase, on the clock, and how many seconds it may.

    `ready_seconds` is how long a replacement on a node may take until it is Ready, by policy, and else `STEP_SECONDS`.
    """
    if entry.placed_at is not None:
        return entry.placed_at, ready_seconds.get(entry.move.policy, STEP_SECONDS)
    if entry.phase <= MovePhase.SENT:
        return entry.phase_since, UNCONFIRMED_SECONDS
    if entry.phase is MovePhase.LEAVING and is_stateful(entry):
        return entry.phase_since, TERMINATION_SECONDS
    return entry.phase_since, STEP_SECONDS


def still_there(snapshot: ClusterSnapshot, pod: Pod) -> Pod | None:
    """Return a pod from the snapshot, unless it is terminating, finished, gone or another pod of that name."""
    current = snapshot.pods.get(pod.key)
    return current if current is not None and current.uid == pod.uid and is_active(current) else None


def as_shown(pod: Pod, snapshot: ClusterSnapshot) -> Pod:
    """Return a pod in flight as the watch shows it, one that is gone as terminating: for a `BudgetBook`."""
    return still_there(snapshot, pod) or msgspec.structs.replace(pod, deletion_timestamp=LEAVING_SINCE)


def is_stateful(entry: MoveEntry) -> bool:
    """Whether the replacement has the evicted pod's name and is created only after that is gone."""
    controller = entry.move.pod.controller
    return controller is not None and controller.kind == "StatefulSet"


def is_late(entry: MoveEntry, now: float) -> bool:
    """Whether a replacement should exist, or have a node, by now: something prevents it that no plan knows of."""
    if entry.phase is MovePhase.LEAVING:
        is_expected = entry.wanted and not is_stateful(entry)
    else:
        is_expected = entry.phase is MovePhase.REPLACED and not will_need_a_node(entry)
    return is_expected and now - entry.phase_since >= PLACED_SECONDS


def will_need_a_node(entry: MoveEntry) -> bool:
    """Whether the replacement does not look for a node yet and will: it is to come, or has scheduling gates."""
    if (replacement := entry.replacement) is None:
        return entry.wanted
    return not replacement.node_name and replacement.spec.has_scheduling_gates


def at_phase(entry: MoveEntry, phase: MovePhase, now: float) -> MoveEntry:
    """Return a move in another phase, which starts now."""
    return msgspec.structs.replace(entry, phase=phase, phase_since=now)


def certain_at(entry: MoveEntry) -> float:
    """Return when it can be found out whether a move was made that is in doubt."""
    since = -inf if entry.doubted_at is None else entry.doubted_at
    return max(since + CERTAIN_SECONDS, entry.asked_at + AGAIN_SECONDS)


class LedgerDraft(msgspec.Struct, eq=False):
    """The moves of a ledger while it changes. It belongs to one event."""

    entries: Map[str, MoveEntry]
    of_controller: Map[str, Map[str, None]]
    number: int
    """That of the next one."""

    def put(self, entry: MoveEntry) -> None:
        """Set the state of a move. One that is new, or comes into flight, is the last one."""
        before = self.entries.get(entry.uid)
        was_in_flight = before is not None and before.is_in_flight
        if before is None or (entry.is_in_flight and not was_in_flight):
            entry = msgspec.structs.replace(entry, number=self.number)
            self.number += 1
        self.entries = self.entries.set(entry.uid, entry)
        if entry.is_in_flight != was_in_flight:
            self._file(entry, is_in_flight=entry.is_in_flight)

    def drop(self, uid: str) -> None:
        """Remove a move, if it is there."""
        if (entry := self.entries.get(uid)) is not None:
            self.entries = self.entries.delete(uid)
            if entry.is_in_flight:
                self._file(entry, is_in_flight=False)

    def leave(self, entry: MoveEntry) -> None:
        """Set that a move is not under way any more. It stays if it may count all the same."""
        counts = entry.phase is not MovePhase.CHOSEN or entry.doubted_at is not None
        if entry.counts is not None and counts:
            self.put(msgspec.structs.replace(entry, phase=MovePhase.UNCERTAIN))
        else:
            self.drop(entry.uid)

    def settle(self, entry: MoveEntry) -> None:
        """Set that a move does not count any more until something is certain."""
        phase = MovePhase.OVER if entry.phase is MovePhase.UNCERTAIN else entry.phase
        self.keep(msgspec.structs.replace(entry, phase=phase, counts=None, doubted_at=None))

    def keep(self, entry: MoveEntry) -> None:
        """Set the state of a move, or remove it if nothing more is to be known of it."""
        if entry.phase is MovePhase.OVER and entry.counts is None and not entry.lingers:
            self.drop(entry.uid)
        else:
            self.put(entry)

    def _file(self, entry: MoveEntry, *, is_in_flight: bool) -> None:
        controller = controller_uid_of(entry.move)
        mine = self.of_controller.get(controller, Map())
        mine = mine.set(entry.uid, None) if is_in_flight else mine.delete(entry.uid)
        self.of_controller = self.of_controller.set(controller, mine) if mine else self.of_controller.delete(controller)
