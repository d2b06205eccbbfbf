"""The differences between two overviews: the data for the page, and the happenings in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from respread.cluster.pod import WorkloadName
from respread.planning.plan import Move
from respread_cli.report.skew_report import WorkloadReference, short_topology_key
from respread_cli.ui.overview import Overview, Row, State

MOST_HAPPENINGS: Final = 50
"""The most in one update. If more happens at once, the rest is counted."""


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

    Args:
        before: the earlier one.
        after: the later one.
        began: the evictions that the operator reports since.
    """
    gone = (evicted(each.pod.name, each.pod.node_name, each.workload, each.policy, after.time) for each in began)
    found = [*gone, *_changed(before, after)]
    if len(found) <= MOST_HAPPENINGS:
        return tuple(found)
    rest = len(found) - MOST_HAPPENINGS
    return (*found[:MOST_HAPPENINGS], Happening(time=after.time, kind="more", text=f"{rest:,} more changes at once"))


def evicted(pod: str, node: str, workload: WorkloadName, policy: str, time: datetime) -> Happening:
    """Return that the operator has evicted a pod of a workload from a node."""
    return Happening(
        time=time,
        kind="evicted",
        text=f"The operator evicted pod {pod} from {node} for policy {policy}",
        namespace=workload.namespace,
        workload=str(WorkloadReference(workload.kind, workload.name)),
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
