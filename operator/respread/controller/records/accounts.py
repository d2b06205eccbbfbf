"""What is written down before a move is made, and what is counted and told of it afterwards.

Whoever leads after a crash follows what was written down to its outcome, and counts it for `limits.perHour` and
`limits.perHourPerGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.controller.announcements import Announcements
from respread.controller.permits.held_lately import HeldLately
from respread.controller.permits.limiters import Bounding
from respread.controller.permits.permission import Policies
from respread.controller.records.history import Expected, History
from respread.controller.records.recovery import moves_of
from respread.controller.records.register import Register
from respread.controller.records.status_writer import StatusWriter
from respread.eviction.answers import Answer
from respread.eviction.steps import Step
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.telemetry.metrics import Metrics


class Remembered:
    """What every status says of moves under way and of what counts for limits, as it is when the status is sent."""

    __slots__ = ("_history", "_register", "_snapshot")

    def __init__(self, register: Register, history: History, snapshot: Callable[[], ClusterSnapshot]) -> None:
        """Look at these.

        Args:
            register: the moves under way.
            history: what was done so far.
            snapshot: the cluster, as the watch shows it at the moment.
        """
        self._register = register
        self._history = history
        self._snapshot = snapshot

    def in_status(self, policy: Policy, status: PolicyStatus) -> PolicyStatus:
        """Return a policy's status with what it has to remember at this moment."""
        snapshot = self._snapshot()
        return msgspec.structs.replace(
            status,
            recent_evictions=self._history.recent_evictions(policy),
            group_evictions=self._history.group_evictions(policy.name),
            failures_in_a_row=self._history.failures_in_a_row(policy.name),
            moves_in_flight=moves_of(policy.name, self._register.with_those_on_record(snapshot), snapshot),
        )


class Accounts:
    """Writes down, counts and tells."""

    __slots__ = ("_announcements", "_metrics", "_register", "_seen", "_statuses", "held_lately", "history")

    def __init__(
        self,
        register: Register,
        history: History,
        statuses: StatusWriter,
        *,
        announcements: Announcements,
        metrics: Metrics,
        held_lately: HeldLately,
        seen: Callable[[], Mapping[str, PolicyStatus]],
    ) -> None:
        """Prepare.

        Args:
            register: the moves under way.
            history: what was done so far.
            statuses: writes what statuses have to remember.
            announcements: tell people.
            metrics: count.
            held_lately: told of what was not made.
            seen: the policies' statuses as the watch shows them, by name.
        """
        self._register = register
        self.history = history
        self._statuses = statuses
        self._announcements = announcements
        self._metrics = metrics
        self.held_lately = held_lately
        self._seen = seen

    async def write_down(self, step: Step, bounding: Bounding, policies: Policies) -> Held | None:
        """Write a step's moves down in statuses; return why they must not be made, or None once all statuses have them.

        Args:
            step: moves that are about to be made.
            bounding: the policies that count them.
            policies: those that they were planned for.
        """
        for move in step:
            self._register.on_record[move.pod.uid] = move
            self.history.expect(move.pod.uid, Expected(move.policy, bounding.of(move), move.groups))
        names = {name for move in step for name in (move.policy, *bounding.hourly(move))}
        seen = self._seen()
        asked = [(policies[name], seen.get(name, PolicyStatus())) for name in sorted(names)]
        if await self._statuses.ensure(asked) == names:
            return None
        return Held(Reason.API_UNAVAILABLE, "it could not be written down in its policy's status")

    def why_paused(self, move: Move, policies: Policies) -> Held | None:
        """Return why nothing is evicted in the name of a move's policy after failures; None if it is not paused."""
        policy = policies.get(move.policy)
        return None if policy is None else self.history.paused(policy, move.pod.namespace)

    def close(self, move: Move, result: Answer | Held, bounding: Bounding) -> None:
        """Count and tell what came of a move.

        Args:
            move: the move.
            result: the API server's answer, or why it was not asked.
            bounding: the policies that count it.
        """
        why = result if isinstance(result, Held) else result.held
        made = isinstance(result, Answer) and result.may_have_evicted
        if isinstance(result, Answer):
            self._metrics.count_eviction(policy=move.policy, namespace=move.pod.namespace, result=result.result)
            self._announcements.eviction(move, result)
        else:
            self._announcements.held_back(move, result)
        if made:
            self.history.serve(move.pod.namespace)
            self.history.made(move.pod.uid, move.policy, certain=isinstance(result, Answer) and result.evicted)
            return
        if why is not None:
            self.held_lately.note(move, why)
        if self.history.not_made(move.pod.uid):  # what was written down is not done
            self._statuses.hurry((move.policy, *bounding.of(move)))
