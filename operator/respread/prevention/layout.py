"""Where a ReplicaSet's pods are, as plain numbers for ranking, without Kubernetes types.

Every constraint counts the ReplicaSet's own pods, which a scale-down deletes, and other pods, which it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

OUTSIDE: Final = -1
"""In a place: the pod is in no eligible domain of that constraint, or the constraint does not count it."""

Place: TypeAlias = tuple[int, ...]
"""A pod's domain in each constraint, as an index into that constraint's `counts`."""

HARD: Final = 1 << 40
"""The weight of a pod too many in a hard constraint. In a soft one it is 1, so that no possible number of soft
violations exceeds a single hard one."""


class Constraint(msgspec.Struct, frozen=True):
    """A spread group without the pods to rank."""

    hard: bool
    max_skew: int
    counts: tuple[int, ...]
    """For each domain with pods to rank, the number of other pods."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """All other eligible domains, including empty ones, as pairs of a number of pods and the number of domains."""
    minimum_is_zero: bool = False
    """Whether there are fewer domains than minDomains, so that the scheduler uses a global minimum of 0."""

    @property
    def weight(self) -> int:
        """The weight of a pod too many."""
        return HARD if self.hard else 1


class Layout(msgspec.Struct, frozen=True):
    """The pods to rank, by index, and their constraints."""

    constraints: tuple[Constraint, ...]
    places: tuple[Place, ...]


class DomainTally:
    """The pods per domain of one constraint while pods are deleted or brought back, and the violation.

    It stores how many domains have each number of pods, so that a change costs the same with any number of domains.
    """

    __slots__ = ("_at_minimum", "_domains_with", "_fixed_minimum", "_max_skew", "counts", "excess", "minimum")

    def __init__(self, constraint: Constraint, pods: Iterable[int] = ()) -> None:
        """Count the other pods, and pods in the given domains; `OUTSIDE` is none."""
        counts = list(constraint.counts)
        for domain in pods:
            if domain != OUTSIDE:
                counts[domain] += 1
        domains_with: Counter[int] = Counter(counts)
        for count, domains in constraint.elsewhere:
            domains_with[count] += domains
        self.counts = counts
        """Pods per domain."""
        self._domains_with = domains_with
        self._max_skew = constraint.max_skew
        self._fixed_minimum = constraint.minimum_is_zero
        self.minimum = 0 if constraint.minimum_is_zero else min(domains_with, default=0)
        """The global minimum."""
        most = self.minimum + self._max_skew
        self.excess = sum((count - most) * domains for count, domains in domains_with.items() if count > most)
        """Pods above the minimum plus maxSkew, summed over the domains (`SpreadGroup.excess`)."""
        self._at_minimum: int | None = None
        """The effect of a deletion that lowers the minimum, once it was requested."""

    def __copy__(self) -> DomainTally:
        """Return an independent copy."""
        other = object.__new__(DomainTally)
        other.counts = self.counts.copy()
        other.minimum = self.minimum
        other.excess = self.excess
        other._at_minimum = self._at_minimum
        other._domains_with = self._domains_with.copy()
        other._max_skew = self._max_skew
        other._fixed_minimum = self._fixed_minimum
        return other

    def deletion_effect(self, count: int) -> int:
        """Return how much deleting a pod from a domain with this many pods adds to the excess."""
        if count > self.minimum + self._max_skew:
            return -1
        if count != self.minimum or self._fixed_minimum:
            return 0
        if self._at_minimum is None:
            self._at_minimum = self._domains_at_least(self.minimum + self._max_skew)
        return self._at_minimum

    def addition_effect(self, count: int) -> int:
        """Return how much adding a pod to a domain with this many pods adds to the excess."""
        if count >= self.minimum + self._max_skew:
            return 1
        if count != self.minimum or self._fixed_minimum or self._domains_with[count] > 1:
            return 0
        return -self._domains_at_least(self.minimum + self._max_skew + 1)

    def delete(self, domain: int) -> None:
        """Remove a pod from a domain."""
        count = self.counts[domain]
        self.excess += self.deletion_effect(count)
        if count == self.minimum and not self._fixed_minimum:
            self.minimum -= 1
        self._move(domain, count, count - 1)

    def add(self, domain: int) -> None:
        """Add a pod to a domain."""
        count = self.counts[domain]
        self.excess += self.addition_effect(count)
        if count == self.minimum and not self._fixed_minimum and self._domains_with[count] == 1:
            self.minimum += 1
        self._move(domain, count, count + 1)

    def _move(self, domain: int, before: int, after: int) -> None:
        self._at_minimum = None
        self.counts[domain] = after
        self._domains_with[after] += 1
        if self._domains_with[before] == 1:
            del self._domains_with[before]
        else:
            self._domains_with[before] -= 1

    def _domains_at_least(self, least: int) -> int:
        return sum(domains for count, domains in self._domains_with.items() if count >= least)


def violation(layout: Layout, deletion_order: Iterable[int]) -> int:
    """Return the total violation of an order, summed over every number of pods that a scale-down can leave.

    0 means that every scale-down keeps all constraints. Multiples of `HARD` are hard violations.

    Args:
        layout: the pods and constraints.
        deletion_order: all pods of the layout, the first one is deleted first.
    """
    tallies = tallies_of(layout)
    total = 0
    for pod in deletion_order:
        for tally, domain, constraint in zip(tallies, layout.places[pod], layout.constraints, strict=True):
            if domain != OUTSIDE:
                tally.delete(domain)
            if tally.excess:
                total += tally.excess * constraint.weight
    return total


def tallies_of(layout: Layout) -> list[DomainTally]:
    """Return a tally of each constraint, with all pods of the layout."""
    return [
        DomainTally(constraint, (place[at] for place in layout.places))
        for at, constraint in enumerate(layout.constraints)
    ]
