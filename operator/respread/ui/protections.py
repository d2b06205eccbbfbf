"""Which workloads' scale-downs follow Respread's costs.

This is determined for each namespace. An unchanged one is not looked at again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from respread.cli.read.planned import Planned
from respread.cli.read.protections import protection_reports
from respread.cli.render.skew_report import ProtectionReport
from respread.cluster.workload import WorkloadName


class _Namespace(NamedTuple):
    depends_on: tuple[Any, ...]
    """Compared by identity."""
    found: dict[WorkloadName, ProtectionReport]


class Protections:
    """Whether workloads are protected in one state of a cluster after another."""

    def __init__(self) -> None:
        self._known: dict[str, _Namespace] = {}

    def of(self, planned: Planned) -> dict[WorkloadName, ProtectionReport]:
        """Return whether the workloads with constraints are protected; empty if policies could not be read."""
        view, spread = planned.view, planned.spread
        known, self._known = self._known, {}
        found: dict[WorkloadName, ProtectionReport] = {}
        for name, groups in spread.by_namespace.items():
            depends_on = view.snapshot.pods_by_labels.get(name), groups, view.snapshot.namespaces, *view.policies
            before = known.get(name)
            if before is None or not _same(before.depends_on, depends_on):
                reports = protection_reports(view, spread, groups.values())
                if reports is None:
                    return {}
                before = _Namespace(depends_on, {_name(each): each for each in reports})
            self._known[name] = before
            found |= before.found
        return found


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _name(report: ProtectionReport) -> WorkloadName:
    return WorkloadName(report.workload.kind, report.namespace, report.workload.name)
