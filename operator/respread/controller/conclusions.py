"""What became of the moves in flight, and what follows from it: for people, for groups and for policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from immutables import Map

from respread.api.policy import EvictionOptions, Policy
from respread.cluster.state import ClusterSnapshot
from respread.controller.acting import Acting
from respread.controller.comparison import Comparison
from respread.controller.permits.limiters import Bounding
from respread.controller.permits.permission import Policies
from respread.eviction.flight import Ended, Patience
from respread.eviction.in_flight import InFlight
from respread.planning.plan import Move
from respread.spread.index import Spread
from respread.telemetry.metrics import Metrics


class Conclusions:
    """Follows moves until it is known what they came to. It belongs to one event loop."""

    __slots__ = ("_acting", "_clock", "_metrics")

    def __init__(self, acting: Acting, metrics: Metrics, clock: Callable[[], float]) -> None:
        """Prepare.

        Args:
            acting: what acts, and knows what was done.
            metrics: count outcomes.
            clock: seconds that never go back.
        """
        self._acting = acting
        self._metrics = metrics
        self._clock = clock

    def ask_again(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies) -> None:
        """Have evictions asked for again that may not have been made, where they would still help."""
        planned_for = self._acting.permission.planned_for(policies, self._clock())
        batch = self._acting.evictions.batch(snapshot, planned_for, Bounding())
        self._acting.follow_up.ask_again(batch, partial(_still_helps, snapshot, spread))

    def draw(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, leads: bool) -> None:
        """Take over what became of moves.

        Args:
            snapshot: the cluster as the watch shows it.
            spread: its spread groups.
            policies: all of them.
            leads: whether this replica acts; of moves of an earlier term the leader of this one tells.
        """
        now, register = self._clock(), self._acting.register
        in_flight = register.in_flight.patient(_patience(register.in_flight, policies))
        register.in_flight, ended = in_flight.updated(snapshot, now, Comparison(spread))
        probation, judged = register.probation.judged(snapshot, now)
        register.probation = probation.begun(ended, now)
        if leads:
            self._learn((*ended, *judged.relapsed), judged.lasting, spread, policies)

    def _learn(self, ended: Sequence[Ended], lasting: Sequence[Move], spread: Spread, policies: Policies) -> None:
        """Tell what became of moves, and remember what decides about the next ones."""
        if not ended and not lasting:
            return
        announcements, history = self._acting.announcements, self._acting.history
        single = {name: history.single(policy) for name, policy in policies.items()}
        for move in lasting:
            history.learn_lasting(move)
        for each in ended:
            self._metrics.count_outcome(policy=each.move.policy, outcome=each.outcome)
            announcements.end(each)
            history.learn(each, spread.groups, policies.get(each.move.policy))
        for name, policy in policies.items():
            if (paused := history.paused(policy)) is not None and single[name] is None:
                announcements.paused(policy, paused)
            elif single[name] is not None and history.single(policy) is None:
                announcements.resumed(policy)


def _still_helps(snapshot: ClusterSnapshot, spread: Spread, move: Move) -> bool:
    """Tell whether a move's pod is still there, and a group that it was to help still violated."""
    pod = snapshot.pods.get(move.pod.key)
    return (
        pod is not None
        and pod.uid == move.pod.uid
        and not pod.terminating
        and any((group := spread.groups.get(key)) is not None and group.violated for key in move.groups)
    )


def _patience(in_flight: InFlight, policies: Policies) -> Patience:
    """Return how long moves in flight are waited for: as their policies say, or by default if these are gone."""

    def ready_seconds(policy: Policy | None) -> float:
        options = EvictionOptions() if policy is None else policy.spec.eviction
        return options.ready_timeout.total_seconds()

    by_policy = Map({move.policy: ready_seconds(policies.get(move.policy)) for move in in_flight.moves})
    return msgspec.structs.replace(in_flight.patience, ready_seconds=by_policy)
