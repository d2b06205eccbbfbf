"""What is left to be done for each policy after a reconcile, and how long that takes within limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from respread.api.reasons import Reason
from respread.controller.observation import Observation
from respread.controller.permits.begun_groups import later_moves
from respread.eviction.limits.lots import lots_of
from respread.eviction.limits.remaining import PresentLimits, Remaining
from respread.eviction.pacing import Paced
from respread.planning.plan import Move, Plan
from respread.planning.victims.budget_index import BudgetIndex

_WAITS_FOR_LIMITS: Final = frozenset({Reason.LIMIT_REACHED, Reason.PODS_NOT_READY})


def left_to_do(
    planned: Plan, chosen: Paced, in_flight: Iterable[Move], observation: Observation, budgets: BudgetIndex
) -> Mapping[str, Remaining]:
    """Return what is left for each policy with moves, by name.

    Args:
        planned: the plan.
        chosen: which of its moves are made now.
        in_flight: the moves in flight, with those.
        observation: what it was made for.
        budgets: which budgets select which pods. It is advanced to the snapshot.
    """
    away = tuple(in_flight)
    made = {move.pod.uid for move in away}
    left = [each for each in chosen.held if each.move.pod.uid not in made]
    history, now = observation.history, observation.time.timestamp()
    lots = lots_of(
        observation.snapshot,
        budgets,
        [
            *(move for move in chosen.now if move.pod.uid not in made),  # by the leader, if this replica is not
            *(each.move for each in left if each.held.reason in _WAITS_FOR_LIMITS),
        ],
        away,
        waiting=[each.move for each in left if each.held.reason not in _WAITS_FOR_LIMITS],
        later=later_moves(planned.blocked, observation),
        measured=lambda workload: history.trust.seconds(workload, now),
    )
    return PresentLimits(
        snapshot=observation.snapshot,
        limiters=observation.limiters,
        now=now,
        history=history.history,
        trust=history.trust,
    ).remaining(lots)
