"""What budgets allow beside the moves in flight, kept while these come and go."""

from __future__ import annotations

from respread.cluster.state import ClusterSnapshot
from respread.moves.entry import as_shown
from respread.moves.ledger import Ledger
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.budgets import BudgetBook


class BudgetsBesideMoves:
    """What budgets allow in one snapshot, at the cost of what came into flight or ended since the last look.

    Each eviction is looked at several times, beside all that are in flight by then: counted again every time, a wave
    would cost the square of its moves.
    """

    __slots__ = ("_book", "_moves", "_snapshot")

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._moves = Ledger()
        self._book = BudgetBook(snapshot, (), BudgetIndex())

    def beside(self, moves: Ledger) -> BudgetBook:
        """Return what budgets allow beside some moves in flight; right until the next call."""
        began, ended = moves.since(self._moves)
        for move in ended:
            self._book.ended(as_shown(move.pod, self._snapshot))
        for move in began:
            self._book.sent(as_shown(move.pod, self._snapshot))
        self._moves = moves
        return self._book.fork()
