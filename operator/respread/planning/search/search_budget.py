"""The budget of a search. It counts examined positions and courses, so that a search ends alike on every machine."""

from __future__ import annotations


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

    def spend(self) -> None:
        """Use one look."""
        self.spent += 1

    def draw_reserve(self) -> None:
        """Add the reserve to the budget, once."""
        self.drawn = True
        self._most += self._reserve
