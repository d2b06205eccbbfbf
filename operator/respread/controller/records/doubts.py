"""Evictions that may not have been made count for limits until that is certain.

A leader that was killed leaves moves in its record that it may not have sent, and an API server that gives no answer
may have evicted the pod or not. Such a move counts for `limits.perHour` and `limits.perHourPerGroup`, because there
must never be too many evictions. If its pod is still there when no request for it can be on its way any more, it was
not made, and does not count any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Final, NamedTuple

from respread.controller.records.history import Expected, History
from respread.moves.entry import Ended
from respread.moves.ledger import Ledger
from respread.planning.plan import Move

CERTAIN_SECONDS: Final = 180.0
"""How long after a former leader's Lease has ended, and after our last request, no request for an eviction can be on
its way. An API server closes a connection on which nothing has come for 90 s (IdleTimeout in secure_serving.go), so
what a frozen process or a broken network holds back longer is not accepted. It works on a request for at most a minute.
"""
_AGAIN_SECONDS: Final = 5.0
"""How long after the API server did not say what became of a pod it is asked again."""


class Doubt(NamedTuple):
    """A move that may not have been made. Each is another object, even for the same pod."""

    move: Move
    since: float
    """When a request for it may have been sent last, on the clock."""


class Doubts:
    """The moves that count although they may not have been made. It belongs to one event loop."""

    __slots__ = ("_asked_at", "_clock", "_doubts", "_history", "_hurry")

    def __init__(self, history: History, *, clock: Callable[[], float], hurry: Callable[[Iterable[str]], None]) -> None:
        """Start without any.

        Args:
            history: counts them as expected.
            clock: a monotonic clock in seconds.
            hurry: called with the names of the policies whose records must be written soon.
        """
        self._history = history
        self._clock = clock
        self._hurry = hurry
        self._doubts: dict[str, Doubt] = {}
        """By the UIDs of the pods."""
        self._asked_at: dict[str, float] = {}
        """When the API server was asked what became of the pod, by the same."""

    def __contains__(self, move: Move) -> bool:
        """Return whether a move of the same pod may have been made."""
        return move.pod.uid in self._doubts

    def take_over(self, moves: Iterable[Move]) -> None:
        """Start again with the moves that former leaders may have made. Their Leases have ended.

        They count for the policy for which they were made. The counts of other policies, whose limits they may count
        for too, are left as they were recorded.
        """
        for uid in self._doubts:
            self._history.not_made(uid)
        self._doubts.clear()
        self._asked_at.clear()
        for move in moves:
            self._history.expect(move.pod.uid, Expected(move.policy, (move.policy,), move.groups))
            self.note(move)

    def note(self, move: Move) -> None:
        """Record that a request for an expected move may have evicted its pod, or may still do so."""
        if self._history.expects(move.pod.uid):
            self._doubts[move.pod.uid] = Doubt(move, self._clock())

    def follow(self, ledger: Ledger, ended: Iterable[Ended]) -> None:
        """Count the moves for good that were made, as the watch has shown.

        Args:
            ledger: the moves in flight.
            ended: those that have just ended.
        """
        if not self._doubts:
            return
        over = {each.move.pod.uid for each in ended if not each.unmade}
        for uid, doubt in tuple(self._doubts.items()):
            if uid in over or (doubt.move in ledger and not ledger.may_be_unmade(doubt.move)):
                self.resolve(doubt.move, made=True)

    def due(self, ledger: Ledger, under_way: Collection[str]) -> list[Doubt]:
        """Return those that are certain by now. The caller asks the API server what became of their pods.

        Args:
            ledger: the moves in flight. They are followed first, and sent again if that helps.
            under_way: the UIDs of pods for which something may be sent at any moment.
        """
        now = self._clock()
        found = [
            doubt
            for uid, doubt in self._doubts.items()
            if doubt.move not in ledger and uid not in under_way and self._due_at(doubt) <= now
        ]
        self._asked_at.update((doubt.move.pod.uid, now) for doubt in found)
        return found

    def next_due(self, ledger: Ledger) -> float | None:
        """Return when the next one is certain, on the clock; None if there is none."""
        return min((self._due_at(each) for each in self._doubts.values() if each.move not in ledger), default=None)

    def holds(self, doubt: Doubt) -> bool:
        """Return whether nothing was sent or found out since."""
        return self._doubts.get(doubt.move.pod.uid) is doubt

    def resolve(self, move: Move, *, made: bool) -> None:
        """Count a move for good, or not any longer."""
        uid = move.pod.uid
        del self._doubts[uid]
        self._asked_at.pop(uid, None)
        if made:
            self._history.made(uid, move.policy, certain=False)
        elif self._history.not_made(uid):
            self._hurry((move.policy,))

    def answered(self, move: Move) -> None:
        """Forget the doubt about a move that the API server has confirmed."""
        self._doubts.pop(move.pod.uid, None)
        self._asked_at.pop(move.pod.uid, None)

    def _due_at(self, doubt: Doubt) -> float:
        return max(doubt.since + CERTAIN_SECONDS, self._asked_at.get(doubt.move.pod.uid, -inf) + _AGAIN_SECONDS)
