"""What budgets allow beside the moves in flight, kept while these come and go."""

from __future__ import annotations

from respread.cluster.state import ClusterSnapshot
from respread.moves.entry import as_shown
from respread.moves.ledger import Ledger
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.budgets import BudgetLedger


class MovingLedger:
    """The ledger of one snapshot, at the cost of the moves that have come into flight or ended since the last look.

    Each eviction is looked at several times, beside all that are in flight by then: counted again every time, a wave
    would cost the square of its moves.
    """

    __slots__ = ("_ledger", "_moves", "_snapshot")

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._moves = Ledger()
        self._ledger = BudgetLedger(snapshot, (), BudgetIndex())

    def beside(self, moves: Ledger) -> BudgetLedger:
        """Return what budgets allow beside some moves in flight; right until the next call."""
        began, ended = moves.since(self._moves)
        for move in ended:
            self._ledger.ended(as_shown(move.pod, self._snapshot))
        for move in began:
            self._ledger.sent(as_shown(move.pod, self._snapshot))
        self._moves = moves
        return self._ledger.fork()
