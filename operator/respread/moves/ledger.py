"""The ledger: every move from its choice to its end, as one value.

Events go in, and a new ledger comes out. Plans, limits, budgets, records, metrics and the next wake-up are views of it.

From its choice on, a move's pod counts as gone whatever the watch says, so that no plan restores the same skew again,
and limits count it. A move ends when its replacement is Ready, when none will come, or when Respread gives up on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.differences import changed_keys
from respread.cluster.grouped_pods import PodsByName
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.moves.entry import (
    LEAVING_SINCE,
    Compare,
    Ended,
    MoveEntry,
    MovePhase,
    Patience,
    as_shown,
    at_phase,
    controller_uid_of,
    is_late,
    pods_of,
    still_there,
    waiting,
    will_need_a_node,
)
from respread.moves.following import Knowing, ReplacementPods, end_of, followed
from respread.planning.plan import Move

EXCHANGED_SECONDS: Final = 60.0
"""For how long it is known which pod has replaced which: longer than a plan is carried out."""
_BY_NUMBER: Final = attrgetter("number")


class UnderWay(NamedTuple):
    """A cluster, with what moves in flight mean for planning."""

    snapshot: ClusterSnapshot
    """All pods of moves are terminating in it."""
    in_flight: tuple[Pod, ...]
    """The pods of moves as the watch shows them, and gone ones as terminating: for a `BudgetLedger`."""
    unreplaced: tuple[Pod, ...]
    """Pods whose replacements will exist, or exist and have scheduling gates. Each of these needs a place."""
    replacements: tuple[Pod, ...] = ()
    """The replacements that exist and have no node yet, with and without scheduling gates."""
    late: tuple[Pod, ...] = ()
    """Pods whose replacements should have a node by now."""


class Exchanged(NamedTuple):
    """A pod that a move has replaced lately."""

    controller: str
    """The UID of its controller."""
    replacement: str
    """The UID of the pod that replaces it."""
    at: float
    """When the move ended, on the caller's clock."""


class _Siblings(NamedTuple):
    """The pods of a controller at one moment, which moves sent then know."""

    names: PodsByName
    arrived: frozenset[str]
    """The UIDs of those that have replaced others lately."""
    uids: frozenset[str]
    newest: datetime


class Ledger(msgspec.Struct, frozen=True, dict=True):
    """All moves. A value: every event returns another one that shares unchanged parts."""

    patience: Patience = Patience()
    _entries: Map[str, MoveEntry] = Map()
    """By the UID of the evicted pod."""
    _of_controller: Map[str, Map[str, None]] = Map()
    """The same UIDs of the moves in flight, by that of the pods' controller."""
    _siblings: Map[str, _Siblings] = Map()
    """By the UID of the controller, as they were when one of its pods was last chosen or evicted."""
    _number: int = 0
    """The number of the next one."""
    _exchanged: Map[str, Exchanged] = Map()
    """By the UID of the evicted pod: what ended since the oldest plan that may still be carried out."""

    def __len__(self) -> int:
        """Return the number of moves in flight."""
        return len(self.in_flight)

    def __contains__(self, move: Move) -> bool:
        """Return whether a move is in flight."""
        return (entry := self._of(move)) is not None and entry.is_in_flight

    @cached_property
    def in_flight(self) -> tuple[MoveEntry, ...]:
        """The moves whose evictions were sent, in that order, until their replacements are Ready."""
        return tuple(sorted((each for each in self._entries.values() if each.is_in_flight), key=_BY_NUMBER))

    @cached_property
    def chosen(self) -> tuple[MoveEntry, ...]:
        """The moves whose evictions are not sent yet, in the order in which they were chosen."""
        return tuple(sorted((each for each in self._entries.values() if not each.is_in_flight), key=_BY_NUMBER))

    @property
    def under_way(self) -> tuple[MoveEntry, ...]:
        """The moves in flight and those about to be: for plans and limits, all of their pods are gone."""
        return self.in_flight + self.chosen

    @property
    def on_record(self) -> tuple[MoveEntry, ...]:
        """The moves that every record contains: those in flight, and those that may be at any moment."""
        return self.in_flight + tuple(each for each in self.chosen if each.phase is MovePhase.RECORDED)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves under way."""
        return tuple(each.move for each in self.under_way)

    # Events

    def with_chosen(self, moves: Iterable[Move], snapshot: ClusterSnapshot, now: float, time: float = 0.0) -> Ledger:
        """Record moves that a reconcile has chosen.

        Args:
            moves: the moves.
            snapshot: the cluster for which they were planned. Its pods are not their replacements.
            now: seconds on the caller's clock.
            time: the same in seconds since the epoch.
        """
        ledger = self
        for move in moves:
            ledger = ledger._begun(move, MovePhase.CHOSEN, snapshot, now, time)
        return ledger

    def recorded(self, move: Move) -> Ledger:
        """Record that every record that is written from now on contains a chosen move."""
        entry = self._of(move)
        if entry is None or entry.phase is not MovePhase.CHOSEN:
            return self
        return self._with(msgspec.structs.replace(entry, phase=MovePhase.RECORDED))

    def forgotten(self, move: Move) -> Ledger:
        """Record that a chosen move will not be sent. One that was sent stays."""
        return self if move in self else self.without(move)

    def sent(self, move: Move, snapshot: ClusterSnapshot, now: float, time: float = 0.0) -> Ledger:
        """Record a move right before its eviction is sent. It is the last one then.

        Args:
            move: the move.
            snapshot: the cluster as known at that time. Its pods are not the replacement.
            now: seconds on the caller's clock.
            time: the same in seconds since the epoch.
        """
        return self.without(move)._begun(move, MovePhase.SENT, snapshot, now, time)  # noqa: SLF001 - our own class

    def answered(self, move: Move, made: bool | None, now: float) -> Ledger:
        """Record the API server's answer to a move's eviction.

        Args:
            move: the move.
            made: whether the pod was evicted; None if it may have been.
            now: seconds on the caller's clock.
        """
        if made is False:
            return self.without(move)
        entry, phase = self._of(move), MovePhase.EVICTED if made else MovePhase.SENT
        return self if entry is None or entry.phase >= phase else self._with(at_phase(entry, phase, now))

    def owed(self, move: Move) -> Ledger:
        """Record that a sent move was refused, and is owed, because others of its step are made."""
        entry = self._of(move)
        return self if entry is None else self._with(msgspec.structs.replace(entry, phase=MovePhase.OWED))

    def phase_of(self, move: Move) -> MovePhase | None:
        """Return the phase of a move; None if it is not under way."""
        entry = self._of(move)
        return None if entry is None else entry.phase

    def is_owed(self, move: Move) -> bool:
        """Return whether a move was refused although others of its step were made."""
        return self.phase_of(move) is MovePhase.OWED

    def may_be_unmade(self, move: Move) -> bool:
        """Return whether the eviction of a move in flight may not have been made."""
        entry = self._of(move)
        return entry is not None and entry.may_be_unmade

    def sent_at(self, move: Move) -> float:
        """Return when a move in flight was sent, on the caller's clock."""
        return self._entries[move.pod.uid].sent_at

    def patient(self, patience: Patience) -> Ledger:
        """Return the same moves with other time limits."""
        return self if patience == self.patience else msgspec.structs.replace(self, patience=patience)

    def resumed(self, entries: Iterable[MoveEntry]) -> Ledger:
        """Return these moves as all that are in flight, with the known state of known ones.

        A record may contain a pod twice, and so may those of two policies. A pod is evicted once.
        """
        known = {each.uid: each for each in self.in_flight}
        each_once = {each.uid: known.get(each.uid, each) for each in entries}
        others = {uid: each for uid, each in self._entries.items() if not each.is_in_flight and uid not in each_once}
        of_controller: dict[str, dict[str, None]] = {}
        for number, (uid, each) in enumerate(each_once.items()):
            others[uid] = msgspec.structs.replace(each, number=number) if each.number != number else each
            of_controller.setdefault(controller_uid_of(each.move), {})[uid] = None
        return msgspec.structs.replace(
            self,
            _entries=Map(others),
            _of_controller=Map({controller: Map(uids) for controller, uids in of_controller.items()}),
            _siblings=Map(),
            _number=max(self._number, len(each_once)),
            _exchanged=Map(),
        )

    def unanswered(self, now: float, least_seconds: float) -> tuple[Move, ...]:
        """Return the moves to send again: sent without an answer, or owed.

        Args:
            now: seconds on the caller's clock.
            least_seconds: the minimum time since they were sent. Moves about to be given up on are excluded.
        """
        most_seconds = self.patience.unconfirmed_seconds
        return tuple(
            each.move
            for each in self.in_flight
            if each.ours and each.may_be_unmade and least_seconds <= now - each.sent_at < most_seconds
        )

    def without(self, move: Move) -> Ledger:
        """Return all except one."""
        return self._without(move.pod.uid)

    def not_wanted(self, move: Move) -> Ledger:
        """Record that a move's controller wants no more pods: if it has no replacement, the move is over."""
        entry = self._of(move)
        return self if entry is None else self._with(msgspec.structs.replace(entry, wanted=False))

    def unreplaced_since(self, moment: float) -> tuple[Move, ...]:
        """Return the moves whose pods have been leaving since a time, on the caller's clock, without a replacement."""
        return tuple(
            each.move for each in self.in_flight if each.phase is MovePhase.LEAVING and each.phase_since <= moment
        )

    def updated(self, snapshot: ClusterSnapshot, now: float, compare: Compare) -> tuple[Ledger, tuple[Ended, ...]]:
        """Take over a snapshot, and return the moves that are over.

        Args:
            snapshot: the cluster as the watch shows it, not from `overlay`.
            now: seconds on the caller's clock.
            compare: called for each replacement that is Ready.
        """
        going_on: list[MoveEntry] = []
        over: list[Ended] = []
        replacements = ReplacementPods(snapshot, self.replacements)
        for before in self.in_flight:
            entry = followed(before, snapshot, now, replacements)
            if (ended := end_of(entry, now, self.patience, compare)) is not None:
                over.append(ended)
            else:
                going_on.append(entry)
        made = {_step_of(entry) for entry in going_on if entry.phase is not MovePhase.OWED}
        knowing = Knowing(over)
        after = [
            knowing.of(entry) for entry in going_on if entry.phase is not MovePhase.OWED or _step_of(entry) in made
        ]
        ledger = self._with_in_flight(after)
        return (self, ()) if ledger is self else (ledger._exchanging(over, now), tuple(over))  # noqa: SLF001 - our own class

    def since(self, before: Ledger) -> tuple[list[Move], list[Move]]:
        """Return the moves that were not in flight before, and those that are not any more."""
        began: list[Move] = []
        ended: list[Move] = []
        for uid in changed_keys(before._entries, self._entries):
            was, now = (each._entries.get(uid) for each in (before, self))  # noqa: SLF001 - our own class
            was_in_flight, is_in_flight = was is not None and was.is_in_flight, now is not None and now.is_in_flight
            if now is not None and is_in_flight and not was_in_flight:
                began.append(now.move)
            if was is not None and was_in_flight and not is_in_flight:
                ended.append(was.move)
        return began, ended

    def overlay(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the snapshot with all pods of moves terminating since their evictions were sent, for planning."""
        state = ClusterState(snapshot)
        state.apply(
            "pods",
            [
                (pod.key, msgspec.structs.replace(pod, deletion_timestamp=each.time_sent))
                for each in self.under_way
                if (pod := still_there(snapshot, each.move.pod)) is not None
            ],
        )
        return state.snapshot

    def pods(self, snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
        """Return the pods of moves as the watch shows them, gone ones as terminating: for a `BudgetLedger`."""
        return tuple(as_shown(each.move.pod, snapshot) for each in self.under_way)

    def for_planning(self, snapshot: ClusterSnapshot, now: float = 0.0) -> UnderWay:
        """Return the cluster for planning.

        Args:
            snapshot: the cluster as the watch shows it, which `updated` was called with.
            now: seconds on the caller's clock.
        """
        return UnderWay(
            snapshot=self.overlay(snapshot),
            in_flight=self.pods(snapshot),
            unreplaced=tuple(each.move.pod for each in self.under_way if will_need_a_node(each)),
            replacements=tuple(
                each.replacement
                for each in self.in_flight
                if each.replacement is not None and not each.replacement.node_name
            ),
            late=tuple(each.move.pod for each in self.in_flight if is_late(each, now)),
        )

    @property
    def replacements(self) -> frozenset[str]:
        """The UIDs of the existing replacements of pods in flight."""
        return frozenset(each.replacement.uid for each in self.in_flight if each.replacement is not None)

    @cached_property
    def uncertain(self) -> bool:
        """Whether an eviction was sent that may still be on its way."""
        return any(each.phase is MovePhase.SENT for each in self.in_flight)

    @cached_property
    def unmade(self) -> bool:
        """Whether a move in flight may not have been made. `unanswered` will return it sooner or later."""
        return any(each.ours and each.may_be_unmade for each in self.in_flight)

    def leaving(self, controller_uid: str) -> frozenset[str]:
        """Return the UIDs of a controller's pods in flight."""
        return frozenset(self._of_controller.get(controller_uid, ()))

    def exchanged(self, controller_uid: str) -> Mapping[str, str]:
        """Return a controller's pods that moves have replaced lately, by UID, with the UIDs of the replacements."""
        return {uid: each.replacement for uid, each in self._exchanged.items() if each.controller == controller_uid}

    def unreplaced(self, controller_uid: str, shown: Collection[str]) -> int:
        """Return how many of a controller's pods in flight have no replacement among some pods, by their UIDs.

        Args:
            controller_uid: the UID of the controller.
            shown: the UIDs of its pods, as they were known at some moment, maybe before other evictions.
        """
        replacements = (self._entries[uid].replacement for uid in self._of_controller.get(controller_uid, ()))
        return sum(each is None or each.uid not in shown for each in replacements)

    def next_deadline(self) -> float | None:
        """Return when `updated` may end a move without an event; None if no move is in flight."""
        return min((sum(waiting(each, self.patience)) for each in self.in_flight), default=None)

    def _of(self, move: Move) -> MoveEntry | None:
        return self._entries.get(move.pod.uid)

    def _begun(self, move: Move, phase: MovePhase, snapshot: ClusterSnapshot, now: float, time: float) -> Ledger:
        """Return the ledger with a move as one whose pod's controller has the pods of a snapshot."""
        controller = controller_uid_of(move)
        siblings = self._siblings_in(snapshot, move.pod.namespace, controller)
        entry = MoveEntry(
            move=move,
            sent_at=now,
            phase=phase,
            phase_since=now,
            known=siblings.uids if move.pod.uid in siblings.uids else siblings.uids | {move.pod.uid},
            sent_time=time,
            newest=siblings.newest,
        )
        return msgspec.structs.replace(self._with(entry), _siblings=self._siblings.set(controller, siblings))

    def _with(self, entry: MoveEntry) -> Ledger:
        """Return all with the new state of one of them. A new one is the last."""
        before = self._entries.get(entry.uid)
        if before is not None and before.is_in_flight == entry.is_in_flight:
            return msgspec.structs.replace(self, _entries=self._entries.set(entry.uid, entry))
        of_controller, controller = self._of_controller, controller_uid_of(entry.move)
        if entry.is_in_flight:
            of_controller = of_controller.set(controller, of_controller.get(controller, Map()).set(entry.uid, None))
        return msgspec.structs.replace(
            self,
            _entries=self._entries.set(entry.uid, msgspec.structs.replace(entry, number=self._number)),
            _of_controller=of_controller,
            _number=self._number + 1,
        )

    def _without(self, uid: str) -> Ledger:
        entry = self._entries.get(uid)
        if entry is None:
            return self
        of_controller = self._of_controller
        if entry.is_in_flight:
            controller = controller_uid_of(entry.move)
            left = of_controller[controller].delete(uid)
            of_controller = of_controller.set(controller, left) if left else of_controller.delete(controller)
        return msgspec.structs.replace(self, _entries=self._entries.delete(uid), _of_controller=of_controller)

    def _with_in_flight(self, after: Sequence[MoveEntry]) -> Ledger:
        """Return the ledger with these as all moves in flight: some of those that were, in the same order."""
        ledger = self
        for entry in after:
            if entry is not self._entries[entry.uid]:
                ledger = ledger._with(entry)
        for uid in {each.uid for each in self.in_flight}.difference(each.uid for each in after):
            ledger = ledger._without(uid)  # noqa: SLF001
        return ledger

    def _exchanging(self, over: Iterable[Ended], now: float) -> Ledger:
        """Return the ledger that knows for a while what replaced the pods of moves that are over."""
        exchanged = Map({uid: each for uid, each in self._exchanged.items() if now - each.at < EXCHANGED_SECONDS})
        for ended in over:
            if ended.replacement is not None:
                pod, uid = ended.move.pod, controller_uid_of(ended.move)
                exchanged = exchanged.set(pod.uid, Exchanged(uid, ended.replacement.uid, now))
        return msgspec.structs.replace(self, _siblings=Map(), _exchanged=exchanged)

    def _siblings_in(self, snapshot: ClusterSnapshot, namespace: str, controller_uid: str) -> _Siblings:
        """Return the pods that replace none that is evicted now: of a snapshot, and what has come since for others."""
        names, arrived = (
            pods_of(snapshot, namespace, controller_uid),
            frozenset(self.exchanged(controller_uid).values()),
        )
        known = self._siblings.get(controller_uid)
        if known is not None and known.names is names and known.arrived == arrived:
            return known
        created = (each.creation_timestamp or LEAVING_SINCE for each in names.values())
        uids = arrived.union(each.uid for each in names.values())
        return _Siblings(names, arrived, uids, max(created, default=LEAVING_SINCE))


def _step_of(entry: MoveEntry) -> tuple[int, int]:
    return entry.move.component, entry.move.step
