"""What a way through a board comes to, as something that compares: the better way costs less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Cost(NamedTuple):
    """What decides between ways, the first that differs: groups left violated, then excess left, then evictions.

    One group within maxSkew and one as it was is better than two that are only nearer to it: who began a group that
    can't be finished has evicted pods and cured nothing.
    """

    violated: tuple[int, ...]
    """How many of the groups to be cured stay violated, by the rank of their policies, the most important first."""
    excess: int
    """What is left of the groups' total excess."""
    evictions: int


def total(costs: Sequence[Cost]) -> Cost:
    """Return what ways of different components cost together; there is one at least."""
    return Cost(
        tuple(map(sum, zip(*(cost.violated for cost in costs), strict=True))),
        sum(cost.excess for cost in costs),
        sum(cost.evictions for cost in costs),
    )
