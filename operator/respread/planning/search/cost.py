"""What a way through a board comes to, as something that compares: the better way costs less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SearchBudget:
    """A budget of looks, each of some tens of microseconds."""

    __slots__ = ("_most", "_reserve", "drawn", "spent")

    def __init__(self, most: int, reserve: int = 0) -> None:
        """Create a budget.

        Args:
            most: the number of looks.
            reserve: the number of additional looks after `draw_reserve`.
        """
        self._most = most
        self._reserve = reserve
        self.drawn = False
        self.spent = 0

    @property
    def exhausted(self) -> bool:
        """Whether the search must stop."""
        return self.spent >= self._most

    def spend(self, looks: int = 1) -> None:
        """Use some looks."""
        self.spent += looks

    def draw_reserve(self) -> None:
        """Add the reserve to the budget, once."""
        self.drawn = True
        self._most += self._reserve


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
