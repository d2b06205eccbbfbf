"""What happens in a cluster, and what happened before the page was opened.

The former are the differences between overviews; the latter is from the operator's Events and records, and from a
Prometheus if one is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec
import requests

from respread.api.reasons import EVICTED_FOR_SPREAD
from respread.cluster.pod import WorkloadName
from respread.planning.plan import Move
from respread.program.command_line import CommandError
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.skew_report import short_topology_key
from respread_cli.report.target import WorkloadReference
from respread_cli.ui.events import OperatorEvent, ReadEvents
from respread_cli.ui.overview import Overview, Row, State

_HOUR: Final = timedelta(hours=1)
_MOST_AT_ONCE: Final = 50
"""The most happenings in one update. If more happens at once, the rest is counted."""
_MOST_POINTS: Final = 600
_MOST_HAPPENINGS: Final = 200
HOURS: Final = 6
_STEP_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = (3, 10)
_VIOLATED: Final = "sum(max by (policy_namespace, policy, when_unsatisfiable) (respread_spread_groups_violated))"
_IN_FLIGHT: Final = "sum(max by (policy_namespace, policy) (respread_evictions_in_flight))"
"""Without what tells the replicas of the operator apart, of which the leader alone knows these."""


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
    read: ReadEvents, view: ReadCluster, points: tuple[PastPoint, ...] = (), unreadable: str | None = None
) -> PageHistory:
    """Return what happened before.

    The view has the records. `points` are what a Prometheus knows, and `unreadable` is why it can't be read.
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


class PastPoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster in numbers at one time of the past."""

    time: datetime
    violated: int
    in_flight: int


def read_past(url: str, now: datetime) -> tuple[PastPoint, ...]:
    """Return a point for each minute of the last `HOURS` in which the operator was scraped, oldest first.

    The URL is that of the Prometheus, with the prefix of its paths if it has one.

    Raises:
        CommandError: it can't be read.
    """
    violated, in_flight = (_series(url, query, now) for query in (_VIOLATED, _IN_FLIGHT))
    return tuple(
        PastPoint(time=datetime.fromtimestamp(moment, UTC), violated=number, in_flight=in_flight.get(moment, 0))
        for moment, number in sorted(violated.items())
    )


def _series(url: str, query: str, now: datetime) -> dict[float, int]:
    end = now.timestamp()
    asked: dict[str, str | float] = {"query": query, "start": end - 3600 * HOURS, "end": end, "step": _STEP_SECONDS}
    try:
        answer = requests.get(f"{url.rstrip('/')}/api/v1/query_range", params=asked, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        found = msgspec.json.decode(answer.content, type=_Answer).data.result
    except (requests.exceptions.RequestException, msgspec.DecodeError) as error:
        raise CommandError(f"The history can't be read from the Prometheus at {url}: {error}.") from error
    return {moment: round(float(value)) for series in found for moment, value in series.values}


class _Series(msgspec.Struct):
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct):
    result: tuple[_Series, ...] = ()


class _Answer(msgspec.Struct):
    data: _Data


class Happening(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change for the timeline."""

    time: datetime
    kind: Literal["violated", "restored", "blocked", "evicted", "failed", "said", "more"]
    text: str
    namespace: str = ""
    workload: str = ""
    """As in `deploy/web`; empty if it concerns several."""
    pod: str = ""
    """The evicted pod."""


class OverviewChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields and rows that differ from the version before."""

    version: int
    fields: dict[str, Any]
    """Every changed field of `Overview` except its rows."""
    rows: tuple[Row, ...]
    """Rows that are new or differ."""
    gone: tuple[str, ...]
    """The ids of rows that no longer exist."""


def change_between(before: Overview, after: Overview, version: int) -> OverviewChange | None:
    """Return what differs; None if it is only the time."""
    known = {row.id: row for row in before.rows}
    rows = tuple(row for row in after.rows if (old := known.get(row.id)) is not row and old != row)
    gone = tuple(sorted(known.keys() - {row.id for row in after.rows}))
    fields = {
        field.encode_name: getattr(after, field.name)
        for field in msgspec.structs.fields(Overview)
        if field.name != "rows" and getattr(before, field.name) != getattr(after, field.name)
    }
    if not rows and not gone and fields.keys() <= {"time"}:
        return None
    return OverviewChange(version=version, fields=fields, rows=rows, gone=gone)


def happenings(before: Overview, after: Overview, began: tuple[Move, ...]) -> tuple[Happening, ...]:
    """Return the happenings between two overviews.

    The operator reports that evictions `began` since the earlier one.
    """
    gone = (evicted(each.pod.name, each.pod.node_name, each.workload, each.policy, after.time) for each in began)
    found = [*gone, *_changed(before, after)]
    if len(found) <= _MOST_AT_ONCE:
        return tuple(found)
    rest = len(found) - _MOST_AT_ONCE
    return (*found[:_MOST_AT_ONCE], Happening(time=after.time, kind="more", text=f"{rest:,} more changes at once"))


def evicted(pod: str, node: str, workload: WorkloadName, policy: str, time: datetime) -> Happening:
    """Return that the operator has evicted a pod of a workload from a node."""
    return Happening(
        time=time,
        kind="evicted",
        text=f"The operator evicted pod {pod} from {node} for policy {policy}",
        namespace=workload.namespace,
        workload=str(WorkloadReference.of(workload)),
        pod=pod,
    )


def _changed(before: Overview, after: Overview) -> Iterator[Happening]:
    known = {row.id: row for row in before.rows}
    for row in after.rows:
        old = known.get(row.id)
        if old is row:
            continue
        was = old is not None and old.group.violated
        if row.group.violated and not was:
            yield _happening(
                row, "violated", f"is violated: skew {row.group.skew}, allowed {row.group.max_skew}", after
            )
        elif was and not row.group.violated:
            yield _happening(row, "restored", f"holds again: skew {row.group.skew}", after)
        elif old is not None and row.state is State.BLOCKED and old.state is not State.BLOCKED:
            yield _happening(row, "blocked", f"is blocked: {row.reason}", after)


def _happening(row: Row, kind: Literal["violated", "restored", "blocked"], said: str, after: Overview) -> Happening:
    group = row.group
    workload = str(group.workloads[0]) if group.workloads else ""
    return Happening(
        time=after.time,
        kind=kind,
        text=f"The {short_topology_key(group.topology_key)} constraint of {workload or group.selector} {said}",
        namespace=group.namespace,
        workload=workload,
    )


class TimePoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster in numbers at one time."""

    time: datetime
    violated: int
    excess: int
    worst_skew: int
    in_flight: int


class TimelineChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The additions to the timeline since it was last sent."""

    points: tuple[TimePoint, ...]
    happenings: tuple[Happening, ...]


class Timeline:
    """Keeps the newest points and changes."""

    def __init__(self) -> None:
        self._points: deque[TimePoint] = deque(maxlen=_MOST_POINTS)
        self._happenings: deque[Happening] = deque(maxlen=_MOST_HAPPENINGS)

    def record(self, overview: Overview, found: tuple[Happening, ...]) -> TimelineChange:
        """Add changes, and return the addition."""
        point = TimePoint(
            time=overview.time,
            violated=overview.violated,
            excess=overview.excess,
            worst_skew=overview.worst_skew,
            in_flight=sum(row.in_flight for row in overview.rows),
        )
        self._points.append(point)
        self._happenings.extend(found)
        return TimelineChange(points=(point,), happenings=found)

    def everything(self) -> TimelineChange:
        """Return all that is kept."""
        return TimelineChange(points=tuple(self._points), happenings=tuple(self._happenings))
