"""Converts the arguments of the DefaultEvictor, except its selectors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from respread.api.fields import format_duration, parse_duration
from respread.api.structures import shown
from respread.cli.migrate.descheduler import DefaultEvictorArgs
from respread.cli.migrate.lines import Line, Remark, Setting
from respread.cli.migrate.place import SourcePlace
from respread.cli.migrate.protections import EvictorProtection, lines_of_protections, read_protections
from respread.cli.migrate.reading import Reading, Sourced

HIGHEST_PRIORITY: Final = 2**31 - 1
_ABOVE_CRITICAL: Final = "system-node-critical"
_MOST_REPLICAS: Final = 1_000_000
_GREATEST_AGE: Final = timedelta(hours=8760)
_GO_DURATION: Final = re.compile(r"[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


def lines_of_evictor(evictor: Sourced[DefaultEvictorArgs], reading: Reading) -> Iterator[Line]:
    """Yield the result for each argument that is set, and for defaults that differ from Respread's."""
    args, places = evictor
    yield _min_age(args.min_pod_age, places.get("min_pod_age"), reading)
    yield _min_replicas(args.min_replicas, places.get("min_replicas"))
    said = read_protections(evictor, reading)
    yield from _priority(evictor, said.get("SystemCriticalPods"), reading)
    yield from lines_of_protections(said, evictor)
    if args.node_fit is not None:
        yield Remark(
            (places["node_fit"],),
            "Respread only evicts where it can prove by the kube-scheduler's own rules that a replacement fits into "
            "a better "
            "domain" + ("." if args.node_fit else "; that can't be turned off."),
        )
    if args.node_selector:
        yield Remark(
            (places["node_selector"],),
            "Respread considers every node that the kube-scheduler may place a replacement on; it can't be told "
            "to look "
            "at some of them only.",
        )
    if args.no_eviction_policy is not None:
        yield Remark(
            (places["no_eviction_policy"],),
            "Respread never evicts pods with the annotation descheduler.alpha.kubernetes.io/prefer-no-eviction, as "
            "with "
            "Mandatory." + ("" if args.no_eviction_policy == "Mandatory" else " Take it off pods that may be evicted."),
        )


def read_go_duration(text: str, place: SourcePlace, reading: Reading) -> timedelta | None:
    """Read a duration in Go's syntax; None, and a mistake, if it is invalid."""
    if not _GO_DURATION.fullmatch(text):
        reading.mistake(place, f"must be a duration such as 30s, 5m or 1h30m, not {shown(text)}")
        return None
    return parse_duration(text)


def _min_age(text: str | None, place: SourcePlace | None, reading: Reading) -> Setting:
    if text is None or place is None:
        return Setting("victims.minAge", "0s", "For descheduler no pod is too young; Respread's own default is 1m.")
    age = read_go_duration(text, place, reading) or timedelta()
    if age > _GREATEST_AGE:
        return Setting("victims.minAge", "8760h", f"{text} there; Respread takes a year at most.", (place,))
    # No finer than a millisecond, and rather too long than too short.
    milliseconds = -(-max(age, timedelta()) // timedelta(milliseconds=1))
    rounded = format_duration(timedelta(milliseconds=milliseconds)) if milliseconds else "0s"
    return Setting("victims.minAge", rounded, "", (place,))


def _min_replicas(count: int | None, place: SourcePlace | None) -> Setting:
    if count is None or place is None:
        why = "descheduler evicts the only pod of a workload too; Respread's own default, 2, leaves it alone."
        return Setting("victims.minReplicas", 1, why)
    why = "" if count else "0 and 1 mean the same."
    return Setting("victims.minReplicas", min(max(count, 1), _MOST_REPLICAS), why, (place,))


def _priority(
    evictor: Sourced[DefaultEvictorArgs], critical: EvictorProtection | None, reading: Reading
) -> Iterator[Line]:
    threshold, place = evictor.args.priority_threshold, evictor.places.get("priority_threshold")
    given = (place,) if threshold and place else ()
    if threshold and place and threshold.name and threshold.value is not None:
        reading.mistake(place, "set either name or value, not both")
    if threshold and place and threshold.name == _ABOVE_CRITICAL:
        reading.mistake(place.at("name"), f"descheduler refuses {_ABOVE_CRITICAL}: it is above system-cluster-critical")
    if critical and not critical.on:
        why = "No priority protects a pod, system-node-critical pods neither: descheduler evicts them all."
        if given:
            why += " So it does whatever the threshold says."
        yield Setting("victims.priorityThreshold", {"value": HIGHEST_PRIORITY}, why, (critical.place, *given))
        return
    places = (*((critical.place,) if critical else ()), *given)
    if threshold and threshold.value is not None:
        yield Setting("victims.priorityThreshold", {"value": threshold.value}, "", places)
    elif threshold and threshold.name:
        yield Setting("victims.priorityThreshold", {"name": threshold.name}, "", places)
    elif places:
        yield Setting("victims.priorityThreshold", {"name": "system-cluster-critical"}, "", places)
