"""Moves that are under way: the pod is evicted, or may be, and its replacement is not Ready yet.

Until a move has ended, its pod counts as gone whatever the watch says, so that no plan cures the same skew again; and
limits count it. A move ends when its replacement is Ready, when none will come, or when it is given up on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from operator import is_, itemgetter
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.eviction.answers import Answer
from respread.eviction.outcomes import FAILURES, Compare, Outcome
from respread.planning.plan import Move
from respread.planning.victims.controllers import is_active

_LEAVING_SINCE: Final = datetime.fromtimestamp(0, UTC)
"""The deletion timestamp of pods that the watch does not show terminating yet; only that there is one is ever read."""

_NO_PODS: Final[PodsByName] = Map()
_NONE: Final[Map[str, PodsByName]] = Map()


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a move may take before it is given up on, in seconds."""

    unconfirmed_seconds: float = 75.0
    """From an eviction without an answer until its pod, still there, is taken never to have been evicted. An API server
    carries a request on for at most a minute (`--request-timeout`)."""
    step_seconds: float = 300.0
    """From one step to the next: the pod is seen terminating, is replaced, the replacement has a node."""
    ready_seconds: Map[str, float] = Map()
    """From when a replacement has a node until one is Ready, by the name of the move's policy; `step_seconds` for a
    policy that is not there."""
    termination_seconds: float = 3600.0
    """For a StatefulSet's pod to be gone, since only then is it replaced."""

    @property
    def longest_seconds(self) -> float:
        """How long after it was sent a move may still be under way."""
        return self.unconfirmed_seconds + self.termination_seconds + 3 * self.step_seconds


class Stage(IntEnum):
    """How far a move has come."""

    OWED = 0
    """The eviction was refused although others of its step were made: it is to be asked for again."""
    SENT = 1
    """The eviction was sent; whether it was accepted is not known yet, or never will be."""
    EVICTED = 2
    LEAVING = 3
    """The watch shows the pod terminating or gone."""
    REPLACED = 4
    """The replacement exists."""
    PLACED = 5
    """The replacement has a node."""


_STILL_THERE: Final = {
    Stage.OWED: "its eviction was refused, though others that it was to go with were made",
    Stage.SENT: "no answer came to its eviction",
    Stage.EVICTED: "its eviction was accepted",
}


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """One move under way."""

    move: Move
    sent_at: float
    """Seconds on the caller's clock."""
    stage: Stage
    stage_since: float
    known: frozenset[str]
    """UIDs of pods that are not the replacement: its controller had them before, or they replace others."""
    sent_time: float = 0.0
    """The same moment as `sent_at` in seconds since the epoch: for whoever follows the move after us."""
    newest: datetime = _LEAVING_SINCE
    """When the newest of the pods that its controller had before was created, by the API server's clock."""
    replacement: Pod | None = None
    placed_at: float | None = None
    """When a replacement, this one or one before it, first had a node: those that fail one after another are not waited
    for longer than one."""
    ours: bool = True
    """Whether it may be asked for again where it is not known to be made: not if another process began it, and by our
    rules it should not have."""
    wanted: bool = True
    """Whether its controller wants a replacement; it does not after a scale-down, or in a rollout."""

    @property
    def uid(self) -> str:
        """The UID of the evicted pod."""
        return self.move.pod.uid


class UnderWay(NamedTuple):
    """A cluster with what moves under way mean for planning."""

    snapshot: ClusterSnapshot
    """All pods in flight are terminating in it."""
    in_flight: tuple[Pod, ...]
    """These as the watch shows them, gone ones as terminating: for a `BudgetLedger`."""
    unreplaced: tuple[Pod, ...]
    """Those whose replacements don't exist yet, and will: each of these needs a place."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is over."""

    move: Move
    outcome: Outcome
    replacement: Pod | None
    seconds: float
    """From the eviction until it was over."""
    message: str
    """How it ended, in a sentence."""
    unreplaced: bool = False
    """Whether the pod is gone and its controller brought back none, though it wants one."""

    @property
    def failed(self) -> bool:
        """Whether it left things no better, or worse, than they were; a scale-down in between is no failure."""
        return self.unreplaced or self.outcome in FAILURES


class _Entry(NamedTuple):
    number: int
    """It grows from each move that is sent to the next."""
    flight: Flight


class _Siblings(NamedTuple):
    """The pods of a controller at a moment: what moves that are sent then know."""

    names: PodsByName
    uids: frozenset[str]
    newest: datetime


class InFlight(msgspec.Struct, frozen=True, dict=True):
    """All moves under way. A value: every change returns another one, which shares with it what is the same."""

    patience: Patience = Patience()
    _entries: Map[str, _Entry] = Map()
    """By the UID of the evicted pod."""
    _of_controller: Map[str, Map[str, None]] = Map()
    """The same UIDs by that of the pods' controller."""
    _siblings: Map[str, _Siblings] = Map()
    """By the UID of the controller, as they were when one of its pods was last sent."""
    _number: int = 0
    """Of the next one to be sent."""

    def __len__(self) -> int:
        """Return how many moves are under way."""
        return len(self._entries)

    def __contains__(self, move: Move) -> bool:
        """Tell whether a move is under way."""
        return move.pod.uid in self._entries

    @cached_property
    def flights(self) -> tuple[Flight, ...]:
        """What is known of each, in the order they were sent."""
        return tuple(flight for _, flight in sorted(self._entries.values(), key=itemgetter(0)))

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves under way."""
        return tuple(flight.move for flight in self.flights)

    def sent(self, move: Move, snapshot: ClusterSnapshot, now: float, time: float = 0.0) -> InFlight:
        """Note a move right before its eviction is sent.

        Args:
            move: the move.
            snapshot: the cluster as it was known then; its pods are not the replacement.
            now: seconds on the caller's clock.
            time: the same in seconds since the epoch.
        """
        controller = _controller_uid(move)
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
        """Note what the API server said to a move's eviction.

        Args:
            move: the move.
            answer: its answer; None where the eviction was held back after all, and not sent.
            now: seconds on the caller's clock.
        """
        if answer is None or not answer.may_have_evicted:
            return self.without(move)
        flight = self._of(move)
        stage = Stage.EVICTED if answer.evicted else Stage.SENT
        return self if flight is None or flight.stage >= stage else self._with(_at(flight, stage, now))

    def owed(self, move: Move) -> InFlight:
        """Note that a move that was sent was refused, and is to be made all the same, others of its step being made."""
        flight = self._of(move)
        return self if flight is None else self._with(msgspec.structs.replace(flight, stage=Stage.OWED))

    def is_owed(self, move: Move) -> bool:
        """Tell whether a move was refused although others of its step were made."""
        flight = self._of(move)
        return flight is not None and flight.stage is Stage.OWED

    def sent_at(self, move: Move) -> float:
        """Return when a move under way was sent, on the caller's clock."""
        return self._entries[move.pod.uid].flight.sent_at

    def patient(self, patience: Patience) -> InFlight:
        """Return the same, waited for as long as another patience says."""
        return self if patience == self.patience else msgspec.structs.replace(self, patience=patience)

    def resumed(self, flights: Iterable[Flight]) -> InFlight:
        """Return these, which are all that are under way, with what is known here of those that were known before."""
        return _in_flight(self.patience, [self._of(each.move) or each for each in flights])

    def unanswered(self, now: float, least_seconds: float) -> tuple[Move, ...]:
        """Return the moves that are to be asked for again: sent and never answered, or owed.

        Args:
            now: seconds on the caller's clock.
            least_seconds: how long ago they were sent at least. Those that are to be given up on are left out.
        """
        most_seconds = self.patience.unconfirmed_seconds
        return tuple(
            each.move
            for each in self.flights
            if each.ours and each.stage <= Stage.SENT and least_seconds <= now - each.sent_at < most_seconds
        )

    def without(self, move: Move) -> InFlight:
        """Return all but one."""
        flight = self._of(move)
        if flight is None:
            return self
        controller = _controller_uid(flight.move)
        left = self._of_controller[controller].delete(flight.uid)
        return msgspec.structs.replace(
            self,
            _entries=self._entries.delete(flight.uid),
            _of_controller=(
                self._of_controller.set(controller, left) if left else self._of_controller.delete(controller)
            ),
        )

    def not_wanted(self, move: Move) -> InFlight:
        """Note that a move's controller has all the pods it wants: if it has no replacement, the move is over."""
        flight = self._of(move)
        return self if flight is None else self._with(msgspec.structs.replace(flight, wanted=False))

    def unreplaced_since(self, moment: float) -> tuple[Move, ...]:
        """Return the moves whose pods have been leaving since a moment, on the caller's clock, with no replacement."""
        return tuple(each.move for each in self.flights if each.stage is Stage.LEAVING and each.stage_since <= moment)

    def updated(self, snapshot: ClusterSnapshot, now: float, compare: Compare) -> tuple[InFlight, tuple[Ended, ...]]:
        """Take over what has happened, and return the moves that are over by it.

        Args:
            snapshot: the cluster as the watch shows it, not as `overlay` returns it.
            now: seconds on the caller's clock.
            compare: asked about each replacement that is Ready.
        """
        going_on: list[Flight] = []
        over: list[Ended] = []
        replacements = _Replacements(snapshot, self.replacements)
        for before in self.flights:
            flight = _followed(before, snapshot, now, replacements)
            if (ended := _end(flight, now, self.patience, compare)) is not None:
                over.append(ended)
            else:
                going_on.append(flight)
        made = {_step_of(flight) for flight in going_on if flight.stage is not Stage.OWED}
        knowing = _Knowing(over)
        after = [
            knowing.of(flight) for flight in going_on if flight.stage is not Stage.OWED or _step_of(flight) in made
        ]
        if len(after) == len(self.flights) and all(map(is_, after, self.flights)):
            return self, ()
        return _in_flight(self.patience, after), tuple(over)

    def overlay(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the snapshot with all pods in flight terminating, as planning has to see it."""
        state = ClusterState(snapshot)
        state.apply(
            "pods",
            [
                (pod.key, msgspec.structs.replace(pod, deletion_timestamp=_LEAVING_SINCE))
                for flight in self.flights
                if (pod := _still_there(snapshot, flight.move.pod)) is not None
            ],
        )
        return state.snapshot

    def pods(self, snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
        """Return the pods in flight as the watch shows them, gone ones as terminating: for a `BudgetLedger`."""
        return tuple(
            _still_there(snapshot, flight.move.pod)
            or msgspec.structs.replace(flight.move.pod, deletion_timestamp=_LEAVING_SINCE)
            for flight in self.flights
        )

    def for_planning(self, snapshot: ClusterSnapshot) -> UnderWay:
        """Return a cluster as planning has to see it.

        Args:
            snapshot: the cluster as the watch shows it, which `updated` was called with.
        """
        return UnderWay(
            snapshot=self.overlay(snapshot),
            in_flight=self.pods(snapshot),
            unreplaced=tuple(each.move.pod for each in self.flights if each.replacement is None and each.wanted),
        )

    @property
    def replacements(self) -> frozenset[str]:
        """The UIDs of the pods that replace those in flight, as far as they exist."""
        return frozenset(each.replacement.uid for each in self.flights if each.replacement is not None)

    @cached_property
    def uncertain(self) -> bool:
        """Whether an eviction was sent of which it is not known whether it is still on its way."""
        return any(flight.stage is Stage.SENT for flight in self.flights)

    @cached_property
    def unmade(self) -> bool:
        """Whether a move is under way that may not have been made: `unanswered` will have it sooner or later."""
        return any(flight.ours and flight.stage <= Stage.SENT for flight in self.flights)

    def leaving(self, controller_uid: str) -> frozenset[str]:
        """Return the UIDs of a controller's pods in flight."""
        return frozenset(self._of_controller.get(controller_uid, ()))

    def unreplaced(self, controller_uid: str) -> int:
        """Return how many of a controller's pods in flight have no replacement yet."""
        uids = self._of_controller.get(controller_uid, ())
        return sum(self._entries[uid].flight.replacement is None for uid in uids)

    def next_deadline(self) -> float | None:
        """Return when `updated` may end a move by time alone; None where no move is under way."""
        return min((sum(_waiting(each, self.patience)) for each in self.flights), default=None)

    def _of(self, move: Move) -> Flight | None:
        entry = self._entries.get(move.pod.uid)
        return None if entry is None else entry.flight

    def _with(self, flight: Flight) -> InFlight:
        """Return all, one of them as it is now; one that was not there is the last."""
        entry = self._entries.get(flight.uid)
        if entry is not None:
            return msgspec.structs.replace(self, _entries=self._entries.set(flight.uid, _Entry(entry.number, flight)))
        controller = _controller_uid(flight.move)
        of_controller = self._of_controller.get(controller, Map()).set(flight.uid, None)
        return msgspec.structs.replace(
            self,
            _entries=self._entries.set(flight.uid, _Entry(self._number, flight)),
            _of_controller=self._of_controller.set(controller, of_controller),
            _number=self._number + 1,
        )

    def _siblings_in(self, snapshot: ClusterSnapshot, namespace: str, controller_uid: str) -> _Siblings:
        names = _pods_of(snapshot, namespace, controller_uid)
        known = self._siblings.get(controller_uid)
        if known is not None and known.names is names:
            return known
        created = (each.creation_timestamp or _LEAVING_SINCE for each in names.values())
        return _Siblings(names, frozenset(each.uid for each in names.values()), max(created, default=_LEAVING_SINCE))


def _in_flight(patience: Patience, flights: Sequence[Flight]) -> InFlight:
    """Return moves in their order."""
    of_controller: dict[str, dict[str, None]] = {}
    for flight in flights:
        of_controller.setdefault(_controller_uid(flight.move), {})[flight.uid] = None
    return InFlight(
        patience,
        Map({flight.uid: _Entry(number, flight) for number, flight in enumerate(flights)}),
        Map({controller: Map(uids) for controller, uids in of_controller.items()}),
        _number=len(flights),
    )


class _Replacements:
    """The pods of a snapshot that may replace those in flight, looked at once for all moves that know the same."""

    __slots__ = ("_candidates", "_snapshot", "_taken")

    def __init__(self, snapshot: ClusterSnapshot, taken: Iterable[str]) -> None:
        self._snapshot = snapshot
        self._taken = set(taken)
        self._candidates: dict[tuple[str, int], tuple[frozenset[str], deque[Pod]]] = {}
        """By controller and the identity of what is known, which is held; the first one is the first to be taken."""

    def take(self, flight: Flight) -> Pod | None:
        """Return the replacement of a pod, which no other has then; None if there is none yet."""
        names = _pods_of(self._snapshot, flight.move.pod.namespace, _controller_uid(flight.move))
        if _is_stateful(flight):
            same = names.get(flight.move.pod.name)
            found = None if same is None or not self._may_replace(same, flight.known) else same
        else:
            found = self._first(names, flight)
        if found is not None:
            self._taken.add(found.uid)
        return found

    def _first(self, names: PodsByName, flight: Flight) -> Pod | None:
        at = (_controller_uid(flight.move), id(flight.known))
        if at not in self._candidates:
            new = [pod for pod in names.values() if self._may_replace(pod, flight.known)]
            new.sort(key=lambda pod: (pod.creation_timestamp or _LEAVING_SINCE, pod.name))
            self._candidates[at] = flight.known, deque(new)
        _, candidates = self._candidates[at]
        while candidates:
            pod = candidates.popleft()
            if pod.uid not in self._taken:
                return pod
        return None

    def _may_replace(self, pod: Pod, known: Collection[str]) -> bool:
        return pod.uid not in known and pod.uid not in self._taken and is_active(pod)


class _Knowing:
    """Lets moves know of the pods that replaced others, whose moves are over."""

    __slots__ = ("_known", "_replacing")

    def __init__(self, over: Iterable[Ended]) -> None:
        self._replacing: dict[str, set[str]] = {}
        """By controller."""
        self._known: dict[tuple[str, int], frozenset[str]] = {}
        """By controller and the identity of what was known, so that moves that knew the same still do."""
        for each in over:
            if each.replacement is not None:
                self._replacing.setdefault(_controller_uid(each.move), set()).add(each.replacement.uid)

    def of(self, flight: Flight) -> Flight:
        """Return a flight with all that it knows now."""
        controller = _controller_uid(flight.move)
        if (replacing := self._replacing.get(controller)) is None:
            return flight
        at = (controller, id(flight.known))
        if (known := self._known.get(at)) is None:
            known = self._known[at] = flight.known | replacing
        return msgspec.structs.replace(flight, known=known)


def _controller_uid(move: Move) -> str:
    """Return the UID of a pod's controller, or nothing if it has none."""
    return "" if move.pod.controller is None else move.pod.controller.uid


def _pods_of(snapshot: ClusterSnapshot, namespace: str, controller_uid: str) -> PodsByName:
    return snapshot.pods_by_controller.get(namespace, _NONE).get(controller_uid, _NO_PODS)


def _followed(flight: Flight, snapshot: ClusterSnapshot, now: float, replacements: _Replacements) -> Flight:
    """Return the flight with what the snapshot shows of its pod and its replacement."""
    if flight.stage < Stage.LEAVING:
        if _still_there(snapshot, flight.move.pod) is not None:
            return flight
        flight = _at(flight, Stage.LEAVING, now)
    flight = _with_replacement(flight, snapshot, now, replacements)
    if flight.replacement is not None and flight.replacement.node_name and flight.stage < Stage.PLACED:
        placed_at = now if flight.placed_at is None else flight.placed_at
        flight = msgspec.structs.replace(_at(flight, Stage.PLACED, now), placed_at=placed_at)
    return flight


def _with_replacement(flight: Flight, snapshot: ClusterSnapshot, now: float, replacements: _Replacements) -> Flight:
    if flight.replacement is not None:
        current = _still_there(snapshot, flight.replacement)
        if current is flight.replacement:
            return flight
        if current is not None:
            return msgspec.structs.replace(flight, replacement=current)
        # it failed or was deleted in its turn: its controller makes another one
        known = flight.known | {flight.replacement.uid}
        flight = msgspec.structs.replace(_at(flight, Stage.LEAVING, now), replacement=None, known=known)
    replacement = replacements.take(flight)
    return (
        flight
        if replacement is None
        else msgspec.structs.replace(_at(flight, Stage.REPLACED, now), replacement=replacement)
    )


def _end(flight: Flight, now: float, patience: Patience, compare: Compare) -> Ended | None:
    """Return how a move has ended, or None if it goes on."""
    replacement = flight.replacement
    if replacement is not None and flight.stage is Stage.PLACED and replacement.ready:
        where = f"its replacement {replacement.name} on {replacement.node_name} is Ready"
        return _ended(flight, compare(flight.move, replacement), now, where)
    if flight.stage is Stage.LEAVING and not flight.wanted:
        return _ended(flight, Outcome.UNKNOWN, now, "its controller wants no replacement any more")
    since, seconds = _waiting(flight, patience)
    return _given_up(flight, now, f"{now - since:.0f} s") if now - since >= seconds else None


def _given_up(flight: Flight, now: float, waited: str) -> Ended:
    """Return how a move has ended that is not waited for any longer."""
    replacement = flight.replacement
    if flight.placed_at is not None:
        if replacement is None:
            how = "its replacement failed, and no other was Ready"
        else:
            on = f" on {replacement.node_name}" if replacement.node_name else ", which has no node,"
            how = f"its replacement {replacement.name}{on} was not Ready"
        return _ended(flight, Outcome.NOT_READY, now, f"{how} after {waited}")
    if replacement is not None:
        return _ended(flight, Outcome.UNPLACED, now, f"its replacement {replacement.name} has no node after {waited}")
    if flight.stage is Stage.LEAVING:
        ended = _ended(flight, Outcome.UNKNOWN, now, f"it was not replaced within {waited}")
        return msgspec.structs.replace(ended, unreplaced=True)
    return _ended(flight, Outcome.UNKNOWN, now, f"{_STILL_THERE[flight.stage]}, and it is still there after {waited}")


def _ended(flight: Flight, outcome: Outcome, now: float, message: str) -> Ended:
    return Ended(
        move=flight.move,
        outcome=outcome,
        replacement=flight.replacement,
        seconds=now - flight.sent_at,
        message=message,
    )


def _waiting(flight: Flight, patience: Patience) -> tuple[float, float]:
    """Return since when a move waits for what it waits for, on the clock, and how many seconds it may."""
    if flight.placed_at is not None:
        return flight.placed_at, patience.ready_seconds.get(flight.move.policy, patience.step_seconds)
    if flight.stage <= Stage.SENT:
        return flight.stage_since, patience.unconfirmed_seconds
    if flight.stage is Stage.LEAVING and _is_stateful(flight):
        return flight.stage_since, patience.termination_seconds
    return flight.stage_since, patience.step_seconds


def _still_there(snapshot: ClusterSnapshot, pod: Pod) -> Pod | None:
    """Return a pod as the snapshot shows it, unless it is terminating, finished, gone or another of that name."""
    current = snapshot.pods.get(pod.key)
    return current if current is not None and current.uid == pod.uid and is_active(current) else None


def _step_of(flight: Flight) -> tuple[int, int]:
    return flight.move.component, flight.move.step


def _is_stateful(flight: Flight) -> bool:
    """Whether the replacement has the evicted pod's name and comes only when that is gone."""
    controller = flight.move.pod.controller
    return controller is not None and controller.kind == "StatefulSet"


def _at(flight: Flight, stage: Stage, now: float) -> Flight:
    return msgspec.structs.replace(flight, stage=stage, stage_since=now)
