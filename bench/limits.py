"""How many evictions limits and budgets allow at once, and how much of that was used, without any code of Respread.

It assumes that pods are alike: each replacement is Ready after the same time. Limits per node are left out; in the
clusters of the benches, enough nodes have pods to evict.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from immutables import Map

from bench.judge import Flight, Key

STEP_SECONDS: Final = 0.05
FIRST: Final = 5
"""How many pods of a workload Respread promises to evict before a replacement is Ready. Each one that becomes Ready
doubles them (docs/eviction.md)."""
_MOST_DOUBLINGS: Final = 30


class AtOnce(NamedTuple):
    """How many evictions may be in flight at once, until their replacements are Ready."""

    in_total: int
    per_namespace: int
    per_workload: int
    first: int = sys.maxsize
    """How many of a workload may be in flight before one of its replacements is Ready."""

    @classmethod
    def of(cls, limits: Mapping[str, Any], replicas: int, max_unavailable: str = "", *, ordered: bool = False) -> Self:
        """Return what applies to workloads that are alike.

        Args:
            limits: of a policy, as the API server shows them.
            replicas: of each workload; of the smallest one if they differ.
            max_unavailable: of each workload's PodDisruptionBudget: a percentage, or empty without budgets.
            ordered: whether a workload's controller replaces only one pod at a time.
        """
        most = [max(1, _part(limits["inFlightPerWorkload"], replicas, math.floor))]
        if max_unavailable:
            most.append(_part(max_unavailable, replicas, math.ceil))
        if ordered:
            most.append(1)
        return cls(int(limits["inFlight"]), int(limits["inFlightPerNamespace"]), min(most), FIRST)

    def rounds(self, moves: Mapping[Key, int]) -> int:
        """Return how many times in a row a replacement must be waited for if these are the evictions of each workload.

        Each eviction of a round is of the workload whose namespace or own evictions still need the most rounds.
        """
        left, done, rounds = Counter(moves), Counter[Key](), 0
        while left.total():
            in_flight = Counter[Key]()
            while open_to := [key for key in left if self._may_follow(in_flight, key, left[key], done[key])]:
                in_flight[max(open_to, key=partial(self._urgency, left - in_flight, done + in_flight))] += 1
            left -= in_flight
            done += in_flight
            rounds += 1
        return rounds

    def _may_follow(self, in_flight: Mapping[Key, int], key: Key, left: int, done: int) -> bool:
        return in_flight[key] < min(left, self._most_of_one(done)) and self.has_room(in_flight, key)

    def _urgency(self, left: Mapping[Key, int], made: Mapping[Key, int], key: Key) -> tuple[int, int, int]:
        """Return how many rounds a workload needs, with its namespace and alone; of equals, the one with fewer made."""
        in_namespace = sum(number for (namespace, _), number in left.items() if namespace == key[0])
        alone = math.ceil(left.get(key, 0) / self._most_of_one(made.get(key, 0)))
        return max(math.ceil(in_namespace / self.per_namespace), alone), alone, -made.get(key, 0)

    def _most_of_one(self, ready: int) -> int:
        """Return how many of a workload may be in flight when so many of its replacements are Ready."""
        return min(self.per_workload, self.first << min(ready, _MOST_DOUBLINGS))

    def most(self, wanted: Mapping[Key, int], ready: Mapping[Key, int] = Map()) -> int:
        """Return how many of the evictions that are in flight or left, of each workload, may be in flight at once.

        Args:
            wanted: the evictions.
            ready: how many replacements of each workload are Ready; 0 of those that are not there.
        """
        per_namespace = Counter[str]()
        for key, number in wanted.items():
            per_namespace[key[0]] += min(self._most_of_one(ready.get(key, 0)), number)
        return min(self.in_total, sum(min(self.per_namespace, number) for number in per_namespace.values()))

    def has_room(self, in_flight: Mapping[Key, int], key: Key) -> bool:
        """Return whether one more eviction of a workload may be made beside those in flight."""
        in_namespace = sum(number for (namespace, _), number in in_flight.items() if namespace == key[0])
        return (
            sum(in_flight.values()) < self.in_total
            and in_namespace < self.per_namespace
            and in_flight.get(key, 0) < self.per_workload
        )

    def used(self, moves: Mapping[Key, int], flights: Sequence[Flight], since: float) -> float | None:
        """Return the share of the possible evictions in flight that were, while some were left to be made.

        Args:
            moves: the fewest evictions of each workload.
            flights: the evictions that were made.
            since: when the first one could be made.

        Returns:
            the share; None if none was left at that time.
        """
        started, ended = defaultdict[Key, list[float]](list), defaultdict[Key, list[float]](list)
        for each in flights:
            started[each.key].append(each.evicted_at)
            ended[each.key].append(each.ready_at)
        for times in (*started.values(), *ended.values()):
            times.sort()
        last = max((each.evicted_at for each in flights), default=since)
        were, could_be = 0, 0
        for at in _times(since, last):
            in_flight = {key: bisect_right(started[key], at) - bisect_right(ended[key], at) for key in moves}
            left = {key: max(0, number - bisect_right(started[key], at)) for key, number in moves.items()}
            were += sum(in_flight.values())
            ready = {key: bisect_right(ended[key], at) for key in moves}
            could_be += self.most({key: in_flight[key] + left[key] for key in moves}, ready)
        return were / could_be if could_be else None


def _part(of: int | str, replicas: int, rounded: Any) -> int:
    return of if isinstance(of, int) else int(rounded(replicas * int(of.removesuffix("%")) / 100))


def _times(first: float, last: float) -> Iterable[float]:
    return (first + step * STEP_SECONDS for step in range(max(0, math.ceil((last - first) / STEP_SECONDS))))
