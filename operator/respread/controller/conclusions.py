"""The outcomes of moves in flight, and their consequences for users, groups and policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from immutables import Map

from respread.api.policy import EvictionOptions, Policy
from respread.cluster.state import ClusterSnapshot
from respread.controller.acting import Acting
from respread.eviction.limits.limiter import Bounding
from respread.moves.entry import Ended, Patience
from respread.moves.following import Comparison, Judged
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.spread.index import Spread
from respread.stores.stores import Policies
from respread.telemetry.metrics import Metrics


class Conclusions:
    """Follows moves until their outcome. It belongs to one event loop."""

    __slots__ = ("_acting", "_clock", "_metrics")

    def __init__(self, acting: Acting, metrics: Metrics, clock: Callable[[], float]) -> None:
        """Create it.

        Args:
            acting: acts, and knows what was done.
            metrics: count outcomes.
            clock: a monotonic clock in seconds.
        """
        self._acting = acting
        self._metrics = metrics
        self._clock = clock

    def ask_again(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies) -> None:
        """Send evictions again that may not have been made, if they would still help."""
        planned_for = self._acting.permission.planned_for(policies, self._clock())
        batch = self._acting.evictions.batch(snapshot, planned_for, Bounding())
        self._acting.follow_up.ask_again(batch, partial(_still_helps, snapshot, spread))

    def draw(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, leads: bool) -> None:
        """Process the outcomes of moves.

        Args:
            snapshot: the cluster as the watch shows it.
            spread: its spread groups.
            policies: all policies.
            leads: whether this replica acts. The leader of a term reports the moves of earlier terms.
        """
        journal = self._acting.journal
        ledger = journal.ledger.patient(_patience(journal.ledger, policies))
        ledger, ended = ledger.updated(snapshot, self._clock(), Comparison(spread))
        judged = journal.followed(ledger, snapshot)
        if leads:
            self._follow_trials(snapshot, policies)
            self._learn((*ended, *judged.relapsed), judged, spread, policies)

    def _follow_trials(self, snapshot: ClusterSnapshot, policies: Policies) -> None:
        """Take replacements that were not Ready and are now for the trial that a pause ends with."""
        history = self._acting.journal.history
        failing = [policies[name] for name in history.breakers.policies if name in policies]
        paused = [policy for policy in failing if history.single(policy) is not None]
        history.follow_trials(policies, snapshot)
        for policy in paused:
            if history.single(policy) is None:
                self._acting.announcements.resumed(policy)

    def _learn(self, ended: Sequence[Ended], judged: Judged, spread: Spread, policies: Policies) -> None:
        """Report outcomes, and remember what affects the next moves."""
        if not ended and not judged.lasting and not judged.undecided:
            return
        announcements, history = self._acting.announcements, self._acting.journal.history
        single = {name: history.single(policy) for name, policy in policies.items()}
        for move in judged.lasting:
            history.learn_lasting(move)
        for move in judged.undecided:
            history.learn_undecided(policies.get(move.policy))
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
    """Return whether a move's pod still exists, and a group that it should improve is still violated."""
    pod = snapshot.pods.get(move.pod.key)
    return (
        pod is not None
        and pod.uid == move.pod.uid
        and not pod.terminating
        and any((group := spread.groups.get(key)) is not None and group.violated for key in move.groups)
    )


def _patience(ledger: Ledger, policies: Policies) -> Patience:
    """Return the time limits for moves, from their policies, or the defaults if these are gone."""

    def ready_seconds(policy: Policy | None) -> float:
        options = EvictionOptions() if policy is None else policy.spec.eviction
        return options.ready_timeout.total_seconds()

    by_policy = Map({move.policy: ready_seconds(policies.get(move.policy)) for move in ledger.moves})
    return msgspec.structs.replace(ledger.patience, ready_seconds=by_policy)
