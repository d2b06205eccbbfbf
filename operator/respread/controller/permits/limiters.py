"""The limits in effect: for an invalid policy, its last valid ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from immutables import Map

from respread.cluster.state import ClusterSnapshot
from respread.eviction.limits.limiter import Limiter
from respread.planning.plan import Move
from respread.stores.policy_store import Policies


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
    """Return which limits count which moves.

    Args:
        moves: the moves.
        limiters: one for each policy.
        snapshot: the cluster of the plan.
    """
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

    __slots__ = ("_made", "_right")

    def __init__(self) -> None:
        self._made: tuple[Policies, tuple[Limiter, ...]] = (Map(), ())
        self._right: dict[str, Limiter] = {}
        """Those of policies that are valid, or were."""

    def of(self, policies: Policies) -> tuple[Limiter, ...]:
        """Return one limiter for each policy.

        If a policy has been invalid since this process started, its limits are used as far as they can be read, with
        defaults for invalid ones.
        """
        if policies is self._made[0]:
            return self._made[1]
        known = self._right
        self._right = {
            name: Limiter.of(policy) if not policy.problems else known[name]
            for name, policy in policies.items()
            if not policy.problems or name in known
        }
        made = tuple(self._right.get(name) or Limiter.of(policy) for name, policy in policies.items())
        self._made = (policies, made)
        return made
