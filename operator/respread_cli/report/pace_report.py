"""How long a plan's evictions take within limits, as values and in words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from respread.api.policy import Policy
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limits.limiter import Limiter
from respread.eviction.limits.lots import lots_of
from respread.eviction.limits.remaining import PresentLimits, about, in_words
from respread.eviction.limits.trust import Trust
from respread.planning.plan import Move
from respread.planning.victims.budget_index import BudgetIndex


class PaceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An estimate of how long evictions take at the policies' limits."""

    seconds: int | None
    """Until the last replacement is Ready; null if no pod shows how long that takes."""
    bound_by: str | None
    """The limit that bounds it, with its value; null without evictions, and if the time is unknown."""


def pace_report(
    snapshot: ClusterSnapshot,
    policies: Iterable[Policy],
    moves: Iterable[Move],
    in_flight: Iterable[Move] = (),
    after: timedelta = timedelta(),
) -> PaceReport:
    """Return how long evictions take.

    Args:
        snapshot: the cluster.
        policies: all policies.
        moves: the evictions.
        in_flight: those that are already made, and whose replacement is not Ready yet.
        after: the time until the first one.
    """
    limits = PresentLimits(snapshot=snapshot, limiters=tuple(map(Limiter.of, policies)), now=0.0, trust=Trust())
    found = limits.remaining(lots_of(snapshot, BudgetIndex(), moves, in_flight)).values()
    if any(each.seconds is None for each in found):
        return PaceReport(seconds=None, bound_by=None)
    bounds = [each.bound for each in found if each.bound is not None]
    if not bounds:
        return PaceReport(seconds=0, bound_by=None)
    longest = max(bounds, key=lambda bound: bound.seconds)
    return PaceReport(seconds=about(longest.seconds + after.total_seconds()), bound_by=str(longest))


def pace_in_words(pace: PaceReport) -> str:
    """Return a clause such as `about 41 min: inFlightPerWorkload 1`."""
    if pace.seconds is None:
        return "an unknown time: no pod shows how long it takes to become Ready"
    return f"about {in_words(pace.seconds)}: {pace.bound_by}"
