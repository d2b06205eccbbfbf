"""Every move: chosen by a reconcile, recorded in its policy's status, in flight, or just finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time

from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer
from respread.eviction.in_flight import InFlight
from respread.eviction.probation import Probation
from respread.planning.plan import Move


class Register:
    """The moves. It belongs to one event loop, and only changes between awaits of its readers."""

    __slots__ = ("chosen", "clock", "in_flight", "on_record", "probation", "wall_clock")

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
        self.on_record: dict[str, Move] = {}
        """Those among them that may be sent at any moment. Every status that is written contains them."""

    def with_chosen(self, snapshot: ClusterSnapshot) -> InFlight:
        """Return all moves for plans and limits, as if the chosen ones were sent."""
        return self._with(self.chosen.values(), snapshot)

    def with_those_on_record(self, snapshot: ClusterSnapshot) -> InFlight:
        """Return the moves in flight and those that may be at any moment, for the next leader."""
        return self._with(self.on_record.values(), snapshot)

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
        self.on_record.pop(move.pod.uid, None)

    def _with(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> InFlight:
        in_flight = self.in_flight
        for move in moves:
            in_flight = in_flight.sent(move, snapshot, self.clock(), self.wall_clock())
        return in_flight
