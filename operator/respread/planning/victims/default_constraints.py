"""Which default topology spread constraints of the scheduler matter to policies."""

from __future__ import annotations

from collections.abc import Iterable

from respread.api.policy import Policy, WhenUnsatisfiable
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS


def kinds_restored(policies: Iterable[Policy]) -> frozenset[WhenUnsatisfiable]:
    """Return the kinds of default constraints that matter to some policies."""
    soft = any("ScheduleAnyway" in policy.spec.constraints.when_unsatisfiable for policy in policies)
    return ALL_DEFAULTS if soft else HARD_DEFAULTS
