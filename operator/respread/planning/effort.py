"""How much a search may do: counted in positions and courses looked at, so that it ends alike on every machine."""

from __future__ import annotations


class Effort:
    """A budget of looks, each some tens of microseconds."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def exhausted(self) -> bool:
        """Whether the search has to stop."""
        return self.left <= 0

    def spend(self) -> None:
        """Look at one more thing."""
        self.left -= 1
