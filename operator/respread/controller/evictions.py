"""The life of an eviction, from the moment that a reconcile chooses it until the API server has answered.

    CHOSEN    The reconcile continues at once. Its policies are those it was planned for, budgets have room, its
              controllers are at rest; where a step has several pods all are looked at, and the API server is asked
              whether it would evict each.
    RECORDED  In its policy's record, together with all that are ready by then. It is looked at once more, the pod read,
              the request made with its credentials in it: all that waits. Then the last look: leader? policies as
              planned? budgets? pod still there? Nothing is awaited between this and the request.
    SENT      Reconciles follow it from now on. The answer is reported, counted, and remembered if it is a refusal.

A step has one life: mostly it is one move; where it has several they are made whole or not at all, and once one is made
the others are owed. A move that is held on the way is not sent, frees its place at once, and is planned again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from respread.api.reasons import Held, Reason
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.controller.lanes import Lanes
from respread.controller.permission import Permission, PlannedFor
from respread.controller.records.journal import Journal, Recording
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import EvictionApi, send_eviction
from respread.eviction.limiter import Bounding, BudgetsBesideMoves
from respread.eviction.owners.last_look import Owners
from respread.holds.refusals import Refusals
from respread.kube.requests import PreparedRequest
from respread.moves.entry import still_there
from respread.planning.plan import Move, Step, steps_of
from respread.planning.victims.budgets import BudgetBook, why_no_budget

_STOPPED: Final = Held(Reason.NOT_LEADING, "this replica is being stopped")
_DROPPED: Final = Answer(result=EvictionResult.UNKNOWN, message="its answer was not waited for")


class Batch(NamedTuple):
    """What moves have in common that one reconcile chose: what they were planned on, and what is read for them."""

    snapshot: ClusterSnapshot
    """The cluster, as the watch shows it."""
    planned_for: PlannedFor
    bounding: Bounding
    """The policies whose limits count each move."""
    owners: Owners
    """What is read of their controllers, each thing once."""
    budgets: BudgetsBesideMoves


class Carried(NamedTuple):
    """A move and its result: the API server's answer, or why it was not sent."""

    move: Move
    result: Answer | Held


class Evictions:
    """Carries out what reconciles choose, in tasks beside them. It belongs to one event loop."""

    def __init__(
        self,
        api: EvictionApi,
        owners: Owners,
        refusals: Refusals,
        *,
        permission: Permission,
        journal: Journal,
        recording: Recording,
        lanes: Lanes,
        notify: Callable[[], None],
        current: Callable[[], ClusterSnapshot],
    ) -> None:
        """Prepare. `notify` is called when a place may have become free."""
        self._api = api
        self._owners = owners
        self.refusals = refusals
        self._permission = permission
        self.journal = journal
        self._recording = recording
        self.lanes = lanes
        self._notify = notify
        self._current = current

    def batch(self, snapshot: ClusterSnapshot, planned_for: PlannedFor, bounding: Bounding) -> Batch:
        """Return what moves have in common that are chosen now; nothing is read for them yet."""
        return Batch(snapshot, planned_for, bounding, self._owners.without_readings(), BudgetsBesideMoves(snapshot))

    def begin(self, moves: Sequence[Move], batch: Batch) -> list[asyncio.Task[tuple[Carried, ...]]]:
        """Take moves that were chosen, of each step all; return the tasks that carry out the steps, in their order."""
        self.journal.chosen(moves, batch.snapshot, batch.bounding.policies)
        return [self.lanes.start(step, self._carry_out(step, batch)) for step in steps_of(moves)]

    async def aclose(self) -> None:
        """End all that has not begun, and what was sent when it is answered."""
        await self.lanes.aclose(lambda step: any(move in self.journal.ledger for move in step))

    async def _carry_out(self, step: Step, batch: Batch) -> tuple[Carried, ...]:
        """Make a step's moves, unless something speaks against any of them; once one is made, the others are owed."""
        carried: list[Carried] = []
        try:
            with self.lanes.under_way(step):
                async with self.lanes.turn(step), self.lanes.place(step):
                    held, begun = await self._look(step, batch), False
                if held is None:
                    held = await self._recording.write_down(step, batch.bounding, batch.planned_for.policies)
                async with self.lanes.turn(step) as turn, self.lanes.place(step):
                    for move in step:
                        is_last = move is step[-1]
                        result = held or await self._evict(move, batch, turn if is_last else None, begun=begun)
                        is_made = isinstance(result, Answer) and result.may_have_evicted
                        why = result if isinstance(result, Held) else result.held
                        is_owed = begun and not is_made and why is not None
                        if is_owed:
                            self.journal.owed(move, batch.snapshot)
                        elif not is_made:
                            held = why  # for the rest of its step as well; None where it has gone by itself
                        begun = begun or is_made
                        carried.append(self._end(move, result, batch, is_one_of_several=is_owed))
        finally:
            for move in step[len(carried) :]:
                self._end(move, _DROPPED if move in self.journal.ledger else _STOPPED, batch)
        return tuple(carried)

    async def _look(self, step: Step, batch: Batch) -> Held | None:
        """Return what stands in a step's way, by all that can be known before it is begun; None if nothing does."""
        for move in step:
            if (held := await self._why_not(move, batch, begun=False, together=step)) is not None:
                return held
        if len(step) == 1:
            return None
        return _beyond_budgets(step, self._budgets_beside(step[0], batch)) or await self._rehearse(step, batch)

    async def _rehearse(self, step: Step, batch: Batch) -> Held | None:
        """Ask the API server whether it would evict each pod of a step, so that it is not begun unnecessarily."""
        for move in step:
            request = await self._request(move, batch, dry_run=True)
            if (held := self._last_look(move, batch, begun=False)) is not None:
                return held
            answer = await send_eviction(request) if isinstance(request, PreparedRequest) else request
            if not answer.evicted:
                self._note(move, answer, batch)
                return answer.held or Held(Reason.IN_MOTION, f"{move.pod.name} has gone by itself")
        return None

    async def _evict(
        self, move: Move, batch: Batch, turn: contextlib.ExitStack | None, *, begun: bool
    ) -> Answer | Held:
        """Evict one pod; return the API server's answer, or why it was not asked.

        Its turn is ended as soon as the eviction is sent: it is in flight for the next step of its controller. `begun`
        says whether others of its step were made already.
        """
        request = await self._prepare(move, batch, begun=begun)
        if not isinstance(request, PreparedRequest):
            return request
        if (held := self._last_look(move, batch, begun=begun)) is not None:
            return held
        self.journal.sent(move, batch.snapshot)
        if turn is not None:
            turn.close()
        answer = await send_eviction(request)
        self.journal.answered(move, answer, again=False)
        return answer

    async def repeat(self, move: Move, batch: Batch) -> tuple[Carried, ...]:
        """Ask once more for an eviction that is in flight, and may not have been made."""
        with self.lanes.under_way((move,)):
            async with self.lanes.turn((move,)), self.lanes.place((move,)):
                result: PreparedRequest | Answer | Held = await self._prepare(move, batch, begun=True)
                if isinstance(result, PreparedRequest):
                    result = self._last_look(move, batch, begun=True) or await send_eviction(result)
                if isinstance(result, Answer):
                    self.journal.answered(move, result, again=True)
                return (self._end(move, result, batch, is_one_of_several=True),)

    async def _prepare(self, move: Move, batch: Batch, *, begun: bool) -> PreparedRequest | Answer | Held:
        """Do all that waits. What was read for the look and is not old is not read again."""
        return await self._why_not(move, batch, begun=begun) or await self._request(move, batch)

    async def _request(self, move: Move, batch: Batch, *, dry_run: bool = False) -> PreparedRequest | Answer:
        """Make a request of a pod's eviction; return why there is no point in it instead if the pod is not there."""
        if not batch.owners.has_read(move.pod) and (answer := await self._api.read(move.pod)) is not None:
            return answer
        return await self._api.prepare(
            move.pod,
            grace_period_seconds=batch.planned_for.policies[move.policy].spec.eviction.grace_period_seconds,
            dry_run=dry_run,
            timeout_seconds=self._permission.exclusive_seconds,
        )

    async def _why_not(self, move: Move, batch: Batch, *, begun: bool, together: Step = ()) -> Held | None:
        """Return what stands in a move's way; what lasts is remembered, for planning to do without the pod."""
        await self._permission.confirm(move.pod.namespace)
        if (held := self._last_look(move, batch, begun=begun)) is not None:
            return held
        others, rules = self.journal.ledger.without(move), batch.planned_for.policies[move.policy].spec.victims
        held = await batch.owners.why_not_at_rest(move, rules, batch.snapshot, others, together)
        if held is not None:
            self.refusals.hold(move.pod, held)
        return held

    def _last_look(self, move: Move, batch: Batch, *, begun: bool) -> Held | None:
        """Return what stands in a move's way at this very moment, or None if nothing does."""
        budgets = self._budgets_beside(move, batch)
        planned = budgets.budgets_of(move.pod)
        return (
            self._permission.why_not(move, batch.planned_for)
            or (None if begun else self._recording.why_paused(move, batch.planned_for.policies))
            or self.refusals.why_not(move.pod, planned)
            or _beyond_budgets((move,), budgets)
            or self._why_without_budget(move, batch, planned)
            or self._why_gone(move.pod)
        )

    def _why_without_budget(self, move: Move, batch: Batch, planned: Sequence[PodDisruptionBudget]) -> Held | None:
        """Return why a policy that requires a budget protects the pod now, or None if it does not.

        The API server evicts such pods, so a budget that was deleted since the plan must be noticed here.
        """
        now: Mapping[str, PodDisruptionBudget] = self._current().disruption_budgets.get(move.pod.namespace) or {}
        still = [each for each in planned if (found := now.get(each.name)) and found.selector == each.selector]
        return why_no_budget(batch.planned_for.policies[move.policy].spec.victims, still)

    def _why_gone(self, pod: Pod) -> Held | None:
        """Return that a pod is gone or going by now, or None if it is not; see `EvictionApi.read` for why."""
        if still_there(self._current(), pod) is not None:
            return None
        return Held(Reason.IN_MOTION, "it is gone, or being deleted")

    def _budgets_beside(self, move: Move, batch: Batch) -> BudgetBook:
        """Return what budgets allow beside all other moves."""
        return batch.budgets.beside(self.journal.ledger.without(move))

    def _end(self, move: Move, result: Answer | Held, batch: Batch, *, is_one_of_several: bool = False) -> Carried:
        """Handle the result of a move; see `Recording.close`."""
        if isinstance(result, Answer):
            self._note(move, result, batch)
        self.journal.forget(move)
        self._recording.close(move, result, batch.bounding, is_one_of_several=is_one_of_several)
        self._notify()
        return Carried(move, result)

    def _note(self, move: Move, answer: Answer, batch: Batch) -> None:
        self.refusals.note(move.pod, self._budgets_beside(move, batch).budgets_of(move.pod), answer)


def _beyond_budgets(step: Step, budgets: BudgetBook) -> Held | None:
    """Return which budget has no room for a step beside what is in flight, or None if all have."""
    for move in step:
        verdict = budgets.verdict(move.pod)
        if isinstance(verdict, Held):
            return verdict
        budgets.take(move.pod)
    return None
