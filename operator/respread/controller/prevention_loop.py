"""Writes pod deletion costs while this replica leads: sends what `CostPlanner` decides, and reports the answers to it.

The control loop passes the state of the cluster at each reconcile. Everything else happens here, beside it, so that new
pods don't wait for evictions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from math import inf
from time import monotonic, time
from typing import Final

import msgspec

from respread.api.record import ContestedCosts, Recorded
from respread.cluster.state import ClusterSnapshot
from respread.controller.permission import Leading
from respread.kube.requests import Requests
from respread.kube.retry import Retry, WokenLoop
from respread.moves.entry import still_there
from respread.planning.victims.policies import PolicySetting
from respread.prevention.contests import recalled_contests
from respread.prevention.deletion_costs import DeletionCosts, Patch, PatchAnswer, PatchResult, Purpose
from respread.prevention.prevention import Answered, CostPlanner, View
from respread.prevention.ranks import Avoided, HeldCost
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import COSTS_LOST, EVICTIONS_AVOIDED, PREVENTION_PATCHES, Metrics
from respread.timing import ClockReading

_log: Final = get_logger(__name__)

AT_ONCE: Final = 8
"""The number of patches in progress at the same time."""
SLICE_SECONDS: Final = 0.02
"""How long ranks are computed before other tasks run."""
CAREFUL_SECONDS: Final = 60.0
"""For this time after it has become the leader, a replica reads each pod before it patches it, because the last leader
may have patched it just before."""
UNKNOWN_SECONDS: Final = 10.0
"""How long to wait for the watch to show a patch without an answer, before the pod is read."""
FORBIDDEN_SECONDS: Final = 60.0
"""How long a namespace is left alone after the patch of a pod there was forbidden, such as by admission."""
NOT_PERMITTED_SECONDS: Final = 15.0
"""How long a namespace is left alone where the permission is missing. This is about work, because nothing is sent."""
TELL_SECONDS: Final = 1.0
"""The shortest time between reports of other writers of costs, which may write in the whole cluster."""
_CERTAIN: Final = frozenset({PatchResult.APPLIED, PatchResult.ALREADY, PatchResult.FOREIGN, PatchResult.GONE})
"""Results after which the pod's cost is certain."""
_NOT_OURS: Final = HeldCost(0, ours=False)
"""The assumed cost of a pod that is to be left alone."""


class PreventionLoop:
    """Changes pod deletion costs to what they should be."""

    def __init__(
        self,
        requests: Requests,
        leading: Leading,
        *,
        metrics: Metrics,
        notify: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Create it. `notify` is called when `contested` has changed."""
        self._costs = DeletionCosts(requests)
        self._leading = leading
        self._metrics = metrics
        self._notify = notify
        self._clock = clock
        self._term: _CostTerm | None = None
        self._retry = Retry()
        self._paused_until = -inf
        self._unknown_until = -inf
        """Until when a patch without an answer may still be applied."""
        self._loop = WokenLoop(lambda: _log.exception("Working out pod deletion costs failed; it is tried again"))
        self.contested: Mapping[str, tuple[ContestedCosts, ...]] = {}
        """By policy, the ReplicaSets whose costs somebody else removes or replaces again and again, the worst first."""
        self._tell_at = -inf

    def observe(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        setting: PolicySetting,
        leaving: Collection[str],
        term: int | None,
        records: Iterable[Recorded],
    ) -> None:
        """Take over how the cluster stands.

        `leaving` are the UIDs of pods that are being evicted. The term is a number that differs whenever somebody else
        may have led since, None while this replica does not lead; a new one starts with the policies' records.
        """
        if term is None:
            self._term, self.contested = None, {}
            return
        if self._term is None or self._term.number != term:
            now = self._clock()
            contests = recalled_contests(records, ClockReading(now, time()))
            self.contested = {}
            self._term = _CostTerm(term, CostPlanner(now, contests), careful_until=now + CAREFUL_SECONDS)
            # What a term before left unanswered is not known in this one: reading tells it only once it is over.
            self._paused_until = max(self._paused_until, self._unknown_until)
        self._term.leaving = leaving
        if not self._term.needed:
            # Most clusters have no use for any of this: then it costs them nothing.
            enabled = any(policy.spec.prevention.pod_deletion_cost == "Enabled" for policy in setting.policies)
            ours = (pod.deletion_cost_is_ours for pod in snapshot.pods.values())
            self._term.needed = enabled or (self._term.is_new and any(ours))
            self._term.is_new = False
        if self._term.needed:
            self._term.snapshot = snapshot
            self._term.prevention.observe(View(snapshot, spread, setting.index, leaving))
            self._loop.wake()

    def stop(self) -> None:
        """End `run` when all sent requests are answered. Nothing more is sent."""
        self._loop.stop()

    async def run(self) -> None:
        """Write costs until stopped."""
        async with asyncio.TaskGroup() as sending:
            under_way: dict[asyncio.Task[None], _CostTerm] = {}
            await self._loop.run(partial(self._step, sending, under_way))

    async def _step(self, sending: asyncio.TaskGroup, under_way: dict[asyncio.Task[None], _CostTerm]) -> float:
        """Do everything that is due, and return the seconds until the next step unless something changes."""
        term = self._term
        if term is None or not term.needed:
            return inf
        prevention, now = term.prevention, self._clock()
        if not self._leading.leads():
            return 1.0
        if any(each is not term for each in under_way.values()):
            return inf  # a read would not show what a term before has still under way; its answer wakes us
        for avoided in prevention.examine(
            ClockReading(now, time()), has_time=lambda: self._clock() - now < SLICE_SECONDS
        ):
            self._tell_avoided(avoided)
        told_seconds = self._tell_contested(term, now)
        if not under_way and not prevention.waiting:
            self._tell_made(term)
        while len(under_way) < AT_ONCE and (request := self._next_request(term, now)) is not None:
            task = sending.create_task(request)
            under_way[task] = term
            task.add_done_callback(under_way.pop)
            task.add_done_callback(lambda _: self._loop.wake())
        wait_seconds = max(min(prevention.wait_seconds(now), term.next_unclear() - now), self._paused_until - now)
        if len(under_way) >= AT_ONCE:
            wait_seconds = inf  # whichever is answered first wakes us
        return min(wait_seconds, told_seconds, prevention.next_examination() - now)

    def _next_request(self, term: _CostTerm, now: float) -> Coroutine[None, None, None] | None:
        """Return what sends the next request and handles its answer, if one may be sent now."""
        if now < self._paused_until:
            return None
        if (unclear := term.take_unclear(now)) is not None:
            return self._send(self._clear_up, unclear, term)
        if (patch := term.prevention.take(now)) is not None:
            return self._send(self._ask, patch, term)
        return None

    async def _send(
        self, ask: Callable[[Patch, _CostTerm], Coroutine[None, None, None]], patch: Patch, term: _CostTerm
    ) -> None:
        try:
            await ask(patch, term)
        except Exception:  # noqa: BLE001 - a bug in here must not end what else the operator does
            _log.exception("Setting a pod deletion cost failed", pod=str(patch.pod.key))
            term.prevention.answered(patch, Answered(_NOT_OURS), self._clock())

    async def _ask(self, patch: Patch, term: _CostTerm) -> None:
        answer = None
        if term.still_wants(patch):
            answer = await self._costs.set(
                patch.pod,
                patch.cost,
                known=patch.before,
                replacing=patch.replacing,
                careful=self._clock() < term.careful_until or patch.unseen,
                may_send=lambda: self._term is term and self._leading.leads() and not self._loop.stopping,
                time_left=self._leading.exclusive_seconds,
            )
        if answer is not None and answer.result is not PatchResult.NOT_PERMITTED:
            self._metrics.count(PREVENTION_PATCHES, policy=patch.policy, result=answer.result)
        self._take(patch, answer, term)

    async def _clear_up(self, patch: Patch, term: _CostTerm) -> None:
        """Find out whether a patch was applied. Until then nothing else is decided about its pod."""
        answer = await self._costs.read(patch.pod, patch.before) if term.still_wants(patch) else None
        if answer is not None and answer.result not in _CERTAIN | {PatchResult.FORBIDDEN, PatchResult.NOT_PERMITTED}:
            answer = msgspec.structs.replace(answer, result=PatchResult.SERVER_ERROR)
        self._take(patch, answer, term)

    def _take(self, patch: Patch, answer: PatchAnswer | None, term: _CostTerm) -> None:
        """Process an answer; None if the patch was not applied, or does not matter any more."""
        now = self._clock()
        if answer is None:
            term.prevention.answered(patch, None, now)
        elif answer.result in {PatchResult.UNKNOWN, PatchResult.SERVER_ERROR}:
            until = now + UNKNOWN_SECONDS if answer.result is PatchResult.UNKNOWN else now
            term.unclear(patch, until)
            self._unknown_until = max(self._unknown_until, until)
            if term is not self._term:
                self._paused_until = max(self._paused_until, until)
            self._pause(patch, answer, now)
        else:
            term.prevention.answered(patch, self._known(patch, answer, term, now), now)

    def _known(self, patch: Patch, answer: PatchAnswer, term: _CostTerm, now: float) -> Answered | None:
        match answer.result:
            case PatchResult.APPLIED:
                self._retry.succeeded()
                term.made[patch.purpose] += 1
                made = None if patch.cost is None else HeldCost(patch.cost, ours=True)
                return Answered(made, written=True)
            case PatchResult.ALREADY:
                return Answered(answer.cost)
            case PatchResult.FOREIGN | PatchResult.GONE:
                return Answered(_NOT_OURS if answer.cost is None else answer.cost)
            case PatchResult.INVALID:
                _log.error("A pod deletion cost was refused", pod=str(patch.pod.key), error=answer.message)
                return Answered(_NOT_OURS)
            case PatchResult.NOT_PERMITTED:
                term.prevention.rest(patch.pod.namespace, now + NOT_PERMITTED_SECONDS)
            case PatchResult.FORBIDDEN:
                _log.warning("A pod deletion cost was forbidden", pod=str(patch.pod.key), error=answer.message)
                term.prevention.rest(patch.pod.namespace, now + FORBIDDEN_SECONDS)
            case _:
                self._pause(patch, answer, now)
        return None

    def _pause(self, patch: Patch, answer: PatchAnswer, now: float) -> None:
        pause = max(self._retry.failed(), answer.retry_after_seconds or 0.0)
        self._paused_until = max(self._paused_until, now + pause)
        _log.warning(
            "A pod deletion cost was not set; pausing",
            pod=str(patch.pod.key),
            result=answer.result,
            error=answer.message,
            pause_seconds=round(pause, 1),
        )

    def _tell_made(self, term: _CostTerm) -> None:
        if term.made:
            ranked, reranked, removed = (term.made[each] for each in (Purpose.RANK, Purpose.RERANK, Purpose.REMOVE))
            _log.info("Pod deletion costs set", ranked=ranked, reranked=reranked, removed=removed)
            term.made.clear()

    def _tell_avoided(self, avoided: Avoided) -> None:
        self._metrics.count(EVICTIONS_AVOIDED, avoided.evictions, policy=avoided.policy)
        _log.info(
            "Scaled down by pod deletion costs",
            namespace=avoided.replica_set.namespace,
            workload=str(avoided.replica_set.workload),
            pods=avoided.deleted,
            evictions_avoided=avoided.evictions,
        )

    def _tell_contested(self, term: _CostTerm, now: float) -> float:
        """Tell who else writes costs, and return for how many seconds there is nothing more to tell."""
        contests = term.prevention.contests
        if contests.version == term.told:
            return inf
        if now < self._tell_at:
            return self._tell_at - now
        term.told, self._tell_at = contests.version, now + TELL_SECONDS
        for policy, costs in contests.take_lost().items():
            self._metrics.count(COSTS_LOST, costs, policy=policy)
        before, self.contested = self.contested, contests.repeated()
        times = {each.replica_set: each.times for costs in before.values() for each in costs}
        lost = [
            each for costs in self.contested.values() for each in costs if each.times > times.get(each.replica_set, 0)
        ]
        if lost:
            _log.warning(
                "Somebody else removes or replaces pod deletion costs; they are written less often",
                replica_sets=len(lost),
                namespace=lost[0].namespace,
                workload=f"{lost[0].kind}/{lost[0].name}",
                writer=lost[0].writer,
                times=lost[0].times,
                next_write=lost[0].until.isoformat(),
            )
        if self.contested != before:
            self._notify()
        return inf


class _CostTerm:
    """What is known while this replica leads without interruption."""

    def __init__(self, number: int, prevention: CostPlanner, careful_until: float) -> None:
        self.number = number
        self.prevention = prevention
        self.careful_until = careful_until
        self.is_new = True
        self.needed = False
        """Whether a policy has asked for costs since, or any of ours existed."""
        self.snapshot = ClusterSnapshot()
        self.leaving: Collection[str] = frozenset()
        self._unclear: dict[str, tuple[float, Patch]] = {}
        """By pod, the patches that may or may not have been applied, and from when on the pod is read."""
        self.told = 0
        """The version of the contests that was told."""
        self.made: Counter[Purpose] = Counter()
        """Patches whose outcome has not been reported."""

    def unclear(self, patch: Patch, at: float) -> None:
        """Remember that a patch may have been applied, and that its pod is to be read at this time.

        Ranking the pod anew instead, together with pods whose patches wait, could give its cost to another one.
        """
        self._unclear[patch.pod.uid] = (at, patch)

    def take_unclear(self, now: float) -> Patch | None:
        """Return a patch whose pod is to be read now, and forget it."""
        uid = next((uid for uid, (at, _) in self._unclear.items() if at <= now), None)
        return None if uid is None else self._unclear.pop(uid)[1]

    def next_unclear(self) -> float:
        """Return when `take_unclear` returns one next, on the clock; infinity if never."""
        return min((at for at, _ in self._unclear.values()), default=inf)

    def still_wants(self, patch: Patch) -> bool:
        """Return whether a patch is still wanted by everything that is known now."""
        return patch.pod.uid not in self.leaving and still_there(self.snapshot, patch.pod) is not None
