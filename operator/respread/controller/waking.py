"""When the next reconcile starts and the next plan is made: after collected changes, or when something is due.

Long computations run in a thread, so that the Lease is renewed and probes are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from math import inf
from time import thread_time
from typing import Final, ParamSpec, TypeVar

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.eviction.pacing import HeldMove
from respread.handlers.informer import ChangeSignal
from respread.planning.plan import Plan
from respread.telemetry.health import Heartbeat
from respread.timing import ClockReading, GrowingPause

_P = ParamSpec("_P")
_T = TypeVar("_T")

GATHER_SECONDS: Final = 0.05
"""The minimum time for which changes are collected, because they rarely come alone."""
LONGEST_GATHER_SECONDS: Final = 5.0
"""If reconciles compute for long, changes are collected for as long as the CPU time of the last one, so that planning
takes at most half of a core. Waiting does not count, for answers as for a CPU."""
BEAT_SECONDS: Final = 10.0
"""The heartbeat beats this often, however quiet the cluster is."""
FAILURE_PAUSE: Final = GrowingPause(first_seconds=2.0, longest_seconds=60.0)
"""The pause after failed reconciles."""
LOOP_LIMIT_SECONDS: Final = 2 * FAILURE_PAUSE.longest_seconds + BEAT_SECONDS
"""A control loop that has not run for this long is stuck, or fails again and again."""
WAITING_SECONDS: Final = 1.0
"""While something waits for a condition without events."""
IDLE_SECONDS: Final = 60.0
"""In any case: for a window that opens, an hour that is over, a bug in change notifications."""
SOON_SECONDS: Final = 10.0
"""While moves are held by something that ends within minutes: `limits.perHour`, a window."""

_SOON: Final = frozenset({Reason.LIMIT_REACHED, Reason.WINDOW_CLOSED})
ENOUGH_SHARE: Final = 0.1
"""A plan is made at once when this share of the moves in flight has ended, and at least one."""
ENDED_SECONDS: Final = 0.2
"""The maximum time for which places stay free until enough are, or a replacement has a node that other moves wait for.
A replacement takes much longer."""
PROGRESS_SECONDS: Final = 0.5
"""How soon after the last plan the next one is made if no move has ended. An eviction brings about five changes (the
pod is being deleted, is gone, its replacement exists, has a node, is Ready); only the last one makes a place free."""
FULL_SECONDS: Final = 5.0
"""How soon the next plan is made after a change, or because a quiet period or protection ends, if every policy has as
many moves in flight as it may: no plan could let go more, and only statuses and metrics show the difference."""


def heartbeat_of_loop(clock: Callable[[], float]) -> Heartbeat:
    """Return the heartbeat that `Waiting` beats, for the control loop."""
    return Heartbeat("control-loop", limit_seconds=LOOP_LIMIT_SECONDS, clock=clock)


class Waiting:
    """Waits between reconciles, while the heartbeat beats. It belongs to one event loop."""

    def __init__(self, changes: ChangeSignal, heartbeat: Heartbeat, clock: Callable[[], float]) -> None:
        """The heartbeat beats after every successful reconcile, and during every wait for a change."""
        self._changes = changes
        self._heartbeat = heartbeat
        self._clock = clock
        self._failures = 0
        self._gather_seconds = GATHER_SECONDS
        self._stop = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether there will be no more reconciles."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End every wait at once."""
        self._stop.set()
        self._changes.notify("stop")

    def succeeded(self, computed_seconds: float) -> None:
        """Record that a reconcile succeeded, and its CPU time."""
        self._failures = 0
        self._heartbeat.beat()
        self._gather_seconds = min(max(GATHER_SECONDS, computed_seconds), LONGEST_GATHER_SECONDS)

    def failed(self) -> float:
        """Record that a reconcile failed, and return the pause in seconds, longer each time."""
        self._failures += 1
        return FAILURE_PAUSE.seconds(self._failures)

    async def until(self, wake_at: float) -> None:
        """Wait for a change or a time on the clock, then collect more changes."""
        while (left := wake_at - self._clock()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_SECONDS)):
                    await self._changes.wait()
                    break
            self._heartbeat.beat()
        await self.pause(self._gather_seconds)
        self._changes.take()

    async def pause(self, seconds: float) -> None:
        """Wait, but not for long after a stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def next_plan(planned: Plan, held: Iterable[HeldMove], *, moment: ClockReading, others: float, full: bool) -> float:
    """Return when the next plan is due if nothing changes, on the clock.

    `others` is when something else is due. If `full`, no policy may let another pod go, and quiet periods that end make
    no difference yet.
    """
    now = moment.now
    due = [now + IDLE_SECONDS, others]
    if planned.changes_at is not None:
        changes_at = moment.on_the_clock(planned.changes_at)
        due.append(max(changes_at, now + FULL_SECONDS) if full else changes_at)
    reasons = {each.reason for each in planned.blocked} | {each.held.reason for each in held}
    if Reason.API_UNAVAILABLE in reasons:
        due.append(now + WAITING_SECONDS)
    if reasons & _SOON:
        due.append(now + SOON_SECONDS)
    return max(min(due), now)


class Replanning:
    """Remembers what was in flight after the last plan. It belongs to one event loop."""

    def __init__(self) -> None:
        """Start without a plan: the first one is due at once."""
        self._awaited: AbstractSet[str] = frozenset()
        self._planned_at = self._chose_at = self._due = -inf
        self._full = False
        self._in_flight: AbstractSet[str] = frozenset()

    def planned(
        self,
        in_flight: AbstractSet[str],
        now: float,
        due: float,
        *,
        full: bool,
        awaited: AbstractSet[str] = frozenset(),
    ) -> None:
        """Record a plan.

        `in_flight` are the UIDs of the pods of all moves in flight after it, and `awaited` those of them whose
        replacements have no node, if others wait for that. If `full`, every policy has as many moves in flight as its
        `limits.inFlight`.
        """
        self._in_flight, self._planned_at, self._due, self._full = in_flight, now, due, full
        self._awaited, self._chose_at = awaited, now

    def went_on(self, in_flight: AbstractSet[str], now: float) -> None:
        """Record that more moves of the last plan were chosen."""
        self._in_flight, self._chose_at = in_flight, now

    def may_go_on(self, now: float) -> bool:
        """Return whether no plan is due for another reason than that moves have ended."""
        return now < min(self._due, self._planned_at + FULL_SECONDS)

    def due_at(self, in_flight: AbstractSet[str], without_node: AbstractSet[str] = frozenset()) -> float:
        """Return when the next plan is due, on the clock.

        The UIDs are those of the pods of moves in flight, all of them and those whose replacements have no node.
        """
        if not self._in_flight:
            return self._planned_at
        ended = len(self._in_flight - in_flight)
        if ended >= max(1.0, ENOUGH_SHARE * len(self._in_flight)):
            return self._planned_at
        if ended:
            return min(self._due, self._chose_at + ENDED_SECONDS)
        progress = ENDED_SECONDS if self._awaited - without_node else PROGRESS_SECONDS
        return min(self._due, self._planned_at + (FULL_SECONDS if self._full else progress))


def is_full(policies: Iterable[Policy], moves: Mapping[str, int]) -> bool:
    """Return whether every policy that evicts has as many moves in flight as its `limits.inFlight`, by their names."""
    evicting = [policy for policy in policies if policy.spec.mode != "DryRun" and not policy.problems]
    return bool(evicting) and all(moves.get(policy.name, 0) >= policy.spec.limits.in_flight for policy in evicting)


class PlanningThread:
    """A thread of its own, because asyncio's threads are for credentials and name resolution, which can't wait."""

    def __init__(self, executor: Executor | None = None, cpu_clock: Callable[[], float] = thread_time) -> None:
        """Create it. In simulated time, tests compute without a thread, and give another clock for its CPU time."""
        self._cpu_clock = cpu_clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="planning") if executor is None else executor
        self._computed_seconds = 0.0

    async def compute(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Compute in the thread, while the event loop continues."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self._timed, partial(work, *args, **kwargs)
        )

    def _timed(self, work: Callable[[], _T]) -> _T:
        started = self._cpu_clock()
        try:
            return work()
        finally:
            self._computed_seconds += self._cpu_clock() - started

    def take_seconds(self) -> float:
        """Return the CPU time of what was computed since the last call.

        Not the time that passed: where other processes have the CPUs, it is many times as long, and says nothing of
        what the next computation takes from others.
        """
        seconds, self._computed_seconds = self._computed_seconds, 0.0
        return seconds
