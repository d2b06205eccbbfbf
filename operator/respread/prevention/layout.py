"""Where a ReplicaSet's pods are, as plain numbers for ranking, without Kubernetes types.

Every constraint counts the ReplicaSet's own pods, which a scale-down deletes, and other pods, which it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from respread.spread.counts import Counts, LiveCounts

OUTSIDE: Final = -1
"""In a place: the pod is in no eligible domain of that constraint, or the constraint does not count it."""

Place: TypeAlias = tuple[int, ...]
"""A pod's domain in each constraint, as an index into that constraint's `counts`."""

HARD: Final = 1 << 40
"""The weight of a pod too many in a hard constraint. In a soft one it is 1, so that no possible number of soft
violations exceeds a single hard one."""


DomainTally: TypeAlias = LiveCounts[int]
"""The pods by domain of one constraint while pods are deleted or brought back."""


class Constraint(msgspec.Struct, frozen=True):
    """A spread group without the pods to rank."""

    hard: bool
    max_skew: int
    counts: tuple[int, ...]
    """For each domain with pods to rank, the number of other pods."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """All other eligible domains, including empty ones, as pairs of a number of pods and the number of domains."""
    min_domains: int = 1

    @property
    def weight(self) -> int:
        """The weight of a pod too many."""
        return HARD if self.hard else 1


class Layout(msgspec.Struct, frozen=True):
    """The pods to rank, by index, and their constraints."""

    constraints: tuple[Constraint, ...]
    places: tuple[Place, ...]


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
                tally.change(domain, -1)
            if tally.excess:
                total += tally.excess * constraint.weight
    return total


def tallies_of(layout: Layout) -> list[DomainTally]:
    """Return the counts of each constraint, with all pods of the layout."""
    return [
        tally_of(constraint, (place[at] for place in layout.places)) for at, constraint in enumerate(layout.constraints)
    ]


def tally_of(constraint: Constraint, pods: Iterable[int] = ()) -> DomainTally:
    """Return the counts of a constraint: the other pods, and pods in the given domains; `OUTSIDE` is none."""
    counts = dict(enumerate(constraint.counts))
    for domain in pods:
        if domain != OUTSIDE:
            counts[domain] += 1
    domains_with = Counter(counts.values())
    for count, domains in constraint.elsewhere:
        domains_with[count] += domains
    return LiveCounts(counts, Counts(tuple(sorted(domains_with.items())), constraint.max_skew, constraint.min_domains))
