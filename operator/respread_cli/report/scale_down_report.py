"""What a scale-down of a workload would do to its spread, and whether Respread's costs decide."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from respread.cluster.pod import WorkloadName
from respread.planning.victims.policies import PolicyIndex
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread.stores.watched_kinds import POLICY_KINDS
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.forecast import NotForetoldError, foretell
from respread_cli.report.scale_down_protection import ScaleDownProtection, WorkloadPods, protection_of, workloads_of
from respread_cli.report.skew_report import ProtectionReport, WorkloadReference

MOST_FORETOLD: Final = 200
"""No forecast for workloads with more pods, because one forecast for each number of replicas takes too long."""


class ScaleDownReport(ProtectionReport, frozen=True, kw_only=True, rename="camel"):
    """How scale-downs of a workload choose pods, and what they would leave."""

    replicas: int
    """The current number."""
    violating_replicas: tuple[int, ...] | None
    """The lower numbers at which a scale-down now would leave a constraint violated; null if unknown."""
    certain: bool
    """Whether it is certain which pods are deleted. If their age decides, the likely ones are assumed."""


def scale_down_reports(
    view: ReadCluster, spread: Spread, policies: PolicyIndex, workloads: Iterable[WorkloadName]
) -> tuple[ScaleDownReport, ...]:
    """Return the reports of some workloads, without those that have no pods."""
    names = list(workloads)
    found = workloads_of(view.snapshot, spread, {name.namespace for name in names})
    return tuple(
        _report(found[name], protection_of(found[name], policies, view.snapshot, view.records), view.time)
        for name in names
        if name in found
    )


def _report(workload: WorkloadPods, protection: ScaleDownProtection, now: datetime) -> ScaleDownReport:
    violating, certain = _violating(workload, now)
    return ScaleDownReport(
        **msgspec.structs.asdict(protection_report(workload.name, protection)),
        replicas=len(workload.pods),
        violating_replicas=violating,
        certain=certain,
    )


def _violating(workload: WorkloadPods, now: datetime) -> tuple[tuple[int, ...] | None, bool]:
    if len(workload.pods) > MOST_FORETOLD:
        return None, False
    violating, certain = [], True
    for replicas in range(1, len(workload.pods)):
        try:
            forecast = foretell(workload, replicas, now)
        except NotForetoldError:
            return None, False
        certain = certain and forecast.certain
        if forecast.evictions:
            violating.append(replicas)
    return tuple(violating), certain


_DEPENDS_ON: Final = frozenset({"namespaces", *(kind.resource for kind in POLICY_KINDS)})
"""Resources without which this is unknown."""


def is_known(view: ReadCluster) -> bool:
    """Return whether everything was read on which protection depends."""
    return _DEPENDS_ON.isdisjoint(view.left_out)


def protection_reports(
    view: ReadCluster, spread: Spread, groups: Iterable[SpreadGroup]
) -> tuple[ProtectionReport, ...] | None:
    """Return whether the workloads of some groups are protected; None if policies could not be read."""
    if not is_known(view):
        return None
    names = sorted(
        {name for group in groups for name in group.workloads}, key=lambda name: (name.namespace, name.kind, name.name)
    )
    workloads = workloads_of(view.snapshot, spread, {name.namespace for name in names})
    index = PolicyIndex(view.policies)
    return tuple(
        protection_report(name, protection_of(workloads[name], index, view.snapshot, view.records))
        for name in names
        if name in workloads  # Otherwise all its pods are being deleted.
    )


def protection_report(name: WorkloadName, protection: ScaleDownProtection) -> ProtectionReport:
    """Return whether a workload is protected, as reports say it."""
    return ProtectionReport(
        namespace=name.namespace,
        workload=WorkloadReference(name.kind, name.name),
        protected=protection.protected,
        reason=protection.reason,
        message=protection.message,
        policy=protection.policy or None,
    )
