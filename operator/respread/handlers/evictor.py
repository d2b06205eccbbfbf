"""Carrying out one move: the last looks, the eviction, and telling everyone what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.in_flight import InFlight
from respread.eviction.owners import Owners
from respread.handlers.announcements import Announcements
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)


class Evictor:
    """Evicts the pods of moves, and keeps the moves that are in flight by it."""

    __slots__ = ("_announcements", "_api", "_clock", "_current_policy", "_leads", "_metrics", "_owners", "in_flight")

    def __init__(
        self,
        api: EvictionApi,
        owners: Owners,
        *,
        leads: Callable[[], bool],
        current_policy: Callable[[str], Policy | None],
        metrics: Metrics,
        announcements: Announcements,
        clock: Callable[[], float],
    ) -> None:
        """Prepare to evict.

        Args:
            api: where evictions are asked for.
            owners: looks at a pod's controller just before.
            leads: whether this replica may evict at this moment.
            current_policy: the policy of a name as it is at this moment; None if it is gone.
            metrics: told of every answer.
            announcements: tell people.
            clock: seconds that never go back.
        """
        self._api = api
        self._owners = owners
        self._leads = leads
        self._current_policy = current_policy
        self._metrics = metrics
        self._announcements = announcements
        self._clock = clock
        self.in_flight = InFlight()

    async def evict(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> list[Answer | Held]:
        """Evict the pods of moves that may be made together, and return what came of each, in their order.

        Args:
            moves: of one wave.
            snapshot: the cluster that they were planned for.
        """
        return await asyncio.gather(*(self._evict(move, snapshot) for move in moves))

    async def _evict(self, move: Move, snapshot: ClusterSnapshot) -> Answer | Held:
        controller = "" if move.pod.controller is None else move.pod.controller.uid
        held = await self._owners.why_not_at_rest(
            move.pod, snapshot, self.in_flight.leaving(controller), self.in_flight.unreplaced(controller)
        )
        if held is not None:
            return self._was_held(move, held)
        policy = self._current_policy(move.policy)
        grace_period_seconds = None if policy is None else policy.spec.eviction.grace_period_seconds
        self.in_flight = self.in_flight.sent(move, snapshot, self._clock())
        answer: Answer | Held | None = None
        try:
            answer = await self._api.evict(
                move.pod, gate=lambda: self._gate(move), grace_period_seconds=grace_period_seconds
            )
        finally:
            # Cancelled in mid-request there is no answer: the move stays in flight, as it may have been carried out.
            if answer is not None:
                self.in_flight = self.in_flight.answered(
                    move, answer if isinstance(answer, Answer) else None, self._clock()
                )
        if isinstance(answer, Held):
            return self._was_held(move, answer)
        self._metrics.count_eviction(policy=move.policy, namespace=move.pod.namespace, result=answer.result)
        self._announcements.eviction(move, answer)
        return answer

    def _gate(self, move: Move) -> Held | None:
        """Return what has come in the way since the move was planned."""
        if not self._leads():
            return Held(Reason.NOT_LEADING, "this replica does not hold the Lease")
        policy = self._current_policy(move.policy)
        if policy is None:
            return Held(Reason.NOT_SELECTED, f"policy {move.policy} was deleted")
        if policy.problems:
            return Held(
                Reason.INVALID_POLICY, f"policy {move.policy} is wrong somewhere, and evicts nothing until right"
            )
        if policy.spec.mode != "Enforce":
            return Held(Reason.DRY_RUN, f"policy {move.policy} has mode {policy.spec.mode}")
        return None

    def _was_held(self, move: Move, held: Held) -> Held:
        _log.info(
            "Eviction held back", pod=str(move.pod.key), policy=move.policy, reason=held.reason, message=held.message
        )
        return held
