"""The limits that count: of a policy that is wrong at the moment, those that it had when it was last right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from immutables import Map

from respread.cluster.state import ClusterSnapshot
from respread.controller.permits.permission import Policies
from respread.eviction.pacing import Limiter
from respread.planning.plan import Move


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
        """Return the names of those that have a limit for an hour."""
        return tuple(name for name in self.of(move) if name in self.with_hourly)


def bounding(moves: Sequence[Move], limiters: Sequence[Limiter], snapshot: ClusterSnapshot) -> Bounding:
    """Return which limits count which moves.

    Args:
        moves: the moves.
        limiters: one for each policy.
        snapshot: the cluster that they were planned on.
    """
    named = {move.policy for move in moves}
    concerned = [each for each in limiters if each.shared or each.policy in named]
    return Bounding(
        {move.pod.uid: tuple(each.policy for each in concerned if each.bounds(move, snapshot)) for move in moves},
        frozenset(each.policy for each in concerned if each.limits.per_hour is not None),
    )


class Limiters:
    """Remembers the limits of each policy.

    A policy that is wrong evicts nothing itself, but what it says of limits bounds others, and goes on counting. Were
    it passed over, a typo in it would let others do what it forbids, and forget what `limits.perHour` has counted.
    """

    __slots__ = ("_made", "_right")

    def __init__(self) -> None:
        """Remember none yet."""
        self._made: tuple[Policies, tuple[Limiter, ...]] = (Map(), ())
        self._right: dict[str, Limiter] = {}
        """Of the policies that are right, or were."""

    def of(self, policies: Policies) -> tuple[Limiter, ...]:
        """Return one limiter for each policy.

        Of one that has been wrong ever since this process began it is as far as it could be read: what is wrong in it
        has its default.
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
