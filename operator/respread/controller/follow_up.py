"""Follows up evictions that may not have been made, or whose replacement is late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from respread.cluster.state import ClusterSnapshot
from respread.controller.evictions import Batch, Carried, Evictions
from respread.controller.records.doubts import Doubt, Doubts
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.owners.last_look import Owners
from respread.planning.plan import Move

UNANSWERED_SECONDS: Final = 5.0
"""How long after an eviction without an answer it is sent again, if its pod still exists."""
OWED_SECONDS: Final = 1.0
"""How long after a refusal it is sent again, if others of its step were made."""
LATE_SECONDS: Final = 5.0
"""How long a replacement may be missing before Respread checks whether its controller wants one."""
AT_ONCE: Final = 8
"""The number of controllers and of pods that are read at the same time."""


class FollowUp:
    """Follows up when it is time, in tasks beside the reconciles."""

    def __init__(
        self,
        evictions: Evictions,
        owners: Owners,
        api: EvictionApi,
        doubts: Doubts,
        *,
        notify: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Start without tasks.

        Args:
            evictions: carries out moves, and knows which are in flight.
            owners: reads controllers.
            api: reads pods.
            doubts: the moves that may not have been made.
            notify: called when a controller does not want a replacement, and when a doubt is resolved.
            clock: a monotonic clock in seconds.
        """
        self._evictions = evictions
        self._owners = owners
        self._api = api
        self._doubts = doubts
        self._notify = notify
        self._clock = clock
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asked_again_at: dict[str, float] = {}
        """By the UIDs of the pods, like the next one."""
        self._asked_after_at: dict[str, float] = {}

    def ask_again(self, batch: Batch, still_wanted: Callable[[Move], bool]) -> list[asyncio.Task[tuple[Carried, ...]]]:
        """Send evictions without an answer again, so that it is not necessary to wait until they must have failed.

        The UID identifies the pod: even if the first request arrives later, the pod is evicted once.

        Args:
            batch: the current cluster and policies.
            still_wanted: returns whether a move would help now.

        Returns:
            The tasks that send them.
        """
        now, ledger = self._clock(), self._evictions.journal.ledger
        unanswered = self._unanswered(OWED_SECONDS)
        due = [
            move for move in unanswered if self._ask_at(move) <= now and (ledger.is_owed(move) or still_wanted(move))
        ]
        self._asked_again_at = {move.pod.uid: self._asked_again_at.get(move.pod.uid, -inf) for move in unanswered}
        self._asked_again_at.update((move.pod.uid, now) for move in due)
        return [self._evictions.lanes.start((move,), self._evictions.repeat(move, batch)) for move in due]

    def next_ask(self) -> float | None:
        """Return when `ask_again` may have something to send, on the clock; None if it has not."""
        unanswered = self._unanswered(0)
        return max(min(map(self._ask_at, unanswered)), self._clock() + OWED_SECONDS) if unanswered else None

    def look_after(self, snapshot: ClusterSnapshot) -> list[asyncio.Task[None]]:
        """Check whether the controllers of pods that left some time ago without a replacement want one.

        It may be called at any time.

        Args:
            snapshot: the cluster, as the watch shows it.

        Returns:
            The tasks that check.
        """
        now = self._clock()
        late = self._evictions.journal.ledger.unreplaced_since(now - LATE_SECONDS)
        self._asked_after_at = {move.pod.uid: self._asked_after_at.get(move.pod.uid, -inf) for move in late}
        due = [move for move in late if now - self._asked_after_at[move.pod.uid] >= LATE_SECONDS]
        self._asked_after_at.update((move.pod.uid, now) for move in due)
        return [self._evictions.lanes.start((), self._ask_after(move, snapshot)) for move in due]

    def find_out(self) -> list[asyncio.Task[None]]:
        """Check whether moves that Respread has given up on were made, once no request for them can be on its way.

        Returns:
            The tasks that check.
        """
        due = self._doubts.due(self._evictions.journal.ledger, self._evictions.lanes.moves())
        return [self._evictions.lanes.start((), self._find_out(doubt)) for doubt in due]

    def next_find(self) -> float | None:
        """Return when `find_out` may have something to check, on the clock; None if it has not."""
        return self._doubts.next_due(self._evictions.journal.ledger)

    async def _find_out(self, doubt: Doubt) -> None:
        async with self._at_once:
            untouched = await self._api.is_untouched(doubt.move.pod)
        is_chosen_again = doubt.move.pod.uid in self._evictions.lanes.moves()
        if untouched is None or is_chosen_again or not self._doubts.holds(doubt):
            return
        self._doubts.resolve(doubt.move, made=not untouched)
        self._notify()

    async def _ask_after(self, move: Move, snapshot: ClusterSnapshot) -> None:
        async with self._at_once:
            wanted = await self._owners.wants_replacement(move.pod, snapshot)
        if not wanted:
            self._evictions.journal.not_wanted(move)
            self._notify()

    def _unanswered(self, least_seconds: float) -> list[Move]:
        """Return the moves to send again, except those that are being sent."""
        asking = self._evictions.lanes.moves()
        unanswered = self._evictions.journal.ledger.unanswered(self._clock(), least_seconds)
        return [move for move in unanswered if move.pod.uid not in asking]

    def _ask_at(self, move: Move) -> float:
        """Return when a move that may not have been made is to be sent again, on the clock."""
        ledger = self._evictions.journal.ledger
        asked_at = max(self._asked_again_at.get(move.pod.uid, -inf), ledger.sent_at(move))
        return asked_at + (OWED_SECONDS if ledger.is_owed(move) else UNANSWERED_SECONDS)
