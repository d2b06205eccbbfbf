"""What the operator reports in the statuses of policies. It knows about recent events, which a command does not."""

from __future__ import annotations

from datetime import datetime

import msgspec

from respread.api.policy import Policy
from respread.api.status import MAX_WORKLOADS, AffectedWorkload, ConditionStatus, ConditionType, Violation
from respread.spread.group import SpreadGroup
from respread_cli.read.cluster_view import ReadCluster


class ConditionReport(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a policy."""

    type: ConditionType | str
    status: ConditionStatus
    reason: str
    message: str


class OperatorWord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why the operator does not, or not fully, restore a constraint."""

    time: datetime | None
    """The time of the plan that it describes."""
    reason: str
    message: str


def conditions_of(policy: Policy, view: ReadCluster) -> tuple[ConditionReport, ...]:
    """Return the conditions of a policy for its current generation; none if the operator has not seen it yet."""
    status = view.statuses.get(policy.name)
    if status is None or policy not in view.policies or status.observed_generation != policy.generation:
        return ()
    return tuple(
        ConditionReport(type=each.type, status=each.status, reason=each.reason, message=each.message)
        for each in status.conditions
    )


def word_on(group: SpreadGroup, policy: str | None, view: ReadCluster) -> OperatorWord | None:
    """Return what the operator reports about a group, if it has a reason. A status contains only the worst 20."""
    status = None if policy is None else view.statuses.get(policy)
    if status is None:
        return None
    found = next((each for each in status.violations if each.reason and _is_about(each, group)), None)
    if found is None:
        return None
    return OperatorWord(time=status.last_plan_time, reason=found.reason, message=found.message)


def _is_about(violation: Violation, group: SpreadGroup) -> bool:
    key, constraint = group.key, violation.constraint
    named = tuple(AffectedWorkload(each.kind, each.name) for each in group.workloads[:MAX_WORKLOADS])
    return (violation.namespace, violation.workloads) == (key.namespace, named) and (
        constraint.topology_key,
        constraint.when_unsatisfiable,
        constraint.max_skew,
    ) == (key.topology_key, key.when_unsatisfiable, key.max_skew)
