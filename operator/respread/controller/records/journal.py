"""The ledger of this process: the one place where a move's events arrive, and moves are recorded before they are made.

After a crash, the next leader follows the recorded moves to their outcome, and counts them for limits.

Evictions that may not have been made count for limits until that is certain. A leader that was killed leaves moves in
its record that it may not have sent, and an API server that gives no answer may have evicted the pod or not. Such a
move counts for `limits.perHour` and `limits.perHourPerGroup`, because there must never be too many evictions. If its
pod is still there when no request for it can be on its way any more, it was not made, and does not count any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time

from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.api.record import MoveInFlight, Recorded
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import Policies
from respread.controller.announcements import Announcements
from respread.controller.records.history import History
from respread.controller.records.status_writer import StatusWriter
from respread.eviction.answers import Answer
from respread.eviction.limiter import Bounding
from respread.holds.refusals import Refusals
from respread.moves.codec import RecordedMoves
from respread.moves.entry import MoveEntry, MovePhase
from respread.moves.following import Judged
from respread.moves.ledger import Ledger
from respread.planning.plan import Move, Step
from respread.telemetry.metrics import EVICTIONS, Metrics
from respread.timing import ClockReading


class Journal:
    """The moves. It belongs to one event loop, and only changes between awaits of its readers."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float] = time) -> None:
        """Start without moves. The clock is monotonic and in seconds."""
        self.clock = clock
        self.wall_clock = wall_clock
        self.ledger = Ledger()
        self.history = History(wall_clock, expected=lambda: self.ledger.expected)
        """What was done, and its outcomes."""
        self._of_records = RecordedMoves()

    def moment(self) -> ClockReading:
        """Return now, on both clocks."""
        return ClockReading(self.clock(), self.wall_clock())

    def for_records(self, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
        """Return the moves in flight and those that may be at any moment, for the next leader, by policy.

        Hundreds of policies may ask for theirs at the same time: what does not change meanwhile is computed once.
        """
        return self._of_records.of(self.ledger, snapshot)

    def in_record(self, policy: Policy, record: Recorded, snapshot: ClusterSnapshot) -> Recorded:
        """Return a policy's record with everything that it must contain now about moves and evictions."""
        return self.history.in_record(policy, record, self.for_records(snapshot).get(policy.name, ()))

    def chosen(
        self, moves: Iterable[Move], snapshot: ClusterSnapshot, bounded: Mapping[str, tuple[str, ...]] = Map()
    ) -> None:
        """Record moves that a reconcile has chosen for a snapshot; see `Ledger.with_chosen`."""
        self.ledger = self.ledger.with_chosen(moves, snapshot, self.clock(), self.wall_clock(), bounded)

    def recorded(self, move: Move) -> None:
        """Have every record that is written from now on contain a chosen move, because it may be sent at any moment."""
        self.ledger = self.ledger.recorded(move)

    def sent(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Record a move right before its eviction is sent. From now on it is in flight.

        Raises:
            RuntimeError: no record contains it, so that a new leader would not know of it.
        """
        entry = self.ledger.of(move)
        if entry is None or entry.phase is not MovePhase.RECORDED:
            raise RuntimeError(f"the eviction of {move.pod.key} is to be sent, and is in no record")
        self.ledger = self.ledger.sent(move, snapshot, self.clock(), self.wall_clock())

    def owed(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Record that a move was refused although others of its step were made."""
        self.ledger = self.ledger.sent(move, snapshot, self.clock(), self.wall_clock()).owed(move)

    def answered(self, move: Move, answer: Answer, *, again: bool) -> None:
        """Record the API server's answer to a move's eviction.

        If it was sent `again`, and the first request got no answer, a refusal now says nothing about that: it may still
        be on its way.
        """
        gone, entry = answer.held is None, self.ledger.of(move)
        if not again or answer.may_have_evicted or (gone and entry is not None and entry.is_owed):
            self.ledger = self.ledger.answered(move, answer.made, self.clock())

    def not_wanted(self, move: Move) -> None:
        """Record that a move's controller wants no replacement."""
        self.ledger = self.ledger.not_wanted(move)

    def forget(self, move: Move) -> None:
        """Record that a chosen move will not be sent."""
        self.ledger = self.ledger.forgotten(move)

    def asked(self, moves: Iterable[Move]) -> None:
        """Record that the API server is asked about moves: to make them, or what became of their pods."""
        self.ledger = self.ledger.asked(moves, self.clock())

    def followed(self, ledger: Ledger, snapshot: ClusterSnapshot) -> Judged:
        """Take over the moves as they were followed in a snapshot, and return what became of steadying replacements.

        Moves count for good that were made, as the watch has shown.
        """
        self.ledger, judged = ledger.judged(snapshot, self.clock())
        for entry in self.ledger.confirmed:
            self.settle(entry.move, made=True)
        return judged

    # Whether moves were made

    def doubt(self, move: Move) -> None:
        """Record that a request for a recorded move may have evicted its pod, or may still do so."""
        self.ledger = self.ledger.doubted(move, self.clock())

    def doubts(self, move: Move) -> bool:
        """Return whether a move of the same pod may have been made."""
        entry = self.ledger.of(move)
        return entry is not None and entry.doubted_at is not None

    def settle(self, move: Move, *, made: bool) -> bool:
        """Count a recorded move for good, or not any longer. Return whether it was counted until now."""
        entry = self.ledger.of(move)
        if entry is None or entry.counts is None:
            return False
        self.ledger = self.ledger.settled(move)
        if made:
            self.history.count(entry.counts)
        return True

    def resolve(self, doubt: MoveEntry, *, made: bool) -> bool:
        """Do the same for a move in doubt, by what was read of its pod; False if more was sent or known since."""
        entry = self.ledger.of(doubt.move)
        return entry is not None and entry.doubted_at == doubt.doubted_at and self.settle(doubt.move, made=made)

    def take_over(self, ledger: Ledger, doubtful: Iterable[Move]) -> None:
        """Start a term with the moves of former leaders, of which some may not have been made."""
        self.ledger = ledger.taken_over(doubtful, self.clock())


class Recording:
    """Records, counts and reports."""

    def __init__(
        self,
        journal: Journal,
        statuses: StatusWriter,
        *,
        announcements: Announcements,
        metrics: Metrics,
        refusals: Refusals,
        seen: Callable[[], Mapping[str, PolicyStatus]],
    ) -> None:
        """Create it. `seen` returns the policies' statuses as the watch shows them, by name."""
        self._journal = journal
        self._statuses = statuses
        self._announcements = announcements
        self._metrics = metrics
        self._refusals = refusals
        self._seen = seen

    async def write_down(self, step: Step, bounding: Bounding, policies: Policies) -> Held | None:
        """Record a step's moves. Return why they must not be made, or None if the records of all policies have them."""
        for move in step:
            self._journal.recorded(move)
        names = {name for move in step for name in (move.policy, *bounding.hourly(move))}
        seen = self._seen()
        asked = [(policies[name], seen.get(name, PolicyStatus())) for name in sorted(names)]
        written = await self._statuses.ensure(asked)
        if written == names:
            return None
        troubles = (self._statuses.trouble(policies[name]) for name in sorted(names - written))
        why = next((f": {trouble}" for trouble in troubles if trouble), "")
        return Held(Reason.API_UNAVAILABLE, f"it could not be written down in its policy's record{why}")

    def why_paused(self, move: Move, policies: Policies) -> Held | None:
        """Return why a move's policy evicts nothing after failures; None if it is not paused."""
        return self._journal.history.paused(policies[move.policy], move.pod.namespace)

    def close(self, move: Move, result: Answer | Held, bounding: Bounding, *, is_one_of_several: bool) -> None:
        """Count and report the result of a move.

        If it `is_one_of_several`, a request for it was sent before, or will be sent again. So what was not done now may
        be done all the same.
        """
        if isinstance(result, Answer):
            why = result.held
            self._metrics.count(EVICTIONS, policy=move.policy, namespace=move.pod.namespace, result=result.result)
            self._announcements.eviction(move, result)
            if result.may_have_evicted:
                self._journal.history.serve(move.pod.namespace)
                if result.evicted:
                    self._journal.settle(move, made=True)
                    self._journal.history.made(move.policy)
                else:
                    self._journal.doubt(move)
                return
        else:
            why = result
            self._announcements.held_back(move, result)
        if why is not None:
            self._refusals.held_back(move, why)
        if is_one_of_several:
            self._journal.doubt(move)
        elif not self._journal.doubts(move) and self._journal.settle(move, made=False):
            self._statuses.hurry((move.policy, *bounding.of(move)))
