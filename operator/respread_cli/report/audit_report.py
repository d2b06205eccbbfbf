"""What the audit finds about a constraint, in reports. docs/audit.md explains the rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import msgspec

from respread.cluster.workload import WorkloadName
from respread.planning.audit.auditor import WorkloadFinding
from respread.planning.audit.finding import AuditRule, PatchOperation, UnworkableState, When


class FindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a constraint can't work, and what cures it."""

    rule: AuditRule
    state: UnworkableState
    when: When
    message: str
    cure: str
    docs: str
    """The page of the documentation of Kubernetes."""
    workloads: tuple[str, ...]
    """The workloads that have it: `deployment/web`."""
    patch: tuple[PatchOperation, ...]
    """A JSON patch for each of the workloads; empty if no change of a workload cures it."""
    command: str | None
    """The command that applies it to the first workload."""


def finding_reports(namespace: str, findings: Iterable[WorkloadFinding]) -> tuple[FindingReport, ...]:
    """Return the report of each finding about a constraint."""
    return tuple(_report(namespace, each) for each in findings)


def _report(namespace: str, found: WorkloadFinding) -> FindingReport:
    finding, first = found.finding, next(iter(found.workloads), None)
    patch = () if first is None else finding.patch_of(first.kind)
    return FindingReport(
        rule=finding.rule,
        state=finding.state,
        when=finding.when,
        message=finding.message,
        cure=finding.cure,
        docs=finding.rule.docs,
        workloads=tuple(f"{each.kind.lower()}/{each.name}" for each in found.workloads),
        patch=patch,
        command=None if first is None or not patch else _command(namespace, first, patch),
    )


def _command(namespace: str, workload: WorkloadName, patch: tuple[PatchOperation, ...]) -> str:
    encoded = shlex.quote(msgspec.json.encode(patch).decode())
    return f"kubectl -n {namespace} patch {workload.kind.lower()}/{workload.name} --type=json -p {encoded}"
