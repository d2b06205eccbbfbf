"""How much a search may do: counted in positions and courses looked at, so that it ends alike on every machine."""

from __future__ import annotations


class Effort:
    """A budget of looks, each some tens of microseconds."""

    __slots__ = ("_most", "_reserve", "drawn", "spent")

    def __init__(self, most: int, reserve: int = 0) -> None:
        """Grant looks.

        Args:
            most: so many.
            reserve: so many more once `draw_reserve` asks for them.
        """
        self._most = most
        self._reserve = reserve
        self.drawn = False
        self.spent = 0

    @property
    def exhausted(self) -> bool:
        """Whether the search has to stop."""
        return self.spent >= self._most

    def spend(self) -> None:
        """Look at one more thing."""
        self.spent += 1

    def draw_reserve(self) -> None:
        """Go on with the reserve too."""
        if not self.drawn:
            self.drawn = True
            self._most += self._reserve
