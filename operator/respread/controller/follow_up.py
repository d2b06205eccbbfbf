"""Asking again about evictions in flight: those that may not have been made, and those not replaced for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from respread.cluster.state import ClusterSnapshot
from respread.controller.evictions import Batch, Carried, Evictions
from respread.eviction.owners.last_look import Owners
from respread.planning.plan import Move

UNANSWERED_SECONDS: Final = 5.0
"""How long after an eviction without an answer it is asked for again, if its pod is still there."""
OWED_SECONDS: Final = 1.0
"""How long after a refusal it is asked for again, if others of its step were made."""
LATE_SECONDS: Final = 5.0
"""How long a replacement may be missing before its controller is asked whether it wants one."""
AT_ONCE: Final = 8
"""Controllers that are asked at the same time."""


class FollowUp:
    """Asks when it is time to, in tasks beside the reconciles."""

    __slots__ = ("_asked_after_at", "_asked_again_at", "_at_once", "_clock", "_evictions", "_notify", "_owners")

    def __init__(
        self, evictions: Evictions, owners: Owners, *, notify: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        """Have asked nothing yet.

        Args:
            evictions: carries out moves, and knows which are under way.
            owners: how to look at controllers.
            notify: called when a controller does not want a replacement.
            clock: seconds that never go back.
        """
        self._evictions = evictions
        self._owners = owners
        self._notify = notify
        self._clock = clock
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asked_again_at: dict[str, float] = {}
        """By the UIDs of the pods, as is the next one."""
        self._asked_after_at: dict[str, float] = {}

    def ask_again(self, batch: Batch, still_wanted: Callable[[Move], bool]) -> list[asyncio.Task[tuple[Carried, ...]]]:
        """Ask once more for evictions that were never answered, so that nobody has to wait until they must have failed.

        It is the same pod, by its UID: whether or not the first request arrives some day, it is evicted once.

        Args:
            batch: the cluster and the policies as they are now.
            still_wanted: whether a move would help as things are now.

        Returns:
            The tasks that ask.
        """
        now, in_flight = self._clock(), self._evictions.register.in_flight
        unanswered = self._unanswered(OWED_SECONDS)
        due = [
            move for move in unanswered if self._ask_at(move) <= now and (in_flight.is_owed(move) or still_wanted(move))
        ]
        self._asked_again_at = {move.pod.uid: self._asked_again_at.get(move.pod.uid, -inf) for move in unanswered}
        self._asked_again_at.update((move.pod.uid, now) for move in due)
        return [self._evictions.lanes.start((move,), self._evictions.repeat(move, batch)) for move in due]

    def next_ask(self) -> float | None:
        """Return when `ask_again` may have something to ask for, on the clock; None where it has not."""
        unanswered = self._unanswered(0)
        return max(min(map(self._ask_at, unanswered)), self._clock() + OWED_SECONDS) if unanswered else None

    def look_after(self, snapshot: ClusterSnapshot) -> list[asyncio.Task[None]]:
        """Ask the controllers of pods that left some time ago without a replacement whether they want one at all.

        Call it as often as you like.

        Args:
            snapshot: the cluster, as the watch shows it.

        Returns:
            The tasks that ask.
        """
        now = self._clock()
        late = self._evictions.register.in_flight.unreplaced_since(now - LATE_SECONDS)
        self._asked_after_at = {move.pod.uid: self._asked_after_at.get(move.pod.uid, -inf) for move in late}
        due = [move for move in late if now - self._asked_after_at[move.pod.uid] >= LATE_SECONDS]
        self._asked_after_at.update((move.pod.uid, now) for move in due)
        return [self._evictions.lanes.start((), self._ask_after(move, snapshot)) for move in due]

    async def _ask_after(self, move: Move, snapshot: ClusterSnapshot) -> None:
        async with self._at_once:
            wanted = await self._owners.wants_replacement(move.pod, snapshot)
        if not wanted:
            self._evictions.register.not_wanted(move)
            self._notify()

    def _unanswered(self, least_seconds: float) -> list[Move]:
        """Return the moves that are to be asked for again, but for those that are being asked for."""
        asking = self._evictions.lanes.moves()
        unanswered = self._evictions.register.in_flight.unanswered(self._clock(), least_seconds)
        return [move for move in unanswered if move.pod.uid not in asking]

    def _ask_at(self, move: Move) -> float:
        """Return when a move that may not have been made is to be asked for again, on the clock."""
        in_flight = self._evictions.register.in_flight
        asked_at = max(self._asked_again_at.get(move.pod.uid, -inf), in_flight.sent_at(move))
        return asked_at + (OWED_SECONDS if in_flight.is_owed(move) else UNANSWERED_SECONDS)
