"""The ledger: every move from its choice to its end, as one value.

Events go in, and a new ledger comes out. Plans, limits, budgets, records, metrics and the next wake-up are views of it.

From its choice on, a move's pod counts as gone whatever the watch says, so that no plan restores the same skew again,
and limits count it. A move ends when its replacement is Ready, when none will come, or when Respread gives up on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import Final

import msgspec
from immutables import Map

from respread.cluster.incremental import changed_keys
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.moves.entry import (
    UNCONFIRMED_SECONDS,
    Compare,
    Counting,
    Ended,
    LedgerDraft,
    MoveEntry,
    MovePhase,
    as_shown,
    at_phase,
    certain_at,
    controller_uid_of,
    is_late,
    still_there,
    waiting,
    will_need_a_node,
)
from respread.moves.following import (
    STEADY_SECONDS,
    Exchanged,
    Judged,
    Knowing,
    ReplacementPods,
    Siblings,
    after_end,
    end_of,
    exchanging,
    followed,
    judged,
    siblings_in,
)
from respread.planning.moving_pods import UnderWay
from respread.planning.plan import Move

_BY_NUMBER: Final = attrgetter("number")


class Ledger(msgspec.Struct, frozen=True, dict=True):
    """All moves. A value: every event returns another one that shares unchanged parts.

    What is called `now` is on the caller's clock, and `time` is the same in seconds since the epoch.
    """

    ready_seconds: Map[str, float] = Map()
    """How long a replacement on a node may take until it is Ready, by policy."""
    _entries: Map[str, MoveEntry] = Map()
    """By the UID of the evicted pod."""
    _of_controller: Map[str, Map[str, None]] = Map()
    """The same UIDs of the moves in flight, by that of the pods' controller."""
    _siblings: Map[str, Siblings] = Map()
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
        return (entry := self.of(move)) is not None and entry.is_in_flight

    @cached_property
    def in_flight(self) -> tuple[MoveEntry, ...]:
        """The moves whose evictions were sent, in that order, until their replacements are Ready."""
        return tuple(sorted((each for each in self._entries.values() if each.is_in_flight), key=_BY_NUMBER))

    @cached_property
    def chosen(self) -> tuple[MoveEntry, ...]:
        """The moves whose evictions are not sent yet, in the order in which they were chosen."""
        return tuple(sorted((each for each in self._entries.values() if each.phase < MovePhase.OWED), key=_BY_NUMBER))

    @cached_property
    def steadying(self) -> tuple[MoveEntry, ...]:
        """The moves that ended well, and whose replacements must stay Ready for a while."""
        return tuple(each for each in self._entries.values() if each.phase is MovePhase.STEADYING)

    @cached_property
    def ours(self) -> tuple[MoveEntry, ...]:
        """The moves whose pods are evicted by us, or may be, until the pods are gone, however early the moves end.

        A move ends when its replacement is Ready, which is often sooner than the evicted pod has terminated.
        """
        return tuple(each for each in self._entries.values() if each.is_in_flight or each.lingers)

    @cached_property
    def expected(self) -> tuple[Counting, ...]:
        """What moves count for that may be made by the time that a record is read, or may have been made."""
        return tuple(
            each.counts
            for each in self._entries.values()
            if each.counts is not None and (each.phase is not MovePhase.CHOSEN or each.doubted_at is not None)
        )

    @cached_property
    def expected_with_chosen(self) -> tuple[Counting, ...]:
        """The same for the next choice: moves that were chosen count too before they are recorded."""
        return tuple(each.counts for each in self._entries.values() if each.counts is not None)

    @property
    def confirmed(self) -> tuple[MoveEntry, ...]:
        """The moves that were in doubt and were made, as the watch has shown."""
        return tuple(
            each
            for each in self._entries.values()
            if each.doubted_at is not None and each.phase >= MovePhase.EVICTED and each.phase is not MovePhase.UNCERTAIN
        )

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

    @cached_property
    def uids(self) -> frozenset[str]:
        """The UIDs of the pods of the moves under way."""
        return frozenset(each.uid for each in self.under_way)

    @property
    def without_node(self) -> frozenset[str]:
        """The UIDs of the pods of the moves under way whose replacements have no node yet."""
        return frozenset(each.uid for each in self.under_way if each.phase < MovePhase.PLACED)

    @cached_property
    def of_policies(self) -> Mapping[str, int]:
        """The number of moves under way of each policy that has some, by its name."""
        return Counter(move.policy for move in self.moves)

    # Events

    def with_chosen(
        self,
        moves: Iterable[Move],
        snapshot: ClusterSnapshot,
        now: float,
        time: float = 0.0,
        bounded: Mapping[str, tuple[str, ...]] = Map(),
    ) -> Ledger:
        """Record moves that a reconcile has chosen.

        The pods of the snapshot, for which they were planned, are not their replacements. `bounded` has the names of
        the policies whose limits count them, by the UIDs of the moves' pods.
        """
        draft, siblings = self._draft(), self._siblings
        for move in moves:
            counts = Counting(move.policy, bounded.get(move.pod.uid, ()), move.groups)
            entry, siblings = self._begun(move, MovePhase.CHOSEN, snapshot, siblings, now, time)
            draft.drop(entry.uid)
            draft.put(msgspec.structs.replace(entry, counts=counts.beside(entry.counts)))
        return self._of_draft(draft, siblings)

    def recorded(self, move: Move) -> Ledger:
        """Record that every record that is written from now on contains a chosen move."""
        entry = self.of(move)
        if entry is None or entry.phase is not MovePhase.CHOSEN:
            return self
        return self._put(msgspec.structs.replace(entry, phase=MovePhase.RECORDED))

    def forgotten(self, move: Move) -> Ledger:
        """Record that a chosen move will not be sent. One that was sent stays."""
        entry, draft = self.of(move), self._draft()
        if entry is not None and entry.phase <= MovePhase.RECORDED:
            draft.leave(entry)
        return self._of_draft(draft)

    def sent(self, move: Move, snapshot: ClusterSnapshot, now: float, time: float = 0.0) -> Ledger:
        """Record a move right before its eviction is sent. It is the last one then.

        The pods of the snapshot are not the replacement.
        """
        entry, siblings = self._begun(move, MovePhase.SENT, snapshot, self._siblings, now, time)
        draft = self._draft()
        draft.drop(entry.uid)
        draft.put(entry)
        return self._of_draft(draft, siblings)

    def answered(self, move: Move, made: bool | None, now: float) -> Ledger:
        """Record the API server's answer to a move's eviction.

        `made` is whether the pod was evicted; None if it may have been.
        """
        entry, draft, phase = self.of(move), self._draft(), MovePhase.EVICTED if made else MovePhase.SENT
        if entry is not None and made is False:
            draft.leave(entry)
        elif entry is not None and entry.phase < phase:
            draft.put(at_phase(entry, phase, now))
        return self._of_draft(draft)

    def owed(self, move: Move) -> Ledger:
        """Record that a sent move was refused, and is owed, because others of its step are made."""
        entry = self.of(move)
        return self if entry is None else self._put(msgspec.structs.replace(entry, phase=MovePhase.OWED))

    def of(self, move: Move) -> MoveEntry | None:
        """Return what is known of a move, or of another one of the same pod; None if nothing is."""
        return self._entries.get(move.pod.uid)

    def asked(self, moves: Iterable[Move], now: float) -> Ledger:
        """Record that the API server is asked about moves: to make them, or what became of their pods."""
        draft = self._draft()
        for move in moves:
            if (entry := self.of(move)) is not None:
                draft.put(msgspec.structs.replace(entry, asked_at=now))
        return self._of_draft(draft)

    # Whether moves were made

    def doubted(self, move: Move, now: float) -> Ledger:
        """Record that a request for a recorded move may have evicted its pod, or may still do so."""
        entry = self.of(move)
        if entry is None or entry.counts is None:
            return self
        return self._put(msgspec.structs.replace(entry, doubted_at=now))

    def settled(self, move: Move) -> Ledger:
        """Record that it is certain whether a move was made."""
        entry, draft = self.of(move), self._draft()
        if entry is not None:
            draft.settle(entry)
        return self._of_draft(draft)

    def due(self, now: float, under_way: Collection[str] = ()) -> tuple[MoveEntry, ...]:
        """Return the moves of which it can be found out by now whether they were made, by reading their pods.

        Moves in flight are followed first, and sent again if that helps. `under_way` has the UIDs of pods for which
        something may be sent at any moment.
        """
        return tuple(each for each in self._uncertain if each.uid not in under_way and certain_at(each) <= now)

    def next_due(self) -> float:
        """Return when the next one can be found out, on the clock; infinity if there is none."""
        return min(map(certain_at, self._uncertain), default=inf)

    @property
    def _uncertain(self) -> Iterator[MoveEntry]:
        return (
            each for each in self._entries.values() if each.phase is MovePhase.UNCERTAIN and each.doubted_at is not None
        )

    # Follow

    def patient(self, limits: Map[str, float]) -> Ledger:
        """Return the same moves with other `ready_seconds`."""
        return self if limits == self.ready_seconds else msgspec.structs.replace(self, ready_seconds=limits)

    def resumed(self, entries: Iterable[MoveEntry]) -> Ledger:
        """Return these moves as all that are in flight, with the known state of known ones.

        A record may contain a pod twice, and so may those of two policies. A pod is evicted once.
        """
        known, draft = {each.uid: each for each in self.in_flight}, self._draft()
        each_once = {each.uid: known.get(each.uid, each) for each in entries}
        for uid in (*known, *each_once):
            draft.drop(uid)
        for each in each_once.values():
            draft.put(each)
        return msgspec.structs.replace(self._of_draft(draft), _siblings=Map(), _exchanged=Map())

    def taken_over(self, doubtful: Iterable[Move], now: float) -> Ledger:
        """Return the ledger at the beginning of a term, in which it is only known what is recorded.

        Former leaders, whose Leases have ended, may have made the doubtful moves in flight. These count for the policy
        for which they were made; the counts of other policies, whose limits they may count for too, are left as they
        were recorded.
        """
        draft = self._draft()
        for entry in self._entries.values():
            if entry.doubted_at is not None:
                draft.settle(entry)
        for entry in self.steadying:
            draft.keep(msgspec.structs.replace(entry, phase=MovePhase.OVER, ended=None))
        for move in doubtful:
            entry = draft.entries[move.pod.uid]
            counts = Counting(move.policy, (move.policy,), move.groups).beside(entry.counts)
            draft.put(msgspec.structs.replace(entry, counts=counts, doubted_at=now))
        return self._of_draft(draft)

    def unanswered(self, now: float, least_seconds: float) -> tuple[MoveEntry, ...]:
        """Return the moves to send again: sent without an answer, or owed.

        They were sent at least `least_seconds` ago. Moves about to be given up on are excluded.
        """
        return tuple(
            each
            for each in self.in_flight
            if each.ours and each.may_be_unmade and least_seconds <= now - each.sent_at < UNCONFIRMED_SECONDS
        )

    def without(self, move: Move) -> Ledger:
        """Return all except one, as if it had never been chosen."""
        draft = self._draft()
        draft.drop(move.pod.uid)
        return self._of_draft(draft)

    def not_wanted(self, move: Move) -> Ledger:
        """Record that a move's controller wants no more pods: if it has no replacement, the move is over."""
        entry = self.of(move)
        return self if entry is None else self._put(msgspec.structs.replace(entry, wanted=False))

    def unreplaced_since(self, moment: float) -> tuple[Move, ...]:
        """Return the moves whose pods have been leaving since a time, on the caller's clock, without a replacement.

        Except those of which the API server was asked since then whether one is wanted, or after which no more time
        has passed than before: controllers that are slow have many such pods, and no time for more requests. A
        replacement that was deleted is a reason to ask at once, because a scale-down may have deleted it.
        """
        return tuple(
            each.move
            for each in self.in_flight
            if each.phase is MovePhase.LEAVING
            and (
                (each.is_bereft and each.asked_at < each.phase_since)
                or max(each.phase_since, each.asked_at) + max(0, each.asked_at - each.phase_since) <= moment
            )
        )

    def updated(self, snapshot: ClusterSnapshot, now: float, compare: Compare) -> tuple[Ledger, tuple[Ended, ...]]:
        """Take over a snapshot, and return the moves that are over.

        The snapshot is as the watch shows it, not from `overlay`. `compare` is called for each replacement that is
        Ready.
        """
        going_on: list[MoveEntry] = []
        over: list[tuple[MoveEntry, Ended]] = []
        replacements = ReplacementPods(snapshot, self.replacements)
        for before in self.in_flight:
            entry = followed(before, snapshot, now, replacements)
            if (ended := end_of(entry, now, self.ready_seconds, compare)) is not None:
                over.append((entry, ended))
            else:
                going_on.append(entry)
        made = {_step_of(entry) for entry in going_on if entry.phase is not MovePhase.OWED}
        knowing = Knowing(ended for _, ended in over)
        draft = self._draft()
        for entry in going_on:
            if entry.phase is MovePhase.OWED and _step_of(entry) not in made:
                draft.leave(entry)
            elif (after := knowing.of(entry)) is not self._entries[entry.uid]:
                draft.put(after)
        for entry, ended in over:
            draft.put(after_end(entry, ended, now))
        for entry in self.ours:
            if entry.lingers and not _is_leaving(entry, snapshot):
                draft.keep(msgspec.structs.replace(entry, lingers=False))
        if draft.entries is self._entries:
            return self, ()
        ends = tuple(ended for _, ended in over)
        return msgspec.structs.replace(
            self._of_draft(draft, Map()), _exchanged=exchanging(self._exchanged, ends, now)
        ), ends

    def judged(self, snapshot: ClusterSnapshot, now: float) -> tuple[Ledger, Judged]:
        """Return what became of the replacements that are to stay Ready, as far as that is decided."""
        found, draft = judged(self.steadying, snapshot, now), self._draft()
        decided = found.uids
        for entry in self.steadying:
            if entry.uid in decided:
                draft.keep(msgspec.structs.replace(entry, phase=MovePhase.OVER, ended=None))
        return self._of_draft(draft), found

    def since(self, before: Ledger) -> tuple[list[Move], list[Move]]:
        """Return the moves that were not in flight before, and those that are not any more."""
        began: list[Move] = []
        ended: list[Move] = []
        for uid in changed_keys(before._entries, self._entries):
            was, now = before._entries.get(uid), self._entries.get(uid)
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
        """Return the pods of moves as the watch shows them, gone ones as terminating: for a `BudgetBook`."""
        return tuple(as_shown(each.move.pod, snapshot) for each in self.under_way)

    def for_planning(self, snapshot: ClusterSnapshot, now: float = 0.0) -> UnderWay:
        """Return what the moves mean for planning in the cluster that `overlay` returns.

        The snapshot is as the watch shows it, which `updated` was called with.
        """
        return UnderWay(
            in_flight=self.pods(snapshot),
            unreplaced=tuple(each.move.pod for each in self.under_way if will_need_a_node(each)),
            replacements=tuple(
                each.replacement
                for each in self.in_flight
                if each.replacement is not None and not each.replacement.node_name
            ),
            late=tuple(each.move.pod for each in self.in_flight if is_late(each, now)),
            of_policies=self.of_policies,
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

        Its pods may have been `shown` before other evictions.
        """
        replacements = (self._entries[uid].replacement for uid in self._of_controller.get(controller_uid, ()))
        return sum(each is None or each.uid not in shown for each in replacements)

    def next_deadline(self) -> float:
        """Return when `updated` or `judged` may end something without an event; infinity if never."""
        deadlines = (sum(waiting(each, self.ready_seconds)) for each in self.in_flight)
        return min((*deadlines, *(each.phase_since + STEADY_SECONDS for each in self.steadying)), default=inf)

    def _begun(
        self,
        move: Move,
        phase: MovePhase,
        snapshot: ClusterSnapshot,
        siblings: Map[str, Siblings],
        now: float,
        time: float,
    ) -> tuple[MoveEntry, Map[str, Siblings]]:
        """Return a move as one whose pod's controller has the pods of a snapshot, and the pods of all controllers.

        It still counts for what it did before, and is as uncertain as before.
        """
        controller, before = controller_uid_of(move), self.of(move)
        arrived = frozenset(self.exchanged(controller).values())
        there = siblings_in(snapshot, move.pod.namespace, controller, arrived, siblings.get(controller))
        entry = MoveEntry(
            move=move,
            sent_at=now,
            phase=phase,
            phase_since=now,
            known=there.uids if move.pod.uid in there.uids else there.uids | {move.pod.uid},
            sent_time=time,
            newest=there.newest,
            asked_at=now,
            counts=None if before is None else before.counts,
            doubted_at=None if before is None else before.doubted_at,
        )
        return entry, siblings.set(controller, there)

    def _put(self, entry: MoveEntry) -> Ledger:
        draft = self._draft()
        draft.put(entry)
        return self._of_draft(draft)

    def _draft(self) -> LedgerDraft:
        return LedgerDraft(self._entries, self._of_controller, self._number)

    def _of_draft(self, draft: LedgerDraft, siblings: Map[str, Siblings] | None = None) -> Ledger:
        """Return the ledger with changed moves; itself if nothing has changed."""
        if draft.entries is self._entries:
            return self
        return msgspec.structs.replace(
            self,
            _entries=draft.entries,
            _of_controller=draft.of_controller,
            _number=draft.number,
            _siblings=self._siblings if siblings is None else siblings,
        )


def _step_of(entry: MoveEntry) -> tuple[int, int]:
    return entry.move.component, entry.move.step


def _is_leaving(entry: MoveEntry, snapshot: ClusterSnapshot) -> bool:
    pod = snapshot.leaving_pods.get(entry.move.pod.key)
    return pod is not None and pod.uid == entry.uid
