"""Which of a plan's moves are made now, within the limits of all policies they count for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import NAMESPACE_NAME_LABEL, ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Reason
from respread.cluster.selectors import NOTHING, Selector, compile_selector
from respread.cluster.state import ClusterSnapshot
from respread.planning.controllers import is_active, siblings_of
from respread.planning.held import Held
from respread.planning.plan import Move

HOUR_SECONDS: Final = 3600.0


class HeldMove(NamedTuple):
    """A move that is not made now."""

    move: Move
    held: Held


class Paced(NamedTuple):
    """What becomes of a plan's moves."""

    now: tuple[Move, ...]
    """They are made now, all together."""
    held: tuple[HeldMove, ...]
    """The others, in the plan's order."""


class EvictionHistory(msgspec.Struct, frozen=True):
    """When evictions were made that count for a policy's `limits.perHour`."""

    times: Map[str, tuple[float, ...]] = Map()
    """Seconds since the epoch by policy name, oldest first."""

    def with_eviction(self, policies: Iterable[str], now: float) -> EvictionHistory:
        """Return the history with one more eviction, without what is older than an hour.

        Args:
            policies: names of the policies that it counts for.
            now: seconds since the epoch.
        """
        times = self.times.mutate()
        for policy in policies:
            times[policy] = (*self.in_last_hour(policy, now), now)
        return EvictionHistory(times.finish())

    def in_last_hour(self, policy: str, now: float) -> tuple[float, ...]:
        """Return when evictions were made in the last hour that count for a policy.

        Times in the future, from before a clock was set back, count as well: too few evictions do no harm.
        """
        return tuple(time for time in self.times.get(policy, ()) if time > now - HOUR_SECONDS)


class Limiter(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's limits, and whose evictions they bound."""

    policy: str
    limits: Limits
    namespaces: Selector = NOTHING
    """Of a ClusterRebalancePolicy: the namespaces it selects."""
    pods: Selector = NOTHING
    """Of a ClusterRebalancePolicy: the pods it selects there."""

    @classmethod
    def of(cls, policy: Policy) -> Limiter:
        """Return the limits of a policy: they bound what is done in its name.

        Those of a ClusterRebalancePolicy bound whatever is done to pods that it selects, in whoever's name.
        """
        spec = policy.spec
        if not isinstance(spec, ClusterPolicySpec):
            return cls(policy=policy.name, limits=spec.limits)
        return cls(
            policy=policy.name,
            limits=spec.limits,
            namespaces=compile_selector(spec.namespace_selector),
            pods=compile_selector(spec.pod_selector),
        )

    def bounds(self, move: Move, snapshot: ClusterSnapshot) -> bool:
        """Tell whether a move counts for these limits."""
        if move.policy == self.policy:
            return True
        name = move.pod.namespace
        namespace = snapshot.namespaces.get(name)
        return (
            namespace is not None
            and self.pods.matches(move.pod.labels)
            and self.namespaces.matches(namespace.labels.set(NAMESPACE_NAME_LABEL, name))
        )


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides which moves are made now, but the moves."""

    snapshot: ClusterSnapshot
    limiters: tuple[Limiter, ...]
    """One for every policy."""
    in_flight: tuple[Move, ...] = ()
    history: EvictionHistory = EvictionHistory()
    closed: Mapping[str, Held] = {}
    """Policies in whose name nothing is done now, by name, and why: DryRun, or all windows closed."""
    now: float
    """Seconds since the epoch."""

    def of(self, moves: Sequence[Move]) -> Paced:
        """Choose the moves that are made now.

        They are taken in the plan's order. A move that is held holds no other, for the moves of turn 0 don't depend on
        each other.
        """
        tallies = [_Tally(limiter, self) for limiter in self.limiters]
        busy = {group for move in self.in_flight for group in move.groups}
        now: list[Move] = []
        held: list[HeldMove] = []
        for move in moves:
            bounding = [tally for tally in tallies if tally.limiter.bounds(move, self.snapshot)]
            reasons = (tally.full(move) for tally in bounding)
            why = (
                self.closed.get(move.policy)
                or _wait(move, busy)
                or next((reason for reason in reasons if reason is not None), None)
            )
            if why is not None:
                held.append(HeldMove(move, why))
                continue
            now.append(move)
            for tally in bounding:
                tally.add(move)
        return Paced(tuple(now), tuple(held))


def _wait(move: Move, busy: Collection[object]) -> Held | None:
    if move.turn > 0:
        return Held(
            Reason.IN_MOTION, "it waits for the replacements of the plan's earlier moves, and is planned anew then"
        )
    if any(group in busy for group in move.groups):
        return Held(Reason.IN_MOTION, "the replacement of an earlier move in its spread group is not Ready yet")
    return None


class _Tally:
    """What counts for one policy's limits so far."""

    __slots__ = ("_counts", "_in_last_hour", "_snapshot", "_total", "limiter")

    def __init__(self, limiter: Limiter, pace: Pace) -> None:
        self.limiter = limiter
        self._snapshot = pace.snapshot
        self._in_last_hour = len(pace.history.in_last_hour(limiter.policy, pace.now))
        self._total = 0
        self._counts: Counter[object] = Counter()
        for move in pace.in_flight:
            if limiter.bounds(move, pace.snapshot):
                self._count(move)

    def add(self, move: Move) -> None:
        """Count a move that is made now."""
        self._in_last_hour += 1
        self._count(move)

    def full(self, move: Move) -> Held | None:
        """Return the limit that a move would exceed, or None if there is none."""
        limits = self.limiter.limits
        namespace, node, workload = _places(move)
        of_workload = limits.in_flight_of_workload(_replicas(move, self._snapshot))
        for what, count, limit in (
            ("inFlight", self._total, limits.in_flight),
            (f"inFlightPerNamespace ({namespace[1]})", self._counts[namespace], limits.in_flight_per_namespace),
            (f"inFlightPerNode ({node[1]})", self._counts[node], limits.in_flight_per_node),
            (f"inFlightPerWorkload ({move.workload})", self._counts[workload], of_workload),
        ):
            if count >= limit:
                return self._reached(what, count, limit, "in flight")
        if limits.per_hour and self._in_last_hour >= limits.per_hour:
            return self._reached("perHour", self._in_last_hour, limits.per_hour, "made within the last hour")
        return None

    def _count(self, move: Move) -> None:
        self._total += 1
        self._counts.update(_places(move))

    def _reached(self, what: str, count: int, limit: int, which: str) -> Held:
        evictions = "1 eviction is" if count == 1 else f"{count} evictions are"
        if which != "in flight":
            evictions = "1 eviction was" if count == 1 else f"{count} evictions were"
        return Held(
            Reason.LIMIT_REACHED,
            f"limits.{what} of policy {self.limiter.policy} is {limit}, and {evictions} {which}",
        )


def _places(move: Move) -> tuple[tuple[str, str], tuple[str, str], tuple[str, object]]:
    """Return what a move counts for besides the whole: its pod's namespace, node and workload."""
    return ("namespace", move.pod.namespace), ("node", move.pod.node_name), ("workload", move.workload)


def _replicas(move: Move, snapshot: ClusterSnapshot) -> int:
    """Return how many pods a move's controller has; it wants no fewer, or the move would be held at its last look."""
    return sum(map(is_active, siblings_of(snapshot, move.pod)))
