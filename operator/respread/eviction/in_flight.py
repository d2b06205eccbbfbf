"""Moves in flight: the pod is evicted, or may be, and its replacement is not Ready yet.

Until a move has ended, its pod counts as gone whatever the watch says, so that no plan restores the same skew again,
and limits count it. A move ends when its replacement is Ready, when none will come, or when Respread gives up on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from operator import is_, itemgetter
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.differences import changed_keys
from respread.cluster.grouped_pods import PodsByName
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.eviction.answers import Answer
from respread.eviction.flight import (
    LEAVING_SINCE,
    Ended,
    Flight,
    Patience,
    Stage,
    as_shown,
    at_stage,
    controller_uid_of,
    is_late,
    pods_of,
    still_there,
    waiting,
    will_need_a_node,
)
from respread.eviction.following import Knowing, ReplacementPods, end_of, followed
from respread.eviction.outcomes import Compare
from respread.planning.plan import Move

EXCHANGED_SECONDS: Final = 60.0
"""For how long it is known which pod has replaced which: longer than a plan is carried out."""


class UnderWay(NamedTuple):
    """A cluster, with what moves in flight mean for planning."""

    snapshot: ClusterSnapshot
    """All pods in flight are terminating in it."""
    in_flight: tuple[Pod, ...]
    """The pods in flight as the watch shows them, and gone ones as terminating: for a `BudgetLedger`."""
    unreplaced: tuple[Pod, ...]
    """Pods whose replacements will exist, or exist and have scheduling gates. Each of these needs a place."""
    replacements: tuple[Pod, ...] = ()
    """The replacements that exist and have no node yet, with and without scheduling gates."""
    late: tuple[Pod, ...] = ()
    """Pods whose replacements should have a node by now."""


class _Entry(NamedTuple):
    number: int
    """It increases with each move that is sent."""
    flight: Flight


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


class InFlight(msgspec.Struct, frozen=True, dict=True):
    """All moves in flight. A value: every change returns another one that shares unchanged parts."""

    patience: Patience = Patience()
    _entries: Map[str, _Entry] = Map()
    """By the UID of the evicted pod."""
    _of_controller: Map[str, Map[str, None]] = Map()
    """The same UIDs by that of the pods' controller."""
    _siblings: Map[str, _Siblings] = Map()
    """By the UID of the controller, as they were when one of its pods was last evicted."""
    _number: int = 0
    """The number of the next one."""
    _exchanged: Map[str, Exchanged] = Map()
    """By the UID of the evicted pod: what ended since the oldest plan that may still be carried out."""

    def __len__(self) -> int:
        """Return the number of moves in flight."""
        return len(self._entries)

    def __contains__(self, move: Move) -> bool:
        """Return whether a move is in flight."""
        return move.pod.uid in self._entries

    @cached_property
    def flights(self) -> tuple[Flight, ...]:
        """The state of each move, in the order in which they were sent."""
        return tuple(flight for _, flight in sorted(self._entries.values(), key=itemgetter(0)))

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves in flight."""
        return tuple(flight.move for flight in self.flights)

    def sent(self, move: Move, snapshot: ClusterSnapshot, now: float, time: float = 0.0) -> InFlight:
        """Record a move right before its eviction is sent.

        Args:
            move: the move.
            snapshot: the cluster as known at that time. Its pods are not the replacement.
            now: seconds on the caller's clock.
            time: the same in seconds since the epoch.
        """
        controller = controller_uid_of(move)
        siblings = self._siblings_in(snapshot, move.pod.namespace, controller)
        flight = Flight(
            move=move,
            sent_at=now,
            stage=Stage.SENT,
            stage_since=now,
            known=siblings.uids if move.pod.uid in siblings.uids else siblings.uids | {move.pod.uid},
            sent_time=time,
            newest=siblings.newest,
        )
        noted = self.without(move)._with(flight)  # noqa: SLF001 - our own class
        return msgspec.structs.replace(noted, _siblings=self._siblings.set(controller, siblings))

    def answered(self, move: Move, answer: Answer | None, now: float) -> InFlight:
        """Record the API server's answer to a move's eviction.

        Args:
            move: the move.
            answer: its answer; None if the eviction was held after all, and not sent.
            now: seconds on the caller's clock.
        """
        if answer is None or not answer.may_have_evicted:
            return self.without(move)
        flight = self._of(move)
        stage = Stage.EVICTED if answer.evicted else Stage.SENT
        return self if flight is None or flight.stage >= stage else self._with(at_stage(flight, stage, now))

    def owed(self, move: Move) -> InFlight:
        """Record that a sent move was refused, and is owed, because others of its step are made."""
        flight = self._of(move)
        return self if flight is None else self._with(msgspec.structs.replace(flight, stage=Stage.OWED))

    def is_owed(self, move: Move) -> bool:
        """Return whether a move was refused although others of its step were made."""
        flight = self._of(move)
        return flight is not None and flight.stage is Stage.OWED

    def may_be_unmade(self, move: Move) -> bool:
        """Return whether the eviction of a move in flight may not have been made."""
        flight = self._of(move)
        return flight is not None and flight.stage <= Stage.SENT

    def sent_at(self, move: Move) -> float:
        """Return when a move in flight was sent, on the caller's clock."""
        return self._entries[move.pod.uid].flight.sent_at

    def patient(self, patience: Patience) -> InFlight:
        """Return the same moves with other time limits."""
        return self if patience == self.patience else msgspec.structs.replace(self, patience=patience)

    def resumed(self, flights: Iterable[Flight]) -> InFlight:
        """Return these moves as all that are in flight, with the known state of known ones.

        A record may contain a pod twice, and so may those of two policies. A pod is evicted once.
        """
        each_once = {each.uid: self._of(each.move) or each for each in flights}
        return _in_flight(self.patience, tuple(each_once.values()))

    def unanswered(self, now: float, least_seconds: float) -> tuple[Move, ...]:
        """Return the moves to send again: sent without an answer, or owed.

        Args:
            now: seconds on the caller's clock.
            least_seconds: the minimum time since they were sent. Moves about to be given up on are excluded.
        """
        most_seconds = self.patience.unconfirmed_seconds
        return tuple(
            each.move
            for each in self.flights
            if each.ours and each.stage <= Stage.SENT and least_seconds <= now - each.sent_at < most_seconds
        )

    def without(self, move: Move) -> InFlight:
        """Return all except one."""
        flight = self._of(move)
        if flight is None:
            return self
        controller = controller_uid_of(flight.move)
        left = self._of_controller[controller].delete(flight.uid)
        return msgspec.structs.replace(
            self,
            _entries=self._entries.delete(flight.uid),
            _of_controller=(
                self._of_controller.set(controller, left) if left else self._of_controller.delete(controller)
            ),
        )

    def not_wanted(self, move: Move) -> InFlight:
        """Record that a move's controller wants no more pods: if it has no replacement, the move is over."""
        flight = self._of(move)
        return self if flight is None else self._with(msgspec.structs.replace(flight, wanted=False))

    def unreplaced_since(self, moment: float) -> tuple[Move, ...]:
        """Return the moves whose pods have been leaving since a time, on the caller's clock, without a replacement."""
        return tuple(each.move for each in self.flights if each.stage is Stage.LEAVING and each.stage_since <= moment)

    def updated(self, snapshot: ClusterSnapshot, now: float, compare: Compare) -> tuple[InFlight, tuple[Ended, ...]]:
        """Take over a snapshot, and return the moves that are over.

        Args:
            snapshot: the cluster as the watch shows it, not from `overlay`.
            now: seconds on the caller's clock.
            compare: called for each replacement that is Ready.
        """
        going_on: list[Flight] = []
        over: list[Ended] = []
        replacements = ReplacementPods(snapshot, self.replacements)
        for before in self.flights:
            flight = followed(before, snapshot, now, replacements)
            if (ended := end_of(flight, now, self.patience, compare)) is not None:
                over.append(ended)
            else:
                going_on.append(flight)
        made = {_step_of(flight) for flight in going_on if flight.stage is not Stage.OWED}
        knowing = Knowing(over)
        exchanged = self._exchanged
        for uid, each in self._exchanged.items():
            if now - each.at >= EXCHANGED_SECONDS:
                exchanged = exchanged.delete(uid)
        for ended in over:
            if ended.replacement is not None:
                pod, uid = ended.move.pod, controller_uid_of(ended.move)
                exchanged = exchanged.set(pod.uid, Exchanged(uid, ended.replacement.uid, now))
        after = [
            knowing.of(flight) for flight in going_on if flight.stage is not Stage.OWED or _step_of(flight) in made
        ]
        if len(after) == len(self.flights) and all(map(is_, after, self.flights)):
            return self, ()
        return msgspec.structs.replace(_in_flight(self.patience, after), _exchanged=exchanged), tuple(over)

    def since(self, before: InFlight) -> tuple[list[Move], list[Move]]:
        """Return the moves that were not under way before, and those that are not any more."""
        keys = changed_keys(before._entries, self._entries)
        began = [self._entries[uid].flight.move for uid in keys if uid not in before._entries]
        ended = [before._entries[uid].flight.move for uid in keys if uid not in self._entries]
        return began, ended

    def overlay(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the snapshot with all pods in flight terminating since their evictions were sent, for planning."""
        state = ClusterState(snapshot)
        state.apply(
            "pods",
            [
                (pod.key, msgspec.structs.replace(pod, deletion_timestamp=flight.time_sent))
                for flight in self.flights
                if (pod := still_there(snapshot, flight.move.pod)) is not None
            ],
        )
        return state.snapshot

    def pods(self, snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
        """Return the pods in flight as the watch shows them, gone ones as terminating: for a `BudgetLedger`."""
        return tuple(as_shown(flight.move.pod, snapshot) for flight in self.flights)

    def for_planning(self, snapshot: ClusterSnapshot, now: float = 0.0) -> UnderWay:
        """Return the cluster for planning.

        Args:
            snapshot: the cluster as the watch shows it, which `updated` was called with.
            now: seconds on the caller's clock.
        """
        return UnderWay(
            snapshot=self.overlay(snapshot),
            in_flight=self.pods(snapshot),
            unreplaced=tuple(flight.move.pod for flight in self.flights if will_need_a_node(flight)),
            replacements=tuple(
                flight.replacement
                for flight in self.flights
                if flight.replacement is not None and not flight.replacement.node_name
            ),
            late=tuple(flight.move.pod for flight in self.flights if is_late(flight, now)),
        )

    @property
    def replacements(self) -> frozenset[str]:
        """The UIDs of the existing replacements of pods in flight."""
        return frozenset(each.replacement.uid for each in self.flights if each.replacement is not None)

    @cached_property
    def uncertain(self) -> bool:
        """Whether an eviction was sent that may still be on its way."""
        return any(flight.stage is Stage.SENT for flight in self.flights)

    @cached_property
    def unmade(self) -> bool:
        """Whether a move in flight may not have been made. `unanswered` will return it sooner or later."""
        return any(flight.ours and flight.stage <= Stage.SENT for flight in self.flights)

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
        replacements = (self._entries[uid].flight.replacement for uid in self._of_controller.get(controller_uid, ()))
        return sum(each is None or each.uid not in shown for each in replacements)

    def next_deadline(self) -> float | None:
        """Return when `updated` may end a move without an event; None if no move is in flight."""
        return min((sum(waiting(each, self.patience)) for each in self.flights), default=None)

    def _of(self, move: Move) -> Flight | None:
        entry = self._entries.get(move.pod.uid)
        return None if entry is None else entry.flight

    def _with(self, flight: Flight) -> InFlight:
        """Return all with the new state of one of them. A new one is the last."""
        entry = self._entries.get(flight.uid)
        if entry is not None:
            return msgspec.structs.replace(self, _entries=self._entries.set(flight.uid, _Entry(entry.number, flight)))
        controller = controller_uid_of(flight.move)
        of_controller = self._of_controller.get(controller, Map()).set(flight.uid, None)
        return msgspec.structs.replace(
            self,
            _entries=self._entries.set(flight.uid, _Entry(self._number, flight)),
            _of_controller=self._of_controller.set(controller, of_controller),
            _number=self._number + 1,
        )

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


def _in_flight(patience: Patience, flights: Sequence[Flight]) -> InFlight:
    """Return moves in their order."""
    of_controller: dict[str, dict[str, None]] = {}
    for flight in flights:
        of_controller.setdefault(controller_uid_of(flight.move), {})[flight.uid] = None
    return InFlight(
        patience,
        Map({flight.uid: _Entry(number, flight) for number, flight in enumerate(flights)}),
        Map({controller: Map(uids) for controller, uids in of_controller.items()}),
        _number=len(flights),
    )


def _step_of(flight: Flight) -> tuple[int, int]:
    return flight.move.component, flight.move.step
