"""The ledger of this process: the one place where a move's events arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time

from respread.api.record import MoveInFlight
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.remembered_moves import RememberedMoves
from respread.eviction.answers import Answer
from respread.eviction.probation import Probation
from respread.moves.entry import MovePhase
from respread.moves.ledger import Ledger
from respread.planning.plan import Move


class Journal:
    """The moves. It belongs to one event loop, and only changes between awaits of its readers."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float] = time) -> None:
        """Start without moves.

        Args:
            clock: a monotonic clock in seconds.
            wall_clock: seconds since the epoch.
        """
        self.clock = clock
        self.wall_clock = wall_clock
        self.ledger = Ledger()
        self.probation = Probation()
        """The moves that ended well just now."""
        self._remembered = RememberedMoves()

    def for_records(self, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
        """Return the moves in flight and those that may be at any moment, for the next leader, by policy.

        Hundreds of policies may ask for theirs at the same time: what does not change meanwhile is computed once.
        """
        return self._remembered.of(self.ledger, snapshot)

    def chosen(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> None:
        """Record moves that a reconcile has chosen for a snapshot of the cluster."""
        self.ledger = self.ledger.with_chosen(moves, snapshot, self.clock(), self.wall_clock())

    def recorded(self, move: Move) -> None:
        """Have every record that is written from now on contain a chosen move, because it may be sent at any moment."""
        self.ledger = self.ledger.recorded(move)

    def sent(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Record a move right before its eviction is sent. From now on it is in flight.

        Raises:
            RuntimeError: no record contains it, so that a new leader would not know of it.
        """
        if self.ledger.phase_of(move) is not MovePhase.RECORDED:
            raise RuntimeError(f"the eviction of {move.pod.key} is to be sent, and is in no record")
        self.ledger = self.ledger.sent(move, snapshot, self.clock(), self.wall_clock())

    def owed(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Record that a move was refused although others of its step were made."""
        self.ledger = self.ledger.sent(move, snapshot, self.clock(), self.wall_clock()).owed(move)

    def answered(self, move: Move, answer: Answer, *, again: bool) -> None:
        """Record the API server's answer to a move's eviction.

        Args:
            move: the move.
            answer: its answer.
            again: whether it was already in flight. If the first request got no answer, a refusal now says nothing
                about it: it may still be on its way.
        """
        gone = answer.held is None
        if not again or answer.may_have_evicted or (gone and self.ledger.is_owed(move)):
            self.ledger = self.ledger.answered(move, answer.made, self.clock())

    def not_wanted(self, move: Move) -> None:
        """Record that a move's controller wants no replacement."""
        self.ledger = self.ledger.not_wanted(move)

    def forget(self, move: Move) -> None:
        """Record that a chosen move will not be sent."""
        self.ledger = self.ledger.forgotten(move)
