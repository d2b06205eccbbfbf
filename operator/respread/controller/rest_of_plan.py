"""The rest of a plan: it goes on as places become free, without another plan, while only our own moves change anything.

The moves of a plan's first wave are safe at the same time, in any order, and some of them without the others, wherever
of where they may land their replacements do. Limits let only some of them go at once. So when places become free, more
of them may go, unless anything else has changed that the plan was made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.incremental import are_same, changed_keys
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.controller.observation import Observation
from respread.moves.entry import MoveEntry, Outcome, is_late
from respread.moves.following import compared
from respread.planning.moving_pods import OnHold
from respread.planning.plan import Move, Plan
from respread.spread.index import Spread

_VIEWS_OF_PODS: Final = frozenset(name for name in ClusterSnapshot.__struct_fields__ if "pods" in name)
_BESIDES_PODS: Final = tuple(set(ClusterSnapshot.__struct_fields__) - _VIEWS_OF_PODS - {"disruption_budgets"})
"""Budgets change with each eviction. They are looked at before each one, as they are then."""
_NONE: Final[PodsByName] = Map()


class RestOfPlan(NamedTuple):
    """A plan, and what it was made of."""

    planned: Plan
    observation: Observation
    under_way: Counter[str]
    """How many moves of each policy were under way when those were chosen that could be made at once."""

    def at(self, now: Observation, on_hold: OnHold) -> Plan | None:
        """Return the plan without the moves that are begun; None if another plan is due.

        `on_hold` is that of the observation.
        """
        was = self.observation
        if now.term != was.term or now.setting is not was.setting or not self._is_as_expected(now):
            return None
        begun = {each.uid for each in _entries(now)}
        moves = tuple(move for move in self.planned.moves if move.pod.uid not in begun)
        for key, policy in {(key, move.policy) for move in moves for key in move.groups}:
            if key not in now.spread.groups or on_hold(key, policy) is not None:
                return None
        return msgspec.structs.replace(self.planned, moves=moves)

    def uses_all_places(self, chosen: Iterable[Move], now: Observation) -> bool:
        """Return whether as many moves of each policy are under way, with those chosen, as after the plan."""
        return self.under_way <= Counter(move.policy for move in (*now.ledger.moves, *chosen))

    def _is_as_expected(self, now: Observation) -> bool:
        """Return whether the cluster differs from that of the plan by nothing else than what our moves are to do."""
        was = self.observation
        if not are_same(*([getattr(each.snapshot, name) for name in _BESIDES_PODS] for each in (was, now))):
            return False
        entries = (*_entries(was), *_entries(now))
        replacements = {each.replacement.uid: each for each in entries if each.replacement is not None}
        going = {each.uid for each in entries}
        return not any(is_late(each, now.moment.now) for each in now.ledger.in_flight) and all(
            pod.uid in going
            or (
                (entry := replacements.get(pod.uid)) is not None
                and (shown := now.snapshot.pods.get(pod.key)) is not None
                and shown.uid == pod.uid
                and _is_expected(shown, entry, now.spread)
            )
            for pod in _changed(was.snapshot, now.snapshot)
        )


def _entries(observation: Observation) -> Iterator[MoveEntry]:
    """Yield the moves under way, and those that have ended well or whose pods are still being deleted."""
    ledger = observation.ledger
    yield from ledger.under_way
    yield from ledger.steadying
    yield from ledger.ours


def _is_expected(pod: Pod, entry: MoveEntry, spread: Spread) -> bool:
    """Return whether a replacement counts where the evicted pod did, and has no node or one that improves the spread.

    Labels may differ: since Kubernetes 1.35, pods have those of their node's zone and region.
    """
    selectors = [key.selector for key in entry.move.groups]
    if (
        pod.terminating
        or pod.finished
        or any(each.matches(pod.labels) != each.matches(entry.move.pod.labels) for each in selectors)
    ):
        return False
    return not pod.node_name or compared(spread, entry.move, pod) is Outcome.IMPROVED


def _changed(before: ClusterSnapshot, now: ClusterSnapshot) -> Iterator[Pod]:
    """Yield every pod that differs between two snapshots, as it is in each."""
    none: Map[Labels, PodsByName] = Map()
    for namespace in changed_keys(before.pods_by_labels, now.pods_by_labels):
        earlier, later = (each.pods_by_labels.get(namespace, none) for each in (before, now))
        for labels in changed_keys(earlier, later):
            one, other = earlier.get(labels, _NONE), later.get(labels, _NONE)
            for name in changed_keys(one, other):
                yield from (pod for pods in (one, other) if (pod := pods.get(name)) is not None)
