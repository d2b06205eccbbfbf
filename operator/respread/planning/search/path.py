"""Paths: steps that bring a board as close to its goal as possible."""

from __future__ import annotations

from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.search.safety import Assessment, Step, StepOutcome


class Choice(NamedTuple):
    """A step of a path, with the outcome from which the path continues."""

    step: Step
    victims: tuple[Pod, ...]
    assessment: Assessment
    outcome: StepOutcome


class Way(NamedTuple):
    """Steps in their order."""

    choices: tuple[Choice, ...]
    excess: int
    """The remaining total excess."""
    proven: bool
    """Whether no path exists with less remaining excess, or with the same excess and fewer evictions. False only if the
    search reached its budget."""
    cut: bool = False
    """Whether the path ends only because it is long enough. The rest is planned after it."""

    @property
    def evictions(self) -> int:
        """The number of evicted pods."""
        return sum(len(choice.step) for choice in self.choices)

    @property
    def cost(self) -> tuple[int, int]:
        """A sort key, lower for a better path: the remaining excess, then the evictions."""
        return self.excess, self.evictions
