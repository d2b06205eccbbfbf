"""The limits of policies, for an invalid one its last valid ones, which evictions they bound; budgets beside moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import NAMESPACE_NAME_LABEL, ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Held, Reason
from respread.cluster.meta import Labels
from respread.cluster.selectors import NOTHING, Selector, compile_selector
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import Policies
from respread.moves.entry import as_shown
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.budgets import BudgetBook


class Limiter(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's limits, and the evictions that they bound."""

    policy: str
    limits: Limits
    namespaces: Selector = NOTHING
    """For a ClusterRebalancePolicy: the namespaces that it selects."""
    pods: Selector = NOTHING
    """For a ClusterRebalancePolicy: the pods that it selects there."""

    shared: bool = False
    """Whether several namespaces share them."""

    @classmethod
    def of(cls, policy: Policy) -> Limiter:
        """Return the limits of a policy. They bound the evictions that are made for it.

        The limits of a ClusterRebalancePolicy also bound all evictions of pods that it selects, for any policy.
        """
        spec = policy.spec
        if not isinstance(spec, ClusterPolicySpec):
            return cls(policy=policy.name, limits=spec.limits)
        return cls(
            policy=policy.name,
            limits=spec.limits,
            namespaces=compile_selector(spec.namespace_selector),
            pods=compile_selector(spec.pod_selector),
            shared=True,
        )

    def bounds(self, move: Move, snapshot: ClusterSnapshot) -> bool:
        """Return whether a move counts for these limits."""
        return self.applies(move.policy, move.pod.namespace, move.pod.labels, snapshot)

    def applies(self, policy: str, namespace_name: str, labels: Labels, snapshot: ClusterSnapshot) -> bool:
        """Return whether an eviction for a policy, of a pod with these labels, counts for these limits."""
        if policy == self.policy:
            return True
        namespace = snapshot.namespaces.get(namespace_name)
        return (
            namespace is not None
            and self.pods.matches(labels)
            and self.namespaces.matches(namespace.labels.set(NAMESPACE_NAME_LABEL, namespace_name))
        )


class Bounding(NamedTuple):
    """Which policies' limits count which moves."""

    policies: Mapping[str, tuple[str, ...]] = Map()
    """Their names, by the UIDs of the moves' pods."""
    with_hourly: frozenset[str] = frozenset()
    """Names of those that have a limit for an hour."""

    def of(self, move: Move) -> tuple[str, ...]:
        """Return the names of the policies whose limits count a move."""
        return self.policies.get(move.pod.uid, ())

    def hourly(self, move: Move) -> tuple[str, ...]:
        """Return the names of those with a limit per hour."""
        return tuple(name for name in self.of(move) if name in self.with_hourly)


def bounding(moves: Sequence[Move], limiters: Sequence[Limiter], snapshot: ClusterSnapshot) -> Bounding:
    """Return which limits count which moves."""
    named = {move.policy for move in moves}
    concerned = [each for each in limiters if each.shared or each.policy in named]
    return Bounding(
        {move.pod.uid: tuple(each.policy for each in concerned if each.bounds(move, snapshot)) for move in moves},
        frozenset(each.policy for each in concerned if each.limits.per_hour is not None),
    )


class Limiters:
    """Remembers the limits of each policy.

    An invalid policy evicts nothing itself, but its limits still bound others and still count. If it were ignored, a
    typo would let others do what it forbids, and forget what `limits.perHour` has counted.
    """

    def __init__(self) -> None:
        self._right: dict[str, Limiter] = {}
        """Those of policies that are valid, or were."""

    def of(self, policies: Policies) -> tuple[Limiter, ...]:
        """Return one limiter for each policy.

        If a policy has been invalid since this process started, its limits are used as far as they can be read, with
        defaults for invalid ones.
        """
        known = self._right
        self._right = {
            name: Limiter.of(policy) if not policy.problems else known[name]
            for name, policy in policies.items()
            if not policy.problems or name in known
        }
        return tuple(self._right.get(name) or Limiter.of(policy) for name, policy in policies.items())


class GroupPace(NamedTuple):
    """The evictions of a spread group, for `limits.perHourPerGroup`."""

    pods: int
    """The number of pods that the group counts."""
    in_last_hour: int
    """The evictions for it in the last hour."""

    def beyond(self, limiter: str, limits: Limits, more: int = 1) -> Held | None:
        """Return that this many more evictions would exceed the limit of a policy, or None."""
        limit = limits.per_hour_of_group(self.pods)
        if self.in_last_hour + more <= limit:
            return None
        if limit == 0:
            return Held(Reason.LIMIT_REACHED, f"limits.perHourPerGroup of policy {limiter} is 0: none is made")
        made = "1 eviction was" if self.in_last_hour == 1 else f"{self.in_last_hour} evictions were"
        return Held(
            Reason.LIMIT_REACHED,
            f"limits.perHourPerGroup of policy {limiter} is {limit} for this spread group, and {made} made for it "
            "within the last hour; something may undo them, such as an autoscaler that scales up and down, node "
            "consolidation or another descheduler",
        )


class BudgetsBesideMoves:
    """What budgets allow in one snapshot, at the cost of what came into flight or ended since the last look.

    Each eviction is looked at several times, beside all that are in flight by then: counted again every time, a wave
    would cost the square of its moves.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._moves = Ledger()
        self._book = BudgetBook(snapshot)

    def beside(self, moves: Ledger) -> BudgetBook:
        """Return what budgets allow beside some moves in flight; right until the next call."""
        began, ended = moves.since(self._moves)
        for move in ended:
            self._book.count_in_flight(as_shown(move.pod, self._snapshot), -1)
        for move in began:
            self._book.count_in_flight(as_shown(move.pod, self._snapshot), 1)
        self._moves = moves
        return self._book.fork()
