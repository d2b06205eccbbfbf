"""Computes a policy's status from the plan and from what was done for the policy.

This module is pure: the caller passes the time, and the same outcome gives the same status, so the caller only has to
compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Reason, listed
from respread.api.record import ContestedCosts
from respread.api.status import (
    MAX_CONDITIONS,
    MAX_DOMAINS,
    MAX_MESSAGE_LENGTH,
    MAX_VIOLATIONS,
    MAX_WORKLOADS,
    BlockedCount,
    Condition,
    ConditionStatus,
    ConditionType,
    PaceEstimate,
    PolicyStatus,
    Summary,
    UnworkableConstraint,
    Violation,
)

PASSING_REASONS = frozenset(
    {
        Reason.API_UNAVAILABLE,
        Reason.BACKING_OFF,
        Reason.BUDGET_OUT_OF_DATE,
        Reason.DRY_RUN,
        Reason.IN_MOTION,
        Reason.LIMIT_REACHED,
        Reason.NAMESPACE_TERMINATING,
        Reason.NODE_LEAVING,
        Reason.NOT_LEADING,
        Reason.OTHER_DESCHEDULER,
        Reason.PAUSED,
        Reason.PODS_NOT_READY,
        Reason.QUIET_PERIOD,
        Reason.SEARCH_LIMIT,
        Reason.TOO_YOUNG,
        Reason.WAITING_FOR_ROOM,
        Reason.WINDOW_CLOSED,
    }
)
"""Reasons that end by themselves or are intended. Groups that wait for them are not Blocked."""


class RoomReason(StrEnum):
    """What is done about room that a policy asks for (`provision: Request`)."""

    REFUSED = "Refused"
    PRIORITY_NOT_NEGATIVE = "PriorityNotNegative"
    NO_NODE_CAME = "NoNodeCame"
    REQUESTED = "Requested"
    REQUESTED_LATER = "RequestedLater"


class RoomMissing(NamedTuple):
    """What is done about room in domains without a node, or without room."""

    reason: RoomReason
    about: str
    """Which room, or the API server's message."""


class MissingPermission(NamedTuple):
    """A permission that the policy needs and the operator does not have."""

    permission: str
    """A verb and a resource, as for `kubectl auth can-i`."""
    namespaces: tuple[str, ...]
    """Where it is missing; an empty name stands for the whole cluster."""
    needed_for: str
    action: str
    """What to do, as a clause."""


class PolicyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one plan found for one policy, and what was done for it."""

    summary: Summary
    pace: PaceEstimate = PaceEstimate()
    violations: tuple[Violation, ...] = ()
    """All violations, in any order, with all their domains. The status contains only the worst."""
    unworkable: tuple[UnworkableConstraint, ...] = ()
    """The worst constraints that can't work, as many as a status contains."""
    blocked: tuple[BlockedCount, ...] = ()
    paused: str = ""
    """Why the policy evicts nothing, or only a single pod, after failures in a row. Empty if it is not paused."""
    oscillating: tuple[str, ...] = ()
    """Violated groups that have had as many evictions as an hour allows, one clause each."""
    other_evictions: tuple[str, ...] = ()
    """Workloads whose pods somebody else evicts again and again, one clause each."""
    contested_costs: tuple[ContestedCosts, ...] = ()
    """ReplicaSets whose costs somebody else removes or replaces again and again, the worst first."""
    room_missing: RoomMissing | None = None
    """What is done about missing room in domains; None if the policy asks for none now."""
    missing_permissions: tuple[MissingPermission, ...] = ()
    overridden_by: tuple[str, ...] = ()
    """Names of the policies that govern pods which this policy selects too."""
    plan_time: datetime
    last_eviction_time: datetime | None = None
    """None if this process has not evicted for the policy. The status then keeps its value."""


class _Verdict(NamedTuple):
    status: ConditionStatus
    reason: str
    message: str


_USUAL: Final[frozenset[ConditionType]] = frozenset({"Ready", "Balanced", "Progressing", "Blocked"})
"""Conditions that a policy always has. It has others only after they were True once."""
_WAITED_FOR: Final = {
    Reason.WINDOW_CLOSED: "a window of spec.windows",
    Reason.PAUSED: "the end of a pause: see the condition Paused",
}
"""What planned evictions wait for, by reason."""
_NOT_PLANNED = _Verdict("Unknown", "NotPlannedYet", "No plan has been made for this policy yet.")


def next_status(
    policy: Policy, previous: PolicyStatus, outcome: PolicyOutcome | None, *, now: datetime
) -> PolicyStatus:
    """Return the status that the policy should have now.

    If only the time has changed, the result equals `previous`, and there is nothing to write. An `outcome` is None
    before the first plan. Values that only a plan can determine then stay as they were, under the generation that they
    describe. Kubernetes stores whole seconds, and so does the status.
    """
    now = now.replace(microsecond=0)
    verdicts: dict[ConditionType, _Verdict | None] = {
        "Ready": _ready(policy, outcome),
        "Balanced": None if outcome is None else _balanced(outcome),
        "Progressing": None if outcome is None else _progressing(policy, outcome),
        "Blocked": None if outcome is None else _blocked(outcome),
        "Reconciling": _reconciling(policy, previous, outcome),
        "Stalled": _stalled(policy),
        "Paused": None if outcome is None else _paused(outcome),
        "Oscillating": None if outcome is None else _oscillating(outcome),
        "CostsContested": None if outcome is None else _costs_contested(outcome),
        "OtherDescheduler": None if outcome is None else _other_descheduler(outcome),
        "RoomMissing": None if outcome is None else _room_missing(outcome),
        "PermissionMissing": None if outcome is None else _permission_missing(outcome),
    }
    ours = tuple(
        _condition(name, verdict, previous.condition(name), policy.generation, now)
        for name, verdict in verdicts.items()
        if name in _USUAL or previous.condition(name) is not None or (verdict is not None and verdict.status == "True")
    )
    others = tuple(each for each in previous.conditions if each.type not in verdicts)[: MAX_CONDITIONS - len(ours)]
    if outcome is None:
        return msgspec.structs.replace(previous, observed_generation=policy.generation, conditions=ours + others)
    status = PolicyStatus(
        observed_generation=policy.generation,
        conditions=ours + others,
        summary=outcome.summary,
        pace=outcome.pace,
        violations=tuple(_shortened(each) for each in _worst(outcome.violations)),
        unworkable=outcome.unworkable,
        blocked=tuple(sorted(outcome.blocked, key=lambda each: (-each.groups, -each.pods, each.reason))),
        last_plan_time=previous.last_plan_time,
        last_eviction_time=_whole_seconds(outcome.last_eviction_time) or previous.last_eviction_time,
    )
    if status == previous and status.last_plan_time is not None:
        return previous
    return msgspec.structs.replace(status, last_plan_time=_whole_seconds(outcome.plan_time))


def _ready(policy: Policy, outcome: PolicyOutcome | None) -> _Verdict:
    if policy.problems:
        return _Verdict("False", Reason.INVALID_POLICY, _what_is_wrong(policy))
    if outcome is not None and outcome.overridden_by:
        others = _listed(outcome.overridden_by)
        if not outcome.summary.pods:
            return _Verdict("True", "Overridden", f"Other policies govern all selected pods: {others}.")
        return _Verdict("True", "PartlyOverridden", f"Other policies govern some of the selected pods: {others}.")
    if outcome is not None and outcome.missing_permissions:
        return _Verdict("True", "PermissionMissing", "The policy is valid, but a permission that it needs is missing.")
    if outcome is not None and not outcome.summary.pods:
        return _Verdict("True", "GovernsNoPod", "The policy is valid and has no effect: it governs no pod.")
    return _Verdict("True", "Valid", "The policy is valid and in force.")


def _reconciling(policy: Policy, previous: PolicyStatus, outcome: PolicyOutcome | None) -> _Verdict:
    """Return `Reconciling`, with the meaning of kstatus: no plan has been made yet for the current generation."""
    planned = previous.condition("Balanced")
    if outcome is None and (planned is None or planned.observed_generation != policy.generation):
        return _Verdict("True", _NOT_PLANNED.reason, _NOT_PLANNED.message)
    return _Verdict("False", "Planned", "A plan has been made for the current generation of the policy.")


def _stalled(policy: Policy) -> _Verdict:
    """Return `Stalled`, with the meaning of kstatus: the policy is invalid until its author changes it."""
    if policy.problems:
        return _Verdict("True", Reason.INVALID_POLICY, _what_is_wrong(policy))
    return _Verdict("False", "Valid", "The policy is valid.")


def _what_is_wrong(policy: Policy) -> str:
    problems = "; ".join(str(each) for each in policy.problems)
    return f"Nothing is evicted until this is fixed: {problems}"


def _balanced(outcome: PolicyOutcome) -> _Verdict:
    summary = outcome.summary
    if not summary.groups:
        return _Verdict("True", "NoConstraints", "No topology spread constraint is selected by the policy.")
    if not summary.violated:
        return _Verdict("True", "ConstraintsHold", "Every topology spread constraint holds.")
    return _Verdict(
        "False",
        "ConstraintsViolated",
        f"Violated spread groups: {summary.violated} of {summary.groups}. The worst skew is {summary.worst_skew}.",
    )


def _progressing(policy: Policy, outcome: PolicyOutcome) -> _Verdict:
    in_flight, planned = outcome.summary.in_flight, outcome.summary.planned_evictions
    if in_flight:
        return _Verdict("True", "EvictionsInFlight", f"Evictions whose replacement is not Ready yet: {in_flight}.")
    if not planned:
        return _Verdict("False", "NothingToDo", "No eviction is planned.")
    if (kept := _what_keeps(policy, outcome)) is not None:
        reason, why = kept
        return _Verdict("False", reason, f"Evictions planned: {planned}. {why}")
    return _Verdict("True", "EvictionsPlanned", f"Evictions planned: {planned}.")


def _what_keeps(policy: Policy, outcome: PolicyOutcome) -> tuple[str, str] | None:
    """Return why no planned eviction is made, in one word and for people; None if they are."""
    if policy.problems:
        return Reason.INVALID_POLICY, "An invalid policy makes none."
    if policy.spec.mode == "DryRun":
        return Reason.DRY_RUN, "Set spec.mode to Enforce to make them."
    if policy.spec.limits.per_hour == 0:
        return Reason.LIMIT_REACHED, "spec.limits.perHour is 0: none is made."
    waiting = {each.reason for each in outcome.blocked}
    return next(((reason, f"They wait for {what}.") for reason, what in _WAITED_FOR.items() if reason in waiting), None)


def _blocked(outcome: PolicyOutcome) -> _Verdict:
    holding = [each for each in outcome.blocked if each.groups and each.reason not in PASSING_REASONS]
    if not holding:
        return _Verdict("False", "NotBlocked", "No violated group is blocked.")
    holding.sort(key=lambda each: (-each.groups, each.reason))
    counts = ", ".join(f"{each.reason} ({each.groups})" for each in holding)
    reason = holding[0].reason if len(holding) == 1 else "SeveralReasons"
    return _Verdict("True", reason, f"Spread groups that can't be restored now: {counts}.")


def _paused(outcome: PolicyOutcome) -> _Verdict:
    if not outcome.paused:
        return _Verdict("False", "NotPaused", "Evictions have not failed in a row.")
    return _Verdict("True", "EvictionsFail", f"{outcome.paused[0].upper()}{outcome.paused[1:]}.")


def _oscillating(outcome: PolicyOutcome) -> _Verdict:
    if not outcome.oscillating:
        return _Verdict("False", "NotOscillating", "No group is violated after as many evictions as an hour allows.")
    return _Verdict(
        "True",
        "EvictionsDoNotLast",
        f"Violated again after as many evictions as limits.perHourPerGroup allows: {_listed(outcome.oscillating)}. "
        "Something may undo them: another descheduler, node consolidation, an autoscaler that scales up and down.",
    )


def _costs_contested(outcome: PolicyOutcome) -> _Verdict:
    if not outcome.contested_costs:
        return _Verdict("False", "NotContested", "Nobody else removes or replaces pod deletion costs of Respread.")
    workloads = {f"{each.kind}/{each.name} in {each.namespace}" for each in outcome.contested_costs}
    writers = {each.writer for each in outcome.contested_costs if each.writer}
    who = f"Somebody else (field manager {_listed(writers)})" if writers else "Somebody else"
    return _Verdict(
        "True",
        "OtherWriter",
        f"{who} removes or replaces the pod deletion costs of {_listed(workloads)}. Respread writes them less and less "
        "often: let one of the two write costs there, or set spec.prevention.costsOfOthers.",
    )


def _other_descheduler(outcome: PolicyOutcome) -> _Verdict:
    if not outcome.other_evictions:
        return _Verdict("False", "NoOtherEvictions", "Nobody else evicts pods of the policy again and again.")
    return _Verdict(
        "True",
        "EvictionsByOthers",
        f"Somebody else evicts pods again and again from nodes that stay: {_listed(outcome.other_evictions)}. Their "
        "constraints are left alone, each time for longer: let one of the two restore the spread.",
    )


def _room_missing(outcome: PolicyOutcome) -> _Verdict:
    if outcome.room_missing is None:
        return _Verdict("False", "NotMissing", "No room is asked for in any domain.")
    reason, about = outcome.room_missing
    match reason:
        case RoomReason.REFUSED:
            message = f"Room can't be asked for: {about}"
        case RoomReason.PRIORITY_NOT_NEGATIVE:
            message = f"priorityClassName of expectedDomains is not a PriorityClass with a negative value: {about}."
        case RoomReason.NO_NODE_CAME:
            message = f"No node came in 15 minutes, and room is asked for again 15 minutes after that: {about}."
        case RoomReason.REQUESTED_LATER:
            message = f"Room is asked for again 15 minutes after the last time: {about}."
        case RoomReason.REQUESTED:
            message = f"The autoscaler is asked for room: {about}."
    return _Verdict("True", reason, message)


def _permission_missing(outcome: PolicyOutcome) -> _Verdict:
    if not outcome.missing_permissions:
        return _Verdict("False", "Granted", "No permission that the policy needs is known to be missing.")
    return _Verdict("True", "Forbidden", describe_missing(outcome.missing_permissions))


def describe_missing(missing: Iterable[MissingPermission]) -> str:
    """Return which permissions are missing and what to do, as sentences. Those with the same remedy share one."""
    together: dict[tuple[tuple[str, ...], str, str], list[str]] = {}
    for each in missing:
        together.setdefault((each.namespaces, each.needed_for, each.action), []).append(each.permission)
    return " ".join(
        f"Not allowed to {_listed(permissions)}{_in(namespaces)}, which {needed_for} needs: {action}."
        for (namespaces, needed_for, action), permissions in together.items()
    )


def _in(namespaces: Iterable[str]) -> str:
    named = [each for each in namespaces if each]
    return f" in {_listed(named)}" if named else ""


def _condition(
    name: ConditionType, verdict: _Verdict | None, previous: Condition | None, generation: int, now: datetime
) -> Condition:
    if verdict is None:
        if previous is not None:
            return previous
        verdict = _NOT_PLANNED
    unchanged = previous is not None and previous.status == verdict.status
    return Condition(
        type=name,
        status=verdict.status,
        observed_generation=generation,
        last_transition_time=previous.last_transition_time if previous is not None and unchanged else now,
        reason=str(verdict.reason),
        message=_cut(verdict.message),
    )


def _worst(violations: Iterable[Violation]) -> list[Violation]:
    """Return the violations to show: by how far the skew is above maxSkew, then by name."""
    return sorted(
        violations,
        key=lambda each: (
            each.constraint.max_skew - each.skew,
            each.namespace,
            [(workload.kind, workload.name) for workload in each.workloads],
            each.constraint.topology_key,
            each.constraint.when_unsatisfiable,
        ),
    )[:MAX_VIOLATIONS]


def _shortened(violation: Violation) -> Violation:
    domains = sorted(violation.domains, key=lambda each: (-each.pods, each.domain))
    omitted = len(domains) - MAX_DOMAINS
    if omitted > 0:
        domains = domains[: MAX_DOMAINS // 2] + domains[-MAX_DOMAINS // 2 :]
    return msgspec.structs.replace(
        violation,
        workloads=violation.workloads[:MAX_WORKLOADS],
        domains=tuple(domains),
        omitted_domains=max(0, omitted),
        reason=str(violation.reason),
        message=_cut(violation.message),
    )


def _listed(names: Iterable[str]) -> str:
    return listed(sorted(names), 5)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"


def _whole_seconds(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)
