"""Paths: steps that bring a board as close to its goal as possible."""

from __future__ import annotations

from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.search.cost import Cost
from respread.planning.search.safety import Assessment, BoardStep, StepOutcome


class Choice(NamedTuple):
    """A step of a path, with the outcome from which the path continues."""

    step: BoardStep
    victims: tuple[Pod, ...]
    assessment: Assessment
    outcome: StepOutcome


class Path(NamedTuple):
    """Steps in their order."""

    choices: tuple[Choice, ...]
    violated: tuple[int, ...]
    """How many of the groups to be cured are violated then, by the rank of their policies."""
    excess: int
    """The remaining total excess."""
    proven: bool = False
    """Whether no way that costs less exists."""
    cut: bool = False
    """Whether the path ends only because it is long enough. The rest is planned after it."""

    @property
    def evictions(self) -> int:
        """The number of evicted pods."""
        return sum(len(choice.step) for choice in self.choices)

    @property
    def cost(self) -> Cost:
        """What is less for a better way."""
        return Cost(self.violated, self.excess, self.evictions)
