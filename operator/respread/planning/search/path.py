"""Steps that bring a board as near to cured as they can."""

from __future__ import annotations

from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.search.safety import Assessment, Step, StepOutcome


class Choice(NamedTuple):
    """A step of a way, with the outcome that the way goes on from."""

    step: Step
    victims: tuple[Pod, ...]
    assessment: Assessment
    outcome: StepOutcome


class Way(NamedTuple):
    """Steps, one after the other."""

    choices: tuple[Choice, ...]
    excess: int
    """What is left of the total excess."""
    proven: bool
    """Whether no way with less excess left, nor as little excess and fewer evictions, exists. False only where the
    search stopped at its limit."""
    cut: bool = False
    """Whether it ends only because it is long enough: the rest is planned when it has been gone."""

    @property
    def evictions(self) -> int:
        """How many pods are evicted."""
        return sum(len(choice.step) for choice in self.choices)

    @property
    def cost(self) -> tuple[int, int]:
        """What is less for a better way: the excess that is left, then the evictions."""
        return self.excess, self.evictions
