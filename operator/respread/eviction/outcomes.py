"""The outcomes of moves."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from respread.cluster.pod import Pod
from respread.planning.plan import Move


class Outcome(StrEnum):
    """The effect of a move on the spread.

    The value is the label in the metrics. After all but `Improved`, the groups back off.
    """

    IMPROVED = "Improved"
    UNCHANGED = "Unchanged"
    """The replacement is in the same domain as the pod was."""
    WORSE = "Worse"
    UNPLACED = "Unplaced"
    """The replacement found no node."""
    NOT_READY = "NotReady"
    """The replacement has a node, and did not become or stay Ready."""
    UNKNOWN = "Unknown"
    """No replacement came, or the pod never went."""


FAILURES: Final = frozenset({Outcome.UNCHANGED, Outcome.WORSE, Outcome.UNPLACED, Outcome.NOT_READY})
"""Outcomes that improved nothing."""

Compare = Callable[[Move, Pod], Outcome]
"""Compares the replacement's place with the pod's. The replacement has a node."""
