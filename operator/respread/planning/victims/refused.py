"""What the API server has refused lately, for planning to do without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.planning.held import Held


class Refused(NamedTuple):
    """Refusals that still hold."""

    why_not: Callable[[Pod, tuple[PodDisruptionBudget, ...]], Held | None]
    """Given a pod and the budgets that select it, why there is no point in asking for its eviction; None if there
    is."""
    namespaces: frozenset[str] = frozenset()
    """Those in which something was refused."""


NOTHING_REFUSED: Final = Refused(lambda _pod, _budgets: None)
