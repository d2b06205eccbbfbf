"""Carrying out the moves that were chosen: one last look at each, then the eviction, and a note of what was done.

Moves of one controller are made one after another, those of different ones at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import inf
from time import time
from typing import Final

import msgspec

from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer
from respread.eviction.eviction_api import TIMEOUT_SECONDS, EvictionApi
from respread.eviction.in_flight import Ended, InFlight
from respread.eviction.outcomes import Compare
from respread.eviction.owners import Owners
from respread.eviction.refusals import Budgets, Refusals
from respread.planning.budgets import BudgetLedger
from respread.planning.held import Held
from respread.planning.plan import Move

AT_ONCE: Final = 16
"""Requests that are made at the same time: an API server serves a few hundred, and others want some too."""
UNANSWERED_SECONDS: Final = 5.0
"""How long after an eviction without an answer it is asked for again, if its pod is still there."""
LATE_SECONDS: Final = 5.0
"""How long a replacement may be missing before its controller is asked
whether it wants one."""

MayEvict = Callable[[Move], Held | None]
"""Asked before every step of a move, and last right before its eviction is sent; what it returns stands in the way."""


class Flights:
    """The moves under way, as they stand now: an `InFlight` that changes while moves are carried out."""

    __slots__ = ("clock", "now", "wall_clock")

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float] = time) -> None:
        """Begin with none.

        Args:
            clock: seconds that never go back.
            wall_clock: seconds since the epoch.
        """
        self.clock = clock
        self.wall_clock = wall_clock
        self.now = InFlight()

    def sent(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Note a move right before its eviction is sent."""
        self.now = self.about_to_send((move,), snapshot)

    def about_to_send(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> InFlight:
        """Return how things will stand when some moves are sent: for whoever writes that down first."""
        in_flight = self.now
        for move in moves:
            in_flight = in_flight.sent(move, snapshot, self.clock(), self.wall_clock())
        return in_flight

    def answered(self, move: Move, answer: Answer | None) -> None:
        """Note what the API server said to a move's eviction."""
        self.now = self.now.answered(move, answer, self.clock())

    def not_wanted(self, move: Move) -> None:
        """Note that a move's controller wants no replacement."""
        self.now = self.now.not_wanted(move)

    def update(self, snapshot: ClusterSnapshot, compare: Compare) -> tuple[Ended, ...]:
        """Take over what the watch shows, and return the moves that are over by it."""
        self.now, ended = self.now.updated(snapshot, self.clock(), compare)
        return ended


class Carried(msgspec.Struct, frozen=True):
    """A move, and what came of it: the API server's answer, or why it was not even asked."""

    move: Move
    result: Answer | Held


class Carrier:
    """Makes moves."""

    __slots__ = (
        "_again_at",
        "_api",
        "_asked_at",
        "_at_once",
        "_exclusive_seconds",
        "_may_evict",
        "_owners",
        "_refusals",
        "flights",
    )

    def __init__(
        self,
        api: EvictionApi,
        owners: Owners,
        flights: Flights,
        refusals: Refusals,
        *,
        may_evict: MayEvict,
        exclusive_seconds: Callable[[], float] = lambda: TIMEOUT_SECONDS,
    ) -> None:
        """Make moves through the API server.

        Args:
            api: the Eviction API.
            owners: how to look at controllers.
            flights: where moves are noted, before and after their evictions are sent.
            refusals: what the API server refused before.
            may_evict: whether a move may be made at this moment: whether we lead, its policy is still there and still
                enforces.
            exclusive_seconds: for how long nobody else can lead (`Elector.exclusive_seconds`); an eviction that is not
                answered by then is dropped, and counts as one that may have been made.
        """
        self._api = api
        self._owners = owners
        self._refusals = refusals
        self._may_evict = may_evict
        self._exclusive_seconds = exclusive_seconds
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asked_at: dict[str, float] = {}
        self._again_at: dict[str, float] = {}
        self.flights = flights

    async def carry_out(
        self, moves: Sequence[Move], snapshot: ClusterSnapshot, grace_period_seconds: Callable[[Move], int | None]
    ) -> tuple[Carried, ...]:
        """Make moves, and return what came of each, in their order.

        If it is cancelled, evictions that were sent and not answered stay in `flights`.

        Args:
            moves: those that may all be made now.
            snapshot: the cluster that they were planned on, as the watch shows it.
            grace_period_seconds: what a move's policy says of it.
        """
        self._owners.forget()
        ledger = BudgetLedger(snapshot, self.flights.now.pods(snapshot))
        lanes: dict[str, list[Move]] = {}
        for move in moves:
            controller = move.pod.controller
            lanes.setdefault(move.pod.uid if controller is None else controller.uid, []).append(move)
        carried: dict[str, Answer | Held] = {}

        async def one_after_another(lane: Sequence[Move]) -> None:
            for move in lane:
                async with self._at_once:
                    carried[move.pod.uid] = await self._within_budget(
                        move, snapshot, ledger, grace_period_seconds(move)
                    )

        async with asyncio.TaskGroup() as group:
            for lane in lanes.values():
                group.create_task(one_after_another(lane))
        return tuple(Carried(move, carried[move.pod.uid]) for move in moves)

    async def ask_again(
        self,
        snapshot: ClusterSnapshot,
        still_wanted: Callable[[Move], bool],
        grace_period_seconds: Callable[[Move], int | None],
    ) -> tuple[Carried, ...]:
        """Ask once more for evictions that were never answered, so that nobody has to wait until they must have failed.

        It is the same pod, by its UID: whether or not the first request arrives some day, it is evicted once.

        Args:
            snapshot: the cluster, as the watch shows it.
            still_wanted: whether a move would help as things are now.
            grace_period_seconds: what a move's policy says of it.

        Returns:
            What came of it, for those that were asked for.
        """
        now = self.flights.clock()
        unanswered = self.flights.now.unanswered(now, UNANSWERED_SECONDS)
        due = [
            move
            for move in unanswered
            if now - self._again_at.get(move.pod.uid, -inf) >= UNANSWERED_SECONDS and still_wanted(move)
        ]
        self._again_at = {move.pod.uid: self._again_at.get(move.pod.uid, -inf) for move in unanswered}
        self._again_at.update((move.pod.uid, now) for move in due)
        if due:
            self._owners.forget()
        return tuple([Carried(move, await self._repeat(move, snapshot, grace_period_seconds(move))) for move in due])

    async def _repeat(self, move: Move, snapshot: ClusterSnapshot, grace_period_seconds: int | None) -> Answer | Held:
        others = self.flights.now.without(move)
        held = self._may_evict(move) or await self._owners.why_not_at_rest(move, snapshot, others)
        if held is not None:
            return held
        answer = await self._api.evict(
            move.pod,
            gate=lambda: self._may_evict(move),
            grace_period_seconds=grace_period_seconds,
            time_left=self._exclusive_seconds,
        )
        # A refusal says nothing of the request before, which may still be on its way.
        if isinstance(answer, Answer) and answer.evicted:
            self.flights.answered(move, answer)
        return answer

    async def look_after(self, snapshot: ClusterSnapshot) -> None:
        """Ask the controllers of pods that left some time ago without a replacement whether they want one at all.

        Call it before `Flights.update`, as often as you like.

        Args:
            snapshot: the cluster, as the watch shows it.
        """
        now = self.flights.clock()
        late = self.flights.now.unreplaced_since(now - LATE_SECONDS)
        self._asked_at = {move.pod.uid: self._asked_at.get(move.pod.uid, -inf) for move in late}
        async with asyncio.TaskGroup() as group:
            for move in late:
                if now - self._asked_at[move.pod.uid] >= LATE_SECONDS:
                    self._asked_at[move.pod.uid] = now
                    group.create_task(self._ask_after(move, snapshot))

    async def _ask_after(self, move: Move, snapshot: ClusterSnapshot) -> None:
        async with self._at_once:
            if not await self._owners.wants_replacement(move.pod, snapshot):
                self.flights.not_wanted(move)

    async def _within_budget(
        self, move: Move, snapshot: ClusterSnapshot, ledger: BudgetLedger, grace_period_seconds: int | None
    ) -> Answer | Held:
        """Make a move if its budget has room beside the others of the wave, which need not know of each other."""
        verdict = ledger.verdict(move.pod)
        if isinstance(verdict, Held):
            return verdict
        ledger.take(move.pod)
        result = await self._make(move, snapshot, ledger.budgets_of(move.pod), grace_period_seconds)
        if isinstance(result, Held) or not result.may_have_evicted:
            ledger.give_back(move.pod)
        return result

    async def _make(
        self, move: Move, snapshot: ClusterSnapshot, budgets: Budgets, grace_period_seconds: int | None
    ) -> Answer | Held:
        pod = move.pod
        if (held := self._may_evict(move) or self._refusals.why_not(pod, budgets)) is not None:
            return held
        held = await self._owners.why_not_at_rest(move, snapshot, self.flights.now)
        if held is not None:
            return held

        def gate() -> Held | None:
            if (why_not := self._may_evict(move)) is None:
                self.flights.sent(move, snapshot)
            return why_not

        answer = await self._api.evict(
            pod, gate=gate, grace_period_seconds=grace_period_seconds, time_left=self._exclusive_seconds
        )
        if isinstance(answer, Answer):
            self.flights.answered(move, answer)
            self._refusals.note(pod, budgets, answer)
        return answer
