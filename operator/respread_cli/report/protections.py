"""Reports whether workloads' scale-downs follow Respread's pod deletion costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from respread.cluster.workload import WorkloadName
from respread.planning.victims.policies import PolicyIndex
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread.stores.watched_kinds import POLICY_KINDS
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.scale_down_protection import ScaleDownProtection, protection_of
from respread_cli.report.skew_report import ProtectionReport, WorkloadReference
from respread_cli.report.workload_pods import workloads_of

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
    names = sorted({name for group in groups for name in group.workloads}, key=_by_namespace)
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


def _by_namespace(name: WorkloadName) -> tuple[str, str, str]:
    return name.namespace, name.kind, name.name
