"""What the API server has refused lately, so that planning avoids it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.planning.held import Held


class Refused(NamedTuple):
    """Refusals that are still valid."""

    why_not: Callable[[Pod, tuple[PodDisruptionBudget, ...]], Held | None]
    """Takes a pod and the budgets that select it, and returns why its eviction would be refused again; None if it would
    not."""
    namespaces: frozenset[str] = frozenset()
    """The namespaces with such refusals."""


NOTHING_REFUSED: Final = Refused(lambda _pod, _budgets: None)
