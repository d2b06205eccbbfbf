"""Follows up evictions that may not have been made, or whose replacement is late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from respread.cluster.state import ClusterSnapshot
from respread.controller.evictions import Batch, Carried, Evictions
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.owners.last_look import Owners
from respread.moves.entry import MoveEntry
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
        *,
        hurry: Callable[[Iterable[str]], None],
        notify: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Start without tasks.

        `hurry` is called with the names of the policies whose records must be written soon, `notify` when a controller
        does not want a replacement, and when a doubt is resolved.
        """
        self._evictions = evictions
        self._owners = owners
        self._api = api
        self._hurry = hurry
        self._notify = notify
        self._clock = clock
        self._at_once = asyncio.Semaphore(AT_ONCE)

    def ask_again(self, batch: Batch, still_wanted: Callable[[Move], bool]) -> list[asyncio.Task[tuple[Carried, ...]]]:
        """Send evictions without an answer again, so that it is not necessary to wait until they must have failed.

        The UID identifies the pod: even if the first request arrives later, the pod is evicted once. Those are sent for
        which `still_wanted` returns that the move would help now. It returns the tasks that send them.
        """
        now = self._clock()
        due = [
            each.move
            for each in self._unanswered(OWED_SECONDS)
            if _ask_at(each) <= now and (each.is_owed or still_wanted(each.move))
        ]
        self._evictions.journal.asked(due)
        return [self._evictions.lanes.start((move,), self._evictions.repeat(move, batch)) for move in due]

    def next_ask(self) -> float:
        """Return when `ask_again` may have something to send, on the clock; infinity if it has not."""
        return max(min(map(_ask_at, self._unanswered(0)), default=inf), self._clock() + OWED_SECONDS)

    def look_after(self, snapshot: ClusterSnapshot) -> list[asyncio.Task[None]]:
        """Check whether the controllers of pods that left some time ago without a replacement want one.

        It may be called at any time, and returns the tasks that check.
        """
        due = self._evictions.journal.ledger.unreplaced_since(self._clock() - LATE_SECONDS)
        self._evictions.journal.asked(due)
        return [self._evictions.lanes.start((), self._ask_after(move, snapshot)) for move in due]

    def find_out(self) -> list[asyncio.Task[None]]:
        """Check whether moves that Respread has given up on were made, once no request for them can be on its way.

        It returns the tasks that check.
        """
        due = self._evictions.journal.ledger.due(self._clock(), self._evictions.lanes.moves())
        self._evictions.journal.asked(each.move for each in due)
        return [self._evictions.lanes.start((), self._find_out(each)) for each in due]

    async def _find_out(self, entry: MoveEntry) -> None:
        async with self._at_once:
            untouched = await self._api.is_untouched(entry.move.pod)
        if untouched is None or entry.uid in self._evictions.lanes.moves():
            return
        if self._evictions.journal.resolve(entry, made=not untouched):
            self._hurry((entry.move.policy,))
            self._notify()

    async def _ask_after(self, move: Move, snapshot: ClusterSnapshot) -> None:
        async with self._at_once:
            wanted = await self._owners.wants_replacement(move.pod, snapshot)
        if not wanted:
            self._evictions.journal.not_wanted(move)
            self._notify()

    def _unanswered(self, least_seconds: float) -> list[MoveEntry]:
        """Return the moves to send again, except those that are being sent."""
        asking = self._evictions.lanes.moves()
        unanswered = self._evictions.journal.ledger.unanswered(self._clock(), least_seconds)
        return [each for each in unanswered if each.uid not in asking]


def _ask_at(entry: MoveEntry) -> float:
    """Return when a move that may not have been made is to be sent again, on the clock."""
    return entry.asked_at + (OWED_SECONDS if entry.is_owed else UNANSWERED_SECONDS)
