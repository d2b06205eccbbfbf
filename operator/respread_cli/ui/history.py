"""What happened before the page was opened: from the operator's Events and records, and from a Prometheus if given."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import msgspec

from respread.api.reasons import EVICTED_FOR_SPREAD
from respread.cluster.pod import WorkloadName
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.read.prometheus import PastPoint
from respread_cli.ui.changes import Happening, evicted
from respread_cli.ui.events import OperatorEvent, ReadEvents

_HOUR: Final = timedelta(hours=1)


class PageHistory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happened before."""

    happenings: tuple[Happening, ...]
    """Newest first. An eviction is in it once, whoever tells of it."""
    evictions: int | None
    """Of the last hour, as the records count them; null if no policy bounds them."""
    points: tuple[PastPoint, ...]
    """Oldest first; empty without a Prometheus."""
    unreadable: str | None
    """Why not all could be read, in sentences; null if all was."""


def history_of(
    read: ReadEvents,
    view: ReadCluster,
    points: tuple[PastPoint, ...] = (),
    unreadable: str | None = None,
) -> PageHistory:
    """Return what happened before.

    Args:
        read: the Events on all policies.
        view: the cluster with the records.
        points: what a Prometheus knows.
        unreadable: why it can't be read; None if it can.
    """
    found: dict[object, Happening] = {}
    for event in sorted(read.events, key=lambda each: each.time):
        happening = _of_event(event)
        found.setdefault(
            _identity(happening) if event.reason == EVICTED_FOR_SPREAD else (event.reason, event.note), happening
        )
    for happening in _recorded(view):
        found.setdefault(_identity(happening), happening)
    said = [each for each in (read.unreadable, unreadable) if each]
    return PageHistory(
        happenings=tuple(sorted(found.values(), key=lambda each: each.time, reverse=True)),
        evictions=_of_last_hour(view),
        points=points,
        unreadable=" ".join(said) or None,
    )


def _recorded(view: ReadCluster) -> Iterator[Happening]:
    """Yield the evictions that records contain: those whose outcome was not known when they were written."""
    for policy, record in view.records.items():
        for each in record.moves_in_flight:
            kind, _, name = each.workload.partition("/")
            yield evicted(each.pod, each.node, WorkloadName(kind, each.namespace, name), policy, each.sent)


def _identity(happening: Happening) -> object:
    return happening.namespace, happening.pod


def _of_event(event: OperatorEvent) -> Happening:
    pod = event.related if event.related.kind == "Pod" else event.regarding
    is_pod = pod.kind == "Pod"
    return Happening(
        time=event.time,
        kind="failed" if event.warning else "evicted" if event.reason == EVICTED_FOR_SPREAD else "said",
        text=event.note if event.reason == EVICTED_FOR_SPREAD else f"{event.reason}: {event.note}",
        namespace=pod.namespace,
        pod=pod.name if is_pod else "",
    )


def _of_last_hour(view: ReadCluster) -> int | None:
    counts = [
        each.evictions
        for record in view.records.values()
        for each in record.recent_evictions
        if view.time - each.minute <= _HOUR
    ]
    return sum(counts) if counts else None
