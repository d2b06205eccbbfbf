"""Every move: chosen by a reconcile, recorded in its policy's record, in flight, or just finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import NamedTuple

from respread.api.record import MoveInFlight
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.remembered_moves import RememberedMoves
from respread.eviction.answers import Answer
from respread.eviction.in_flight import InFlight
from respread.eviction.probation import Probation
from respread.planning.plan import Move


class _Moment(NamedTuple):
    """What the moves that records contain depend on."""

    in_flight: InFlight
    changes: int
    """Of the moves on record that are not sent yet."""
    snapshot: ClusterSnapshot
    time: int
    """In whole seconds, as it is recorded."""

    def is_the_same(self, other: _Moment) -> bool:
        """Return whether nothing has changed."""
        return (
            self.in_flight is other.in_flight
            and self.changes == other.changes
            and self.snapshot is other.snapshot
            and self.time == other.time
        )


class Register:
    """The moves. It belongs to one event loop, and only changes between awaits of its readers."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float] = time) -> None:
        """Start without moves.

        Args:
            clock: a monotonic clock in seconds.
            wall_clock: seconds since the epoch.
        """
        self.clock = clock
        self.wall_clock = wall_clock
        self.in_flight = InFlight()
        """The moves whose evictions were sent, until their replacements are Ready."""
        self.probation = Probation()
        """The moves that ended well just now."""
        self.chosen: dict[str, Move] = {}
        """Chosen moves that are not sent yet, by the UIDs of their pods, in the order in which they were chosen."""
        self._on_record: dict[str, Move] = {}
        """Those among them that may be sent at any moment. Every record that is written contains them."""
        self._changes = 0
        """How often these have changed."""
        self._remembered = RememberedMoves()
        self._with_those_on_record: tuple[_Moment, InFlight] | None = None

    def with_chosen(self, snapshot: ClusterSnapshot) -> InFlight:
        """Return all moves for plans and limits, as if the chosen ones were sent."""
        return self._with(self.chosen.values(), snapshot)

    def for_records(self, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
        """Return the moves in flight and those that may be at any moment, for the next leader, by policy.

        Hundreds of policies may ask for theirs at the same time: what does not change meanwhile is computed once.
        """
        in_flight = self.in_flight
        if self._on_record:
            moment = _Moment(in_flight, self._changes, snapshot, int(self.wall_clock()))
            known = self._with_those_on_record
            if known is None or not known[0].is_the_same(moment):
                known = self._with_those_on_record = moment, self._with(self._on_record.values(), snapshot)
            in_flight = known[1]
        return self._remembered.of(in_flight, snapshot)

    def put_on_record(self, move: Move) -> None:
        """Have every record that is written from now on contain a chosen move, because it may be sent at any moment."""
        self._on_record[move.pod.uid] = move
        self._changes += 1

    def sent(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Record a move right before its eviction is sent. From now on it is in flight."""
        self.in_flight = self._with((move,), snapshot)
        self.forget(move)

    def owed(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Record that a move was refused although others of its step were made."""
        self.in_flight = self._with((move,), snapshot).owed(move)
        self.forget(move)

    def answered(self, move: Move, answer: Answer, *, again: bool) -> None:
        """Record the API server's answer to a move's eviction.

        Args:
            move: the move.
            answer: its answer.
            again: whether it was already in flight. If the first request got no answer, a refusal now says nothing
                about it: it may still be on its way.
        """
        gone = answer.held is None
        if not again or answer.may_have_evicted or (gone and self.in_flight.is_owed(move)):
            self.in_flight = self.in_flight.answered(move, answer, self.clock())

    def not_wanted(self, move: Move) -> None:
        """Record that a move's controller wants no replacement."""
        self.in_flight = self.in_flight.not_wanted(move)

    def forget(self, move: Move) -> None:
        """Record that a move will not be sent."""
        self.chosen.pop(move.pod.uid, None)
        if self._on_record.pop(move.pod.uid, None) is not None:
            self._changes += 1
        if not self._on_record:
            self._with_those_on_record = None

    def _with(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> InFlight:
        in_flight = self.in_flight
        for move in moves:
            in_flight = in_flight.sent(move, snapshot, self.clock(), self.wall_clock())
        return in_flight
