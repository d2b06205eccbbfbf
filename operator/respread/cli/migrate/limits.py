"""Converts descheduler's limits: those of a run become limits for evictions in flight, and for an hour."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Final

from respread.cli.migrate.descheduler import DeschedulerPolicy
from respread.cli.migrate.lines import Line, Remark, Setting
from respread.cli.migrate.reading import Sourced

_MOST_IN_FLIGHT: Final = 10_000
_MOST_PER_HOUR: Final = 1_000_000
_LONGEST_GRACE_SECONDS: Final = 86_400
_FIELDS: Final = {
    "max_no_of_pods_to_evict_total": "limits.inFlight",
    "max_no_of_pods_to_evict_per_namespace": "limits.inFlightPerNamespace",
    "max_no_of_pods_to_evict_per_node": "limits.inFlightPerNode",
}


def lines_of_limits(policy: Sourced[DeschedulerPolicy], runs_per_hour: Fraction | None) -> Iterator[Line]:
    """Yield the result for the limits and the grace period of a policy.

    Args:
        policy: the settings for all profiles.
        runs_per_hour: how often descheduler runs; None if unknown.
    """
    args, places = policy
    for source, field in _FIELDS.items():
        count: int | None = getattr(args, source)
        if count is None:
            continue
        if count == 0:
            why = "With 0 descheduler evicts nothing. A policy of Respread does so as long as its mode is DryRun."
            yield Remark((places[source],), why, caution=True)
            continue
        why = "descheduler counts the evictions of a run; this counts those whose replacement is not Ready yet."
        yield Setting(field, min(count, _MOST_IN_FLIGHT), why, (places[source],))
    total = args.max_no_of_pods_to_evict_total
    if total:
        place = places["max_no_of_pods_to_evict_total"]
        if runs_per_hour is None:
            yield Remark((place,), "How often descheduler runs is not known from this, so limits.perHour is left out.")
        else:
            per_hour = total * runs_per_hour
            why = "As many as its runs of an hour may evict" + (", rounded up." if per_hour.denominator > 1 else ".")
            yield Setting("limits.perHour", min(ceil(per_hour), _MOST_PER_HOUR), why, (place,))
    if (grace := args.grace_period_seconds) is not None:
        place = places["grace_period_seconds"]
        if grace == 0:
            yield Remark(
                (place,),
                "0 takes a pod off the API server before it has stopped, which Respread refuses: two pods of one "
                "StatefulSet identity could run at once. Pods get the time that they ask for.",
            )
        else:
            why = "" if grace <= _LONGEST_GRACE_SECONDS else f"{grace} there; Respread takes a day at most."
            yield Setting("eviction.gracePeriodSeconds", min(grace, _LONGEST_GRACE_SECONDS), why, (place,))
