"""Records moves before they are made, and counts and reports them afterwards.

After a crash, the next leader follows the recorded moves to their outcome, and counts them for `limits.perHour` and
`limits.perHourPerGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from respread.api.reasons import Reason
from respread.api.status import PolicyStatus
from respread.controller.announcements import Announcements
from respread.controller.records.journal import Journal
from respread.controller.records.status_writer import StatusWriter
from respread.eviction.answers import Answer
from respread.eviction.limits.limiter import Bounding
from respread.holds.refusals import Refusals
from respread.planning.held import Held
from respread.planning.plan import Move, Step
from respread.stores.stores import Policies
from respread.telemetry.metrics import Metrics


class Recording:
    """Records, counts and reports."""

    __slots__ = ("_announcements", "_journal", "_metrics", "_refusals", "_seen", "_statuses")

    def __init__(
        self,
        journal: Journal,
        statuses: StatusWriter,
        *,
        announcements: Announcements,
        metrics: Metrics,
        refusals: Refusals,
        seen: Callable[[], Mapping[str, PolicyStatus]],
    ) -> None:
        """Create it.

        Args:
            journal: the moves, and what was done so far.
            statuses: writes statuses.
            announcements: report to users.
            metrics: count.
            refusals: receive what was not made.
            seen: the policies' statuses as the watch shows them, by name.
        """
        self._journal = journal
        self._statuses = statuses
        self._announcements = announcements
        self._metrics = metrics
        self._refusals = refusals
        self._seen = seen

    async def write_down(self, step: Step, bounding: Bounding, policies: Policies) -> Held | None:
        """Record a step's moves. Return why they must not be made, or None if the records of all policies contain them.

        Args:
            step: moves about to be made.
            bounding: the policies that count them.
            policies: the policies for which they were planned.
        """
        for move in step:
            self._journal.recorded(move)
        names = {name for move in step for name in (move.policy, *bounding.hourly(move))}
        seen = self._seen()
        asked = [(policies[name], seen.get(name, PolicyStatus())) for name in sorted(names)]
        written = await self._statuses.ensure(asked)
        if written == names:
            return None
        troubles = (self._statuses.trouble(policies[name]) for name in sorted(names - written))
        why = next((f": {trouble}" for trouble in troubles if trouble), "")
        return Held(Reason.API_UNAVAILABLE, f"it could not be written down in its policy's record{why}")

    def why_paused(self, move: Move, policies: Policies) -> Held | None:
        """Return why a move's policy evicts nothing after failures; None if it is not paused."""
        policy = policies.get(move.policy)
        return None if policy is None else self._journal.history.paused(policy, move.pod.namespace)

    def close(self, move: Move, result: Answer | Held, bounding: Bounding, *, is_one_of_several: bool = False) -> None:
        """Count and report the result of a move.

        Args:
            move: the move.
            result: the API server's answer, or why the eviction was not sent.
            bounding: the policies that count it.
            is_one_of_several: whether a request for it was sent before, or will be sent again. So what was not done
                now may be done all the same.
        """
        why = result if isinstance(result, Held) else result.held
        made = isinstance(result, Answer) and result.may_have_evicted
        if isinstance(result, Answer):
            self._metrics.count_eviction(policy=move.policy, namespace=move.pod.namespace, result=result.result)
            self._announcements.eviction(move, result)
        else:
            self._announcements.held_back(move, result)
        if made:
            self._journal.history.serve(move.pod.namespace)
            if isinstance(result, Answer) and result.evicted:
                self._journal.settle(move, made=True)
                self._journal.history.made(move.policy)
            else:
                self._journal.doubt(move)
            return
        if why is not None:
            self._refusals.held_back(move, why)
        if is_one_of_several:
            self._journal.doubt(move)
        elif not self._journal.doubts(move) and self._journal.settle(move, made=False):
            self._statuses.hurry((move.policy, *bounding.of(move)))
