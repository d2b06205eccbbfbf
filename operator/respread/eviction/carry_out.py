"""Carrying out the moves that were chosen: one last look at each, then the eviction, and a note of what was done.

Steps of one controller are made one after another, those of different ones at the same time. A step is begun only if
nothing speaks against any of its moves; once one of them is made, the others are owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from math import inf
from time import time
from typing import Final

import msgspec
from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer
from respread.eviction.eviction_api import TIMEOUT_SECONDS, EvictionApi
from respread.eviction.in_flight import Ended, InFlight
from respread.eviction.outcomes import Compare
from respread.eviction.owners.last_look import Owners
from respread.eviction.refusals import Budgets, Refusals
from respread.eviction.steps import Step, lanes_of, steps_of
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.victims.budgets import BudgetLedger

AT_ONCE: Final = 16
"""Requests that are made at the same time: an API server serves a few hundred, and others want some too."""
UNANSWERED_SECONDS: Final = 5.0
"""How long after an eviction without an answer it is asked for again, if its pod is still there."""
OWED_SECONDS: Final = 1.0
"""How long after a refusal it is asked for again, if others of its step were made."""
LATE_SECONDS: Final = 5.0
"""How long a replacement may be missing before its controller is asked
whether it wants one."""

MayEvict = Callable[[Move], Held | None]
"""Asked before every step of a move, and last right before its eviction is sent; what it returns stands in the way."""
WriteDown = Callable[[Sequence[Move]], Awaitable[Collection[str]]]
"""Writes down moves that are about to be made; returns the UIDs of the pods for which that failed: they stay."""


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

    def owed(self, move: Move, snapshot: ClusterSnapshot) -> None:
        """Note that a move was refused although others of its step were made."""
        self.now = self.about_to_send((move,), snapshot).owed(move)

    def be_patient(self, ready_seconds: Callable[[str], float]) -> None:
        """Wait for replacements to become Ready for as long as the moves' policies, by name, say."""
        by_policy = Map({move.policy: ready_seconds(move.policy) for move in self.now.moves})
        self.now = self.now.patient(msgspec.structs.replace(self.now.patience, ready_seconds=by_policy))

    def not_wanted(self, move: Move) -> None:
        """Note that a move's controller wants no replacement."""
        self.now = self.now.not_wanted(move)

    def update(self, snapshot: ClusterSnapshot, compare: Compare) -> tuple[Ended, ...]:
        """Take over what the watch shows, and return the moves that are over by it."""
        self.now, ended = self.now.updated(snapshot, self.clock(), compare)
        return ended


async def nothing_written_down(_: Sequence[Move]) -> Collection[str]:
    """Write nothing down: for who need not know of it after a crash."""
    return ()


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
        "flights",
        "refusals",
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
        self.refusals = refusals
        self._may_evict = may_evict
        self._exclusive_seconds = exclusive_seconds
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asked_at: dict[str, float] = {}
        self._again_at: dict[str, float] = {}
        self.flights = flights

    async def carry_out(
        self,
        moves: Sequence[Move],
        snapshot: ClusterSnapshot,
        grace_period_seconds: Callable[[Move], int | None],
        write_down: WriteDown = nothing_written_down,
    ) -> tuple[Carried, ...]:
        """Make moves, and return what came of each, in their order.

        If it is cancelled, evictions that were sent and not answered stay in `flights`.

        Args:
            moves: those that may all be made now; of every step all or none.
            snapshot: the cluster that they were planned on, as the watch shows it.
            grace_period_seconds: what a move's policy says of it.
            write_down: called once, with all that nothing speaks against, before the first of them is made.
        """
        self._owners.forget()
        wave = _Wave(snapshot, BudgetLedger(snapshot, self.flights.now.pods(snapshot)), grace_period_seconds)
        lanes = lanes_of(steps_of(moves))
        await self._each(lanes, lambda step: self._look_at(step, wave))
        ready = [move for move in moves if move.pod.uid not in wave.results]
        unwritten = set(await write_down(ready)) if ready else set()
        await self._each(lanes, lambda step: self._make(step, wave, unwritten))
        return tuple(Carried(move, wave.results[move.pod.uid]) for move in moves)

    async def _each(self, lanes: Sequence[Sequence[Step]], do: Callable[[Step], Awaitable[None]]) -> None:
        """Do something to every step: lanes at the same time, the steps of each one after another."""

        async def one_after_another(lane: Sequence[Step]) -> None:
            for step in lane:
                async with self._at_once:
                    await do(step)

        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(one_after_another(lane))

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
        unanswered = self.flights.now.unanswered(now, OWED_SECONDS)
        due = [
            move
            for move in unanswered
            if self._ask_at(move) <= now and (self.flights.now.is_owed(move) or still_wanted(move))
        ]
        self._again_at = {move.pod.uid: self._again_at.get(move.pod.uid, -inf) for move in unanswered}
        self._again_at.update((move.pod.uid, now) for move in due)
        if due:
            self._owners.forget()
        return tuple([Carried(move, await self._repeat(move, snapshot, grace_period_seconds(move))) for move in due])

    def next_ask(self) -> float | None:
        """Return when `ask_again` may have something to ask for, on the clock; None where it has not."""
        now = self.flights.clock()
        unanswered = self.flights.now.unanswered(now, 0)
        return max(min(map(self._ask_at, unanswered)), now + OWED_SECONDS) if unanswered else None

    def _ask_at(self, move: Move) -> float:
        """Return when a move that may not have been made is to be asked for again, on the clock."""
        asked_at = max(self._again_at.get(move.pod.uid, -inf), self.flights.now.sent_at(move))
        return asked_at + (OWED_SECONDS if self.flights.now.is_owed(move) else UNANSWERED_SECONDS)

    async def _repeat(self, move: Move, snapshot: ClusterSnapshot, grace_period_seconds: int | None) -> Answer | Held:
        others = self.flights.now.without(move)
        ledger = BudgetLedger(snapshot, others.pods(snapshot))
        verdict, budgets = ledger.verdict(move.pod), ledger.budgets_of(move.pod)
        if isinstance(verdict, Held):
            return verdict
        if (held := await self._why_not(move, snapshot, budgets, others)) is not None:
            return held
        answer = await self._api.evict(
            move.pod,
            gate=lambda: self._may_evict(move),
            grace_period_seconds=grace_period_seconds,
            time_left=self._exclusive_seconds,
        )
        if isinstance(answer, Answer):
            self.refusals.note(move.pod, budgets, answer)
            # Where the request before was not answered, a refusal says nothing of it: it may still be on its way.
            if answer.may_have_evicted or (answer.held is None and self.flights.now.is_owed(move)):
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

    async def _look_at(self, step: Step, wave: _Wave) -> None:
        """Take what a step needs of its budgets; where something speaks against any of its moves, note that for all."""
        held = wave.take(step)
        for move in step:
            if held is None:
                budgets = wave.ledger.budgets_of(move.pod)
                held = await self._why_not(move, wave.snapshot, budgets, self.flights.now, together=step)
                if held is not None:
                    wave.give_back(step)
        if held is None and len(step) > 1:
            held = await self._rehearse(step, wave)
        if held is not None:
            wave.hold(step, held)

    async def _rehearse(self, step: Step, wave: _Wave) -> Held | None:
        """Ask the API server whether it would evict each pod of a step, so that it is not begun in vain."""
        for move in step:
            answer = await self._api.evict(move.pod, gate=partial(self._may_evict, move), dry_run=True)
            if isinstance(answer, Held) or not answer.evicted:
                wave.give_back(step)
                if isinstance(answer, Held):
                    return answer
                self.refusals.note(move.pod, wave.ledger.budgets_of(move.pod), answer)
                return answer.held or Held(Reason.IN_MOTION, f"{move.pod.name} has gone by itself")
        return None

    async def _make(self, step: Step, wave: _Wave, unwritten: Collection[str]) -> None:
        """Make a step's moves; once one of them is made, the others are owed."""
        if any(move.pod.uid in wave.results for move in step):
            return
        if any(move.pod.uid in unwritten for move in step):
            wave.give_back(step)
            wave.hold(step, Held(Reason.API_UNAVAILABLE, "it could not be written down in its policy's status"))
            return
        begun = False
        for number, move in enumerate(step):
            result = await self._evict(move, wave)
            wave.results[move.pod.uid] = result
            held = result if isinstance(result, Held) else result.held
            if isinstance(result, Answer) and result.may_have_evicted:
                begun = True
            elif held is None:
                wave.give_back((move,))  # it has gone by itself
            elif begun:
                self.flights.owed(move, wave.snapshot)
            else:
                wave.give_back(step[number:])
                wave.hold(step[number + 1 :], held)
                return

    async def _evict(self, move: Move, wave: _Wave) -> Answer | Held:
        budgets = wave.ledger.budgets_of(move.pod)
        held = await self._why_not(move, wave.snapshot, budgets, self.flights.now)
        if held is not None:
            return held

        def gate() -> Held | None:
            if (why_not := self._may_evict(move)) is None:
                self.flights.sent(move, wave.snapshot)
            return why_not

        answer = await self._api.evict(
            move.pod,
            gate=gate,
            grace_period_seconds=wave.grace_period_seconds(move),
            time_left=self._exclusive_seconds,
        )
        if isinstance(answer, Answer):
            self.flights.answered(move, answer)
            self.refusals.note(move.pod, budgets, answer)
        return answer

    async def _why_not(
        self, move: Move, snapshot: ClusterSnapshot, budgets: Budgets, in_flight: InFlight, *, together: Step = ()
    ) -> Held | None:
        """Return what stands in a move's way, its budgets aside; what lasts is remembered, for planning to do without.

        Args:
            move: the move.
            snapshot: the cluster that it was planned on.
            budgets: those that select its pod.
            in_flight: the moves under way besides.
            together: those of its step, if none of them is made yet.
        """
        if (held := self._may_evict(move) or self.refusals.why_not(move.pod, budgets)) is not None:
            return held
        if (held := await self._owners.why_not_at_rest(move, snapshot, in_flight, together)) is not None:
            self.refusals.hold(move.pod, held)
        return held


class _Wave:
    """Moves that are carried out together, and what has come of them."""

    __slots__ = ("grace_period_seconds", "ledger", "results", "snapshot")

    def __init__(
        self, snapshot: ClusterSnapshot, ledger: BudgetLedger, grace_period_seconds: Callable[[Move], int | None]
    ) -> None:
        self.snapshot = snapshot
        self.ledger = ledger
        self.grace_period_seconds = grace_period_seconds
        self.results: dict[str, Answer | Held] = {}

    def take(self, step: Step) -> Held | None:
        """Take what a step needs of its budgets, beside the others of the wave, or return why there is not as much."""
        for number, move in enumerate(step):
            verdict = self.ledger.verdict(move.pod)
            if isinstance(verdict, Held):
                self.give_back(step[:number])
                return verdict
            self.ledger.take(move.pod)
        return None

    def give_back(self, moves: Iterable[Move]) -> None:
        """Give back what moves that are not made have taken."""
        for move in moves:
            self.ledger.give_back(move.pod)

    def hold(self, moves: Sequence[Move], held: Held) -> None:
        """Note why moves are not made."""
        for move in moves:
            self.results[move.pod.uid] = held
