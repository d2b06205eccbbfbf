"""What became of a move."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from respread.cluster.pod import Pod
from respread.planning.plan import Move


class Outcome(StrEnum):
    """What a move did to the spread, as the metric's label says it. After all but `Improved` its groups back off."""

    IMPROVED = "Improved"
    UNCHANGED = "Unchanged"
    """The replacement is in the domain that the pod was in."""
    WORSE = "Worse"
    UNPLACED = "Unplaced"
    """The replacement found no node."""
    NOT_READY = "NotReady"
    """The replacement has a node, and did not become Ready, or did not stay so."""
    UNKNOWN = "Unknown"
    """No replacement came, or the pod never went."""


FAILURES: Final = frozenset({Outcome.UNCHANGED, Outcome.WORSE, Outcome.UNPLACED, Outcome.NOT_READY})
"""Outcomes that leave things no better, or worse, than they were."""

Compare = Callable[[Move, Pod], Outcome]
"""Compares where a move's replacement is with where the pod was. The replacement has a node."""
