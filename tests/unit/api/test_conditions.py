"""A status reports the result of a plan, and changes only with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from respread.api.conditions import MissingPermission, PolicyOutcome, next_status
from respread.api.fields import Problem
from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Reason
from respread.api.status import (
    MAX_DOMAINS,
    MAX_MESSAGE_LENGTH,
    MAX_VIOLATIONS,
    MAX_WORKLOADS,
    AffectedWorkload,
    BlockedCount,
    Condition,
    ConditionType,
    DomainCount,
    PolicyStatus,
    Summary,
    ViolatedConstraint,
    Violation,
)

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=7, microseconds=5)

DRY_RUN = Policy(kind="ClusterRebalancePolicy", object_name="default", generation=3, spec=ClusterPolicySpec())
ENFORCE = msgspec.structs.replace(DRY_RUN, spec=ClusterPolicySpec(mode="Enforce"))
BROKEN = msgspec.structs.replace(
    ENFORCE, problems=(Problem("spec.windows[0].timeZone", "there is no such"), Problem("spec.mode", "must be set"))
)
NONE_AT_ALL = msgspec.structs.replace(ENFORCE, spec=ClusterPolicySpec(mode="Enforce", limits=Limits(per_hour=0)))
KSTATUS = {"Reconciling", "Stalled"}
BALANCED = Summary(groups=4, pods=12)
VIOLATED = Summary(groups=4, pods=12, violated=1, worst_skew=3, planned_evictions=2)


def outcome(summary: Summary = BALANCED, **others: Any) -> PolicyOutcome:
    return PolicyOutcome(summary=summary, plan_time=NOON, **others)


def violation(skew: int, *, max_skew: int = 1, name: str = "web", **others: Any) -> Violation:
    constraint = ViolatedConstraint(topology_key="zone", when_unsatisfiable="DoNotSchedule", max_skew=max_skew)
    workloads = (AffectedWorkload("Deployment", name),)
    return Violation(namespace="shop", workloads=workloads, constraint=constraint, skew=skew, **others)


def condition(status: PolicyStatus, name: ConditionType) -> tuple[str, str, str]:
    found = status.condition(name)
    assert found is not None
    return found.status, found.reason, found.message


def status_of(policy: Policy, found: PolicyOutcome | None) -> PolicyStatus:
    return next_status(policy, PolicyStatus(), found, now=NOON)


def test_a_status_has_four_conditions_for_the_observed_generation() -> None:
    status = status_of(ENFORCE, outcome())
    assert [each.type for each in status.conditions] == ["Ready", "Balanced", "Progressing", "Blocked"]
    assert {each.observed_generation for each in status.conditions} == {status.observed_generation} == {3}
    assert {each.last_transition_time for each in status.conditions} == {NOON}


@pytest.mark.parametrize(
    ("policy", "found", "status", "reason", "message"),
    [
        (ENFORCE, outcome(), "True", "Valid", "valid and in force"),
        (ENFORCE, None, "True", "Valid", "valid and in force"),
        (BROKEN, outcome(), "False", "InvalidPolicy", "spec.windows[0].timeZone: there is no such; spec.mode: must be"),
        (BROKEN, None, "False", "InvalidPolicy", "Nothing is evicted until this is fixed"),
        (ENFORCE, outcome(overridden_by=("shop/a",)), "True", "PartlyOverridden", "govern some of the selected pods"),
        (ENFORCE, outcome(Summary()), "True", "GovernsNoPod", "has no effect: it governs no pod"),
        (ENFORCE, outcome(Summary(), overridden_by=("b", "a")), "True", "Overridden", "all selected pods: a, b."),
        (ENFORCE, outcome(Summary(), overridden_by=tuple("gfedcba")), "True", "Overridden", "a, b, c, d, e and 2 more"),
    ],
)
def test_the_ready_condition_says_whether_the_policy_is_in_force(
    policy: Policy, found: PolicyOutcome | None, status: str, reason: str, message: str
) -> None:
    got = condition(status_of(policy, found), "Ready")
    assert got[:2] == (status, reason)
    assert message in got[2]


@pytest.mark.parametrize(
    ("found", "status", "reason", "message"),
    [
        (None, "Unknown", "NotPlannedYet", "No plan"),
        (outcome(), "True", "ConstraintsHold", "Every"),
        (outcome(Summary()), "True", "NoConstraints", "No topology spread constraint"),
        (outcome(VIOLATED), "False", "ConstraintsViolated", "1 of 4. The worst skew is 3."),
    ],
)
def test_the_balanced_condition_says_whether_all_constraints_hold(
    found: PolicyOutcome | None, status: str, reason: str, message: str
) -> None:
    got = condition(status_of(ENFORCE, found), "Balanced")
    assert got[:2] == (status, reason)
    assert message in got[2]


def kstatus_conditions(status: PolicyStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions if each.type in KSTATUS}


def test_a_kstatus_condition_appears_only_after_it_has_been_true() -> None:
    assert kstatus_conditions(status_of(ENFORCE, outcome())) == {}
    new = status_of(ENFORCE, None)
    assert kstatus_conditions(new) == {"Reconciling": ("True", "NotPlannedYet")}
    assert kstatus_conditions(next_status(ENFORCE, new, outcome(), now=LATER)) == {"Reconciling": ("False", "Planned")}


def test_a_changed_policy_is_reconciling_until_the_next_plan_and_a_restart_keeps_its_conditions() -> None:
    planned = status_of(ENFORCE, outcome())
    assert kstatus_conditions(next_status(ENFORCE, planned, None, now=LATER)) == {}
    changed = msgspec.structs.replace(ENFORCE, generation=4)
    assert kstatus_conditions(next_status(changed, planned, None, now=LATER))["Reconciling"][0] == "True"


def test_an_invalid_policy_is_stalled_until_it_is_fixed() -> None:
    stalled = status_of(BROKEN, outcome())
    assert kstatus_conditions(stalled) == {"Stalled": ("True", "InvalidPolicy")}
    assert kstatus_conditions(next_status(ENFORCE, stalled, outcome(), now=LATER)) == {"Stalled": ("False", "Valid")}


def test_the_paused_condition_stays_with_status_false_after_a_pause() -> None:
    waiting = (BlockedCount(reason=Reason.PAUSED, pods=2),)
    paused = status_of(ENFORCE, outcome(VIOLATED, paused="evictions failed", blocked=waiting))
    assert condition(paused, "Paused") == ("True", "EvictionsFail", "Evictions failed.")
    assert condition(paused, "Progressing")[:2] == ("False", "Paused")
    after = next_status(ENFORCE, paused, outcome(), now=LATER)
    assert condition(after, "Paused")[:2] == ("False", "NotPaused")
    assert next_status(ENFORCE, after, outcome(), now=LATER).condition("Paused") == after.condition("Paused")


def test_the_oscillating_condition_names_the_workloads() -> None:
    found = outcome(VIOLATED, oscillating=("Deployment/web in shop (10 evictions)",))
    status, reason, message = condition(status_of(ENFORCE, found), "Oscillating")
    assert (status, reason) == ("True", "EvictionsDoNotLast")
    assert "Deployment/web in shop (10 evictions). Something may undo them" in message


def test_permissions_that_are_missing_together_share_a_sentence_and_the_policy_stays_ready() -> None:
    of_room = [
        MissingPermission(f"{verb} deployments.apps", ("respread-system",), "provision: Request", "enable room")
        for verb in ("list", "create")
    ]
    patch = MissingPermission("patch pods", ("blog", "shop"), "spec.prevention.podDeletionCost", "enable prevention")
    everywhere = MissingPermission("patch clusterrebalancepolicies", ("",), "Respread", "upgrade")
    missing = status_of(ENFORCE, outcome(missing_permissions=(*of_room, patch, everywhere)))
    status, reason, message = condition(missing, "PermissionMissing")
    assert (status, reason) == ("True", "Forbidden")
    assert message == (
        "Not allowed to create deployments.apps, list deployments.apps in respread-system, which provision: Request "
        "needs: enable room. Not allowed to patch pods in blog, shop, which spec.prevention.podDeletionCost needs: "
        "enable prevention. Not allowed to patch clusterrebalancepolicies, which Respread needs: upgrade."
    )
    assert condition(missing, "Ready")[:2] == ("True", "PermissionMissing")
    granted = next_status(ENFORCE, missing, outcome(), now=LATER)
    assert condition(granted, "PermissionMissing")[:2] == ("False", "Granted")
    assert condition(granted, "Ready")[:2] == ("True", "Valid")


@pytest.mark.parametrize(
    ("policy", "found", "status", "reason"),
    [
        (ENFORCE, None, "Unknown", "NotPlannedYet"),
        (ENFORCE, outcome(), "False", "NothingToDo"),
        (ENFORCE, outcome(VIOLATED), "True", "EvictionsPlanned"),
        (ENFORCE, outcome(msgspec.structs.replace(VIOLATED, in_flight=1)), "True", "EvictionsInFlight"),
        (DRY_RUN, outcome(VIOLATED), "False", "DryRun"),
        (DRY_RUN, outcome(msgspec.structs.replace(VIOLATED, in_flight=1)), "True", "EvictionsInFlight"),
        (BROKEN, outcome(VIOLATED), "False", "InvalidPolicy"),
        (NONE_AT_ALL, outcome(VIOLATED), "False", "LimitReached"),
        (
            ENFORCE,
            outcome(VIOLATED, blocked=(BlockedCount(reason=Reason.WINDOW_CLOSED, groups=1),)),
            "False",
            "WindowClosed",
        ),
    ],
)
def test_the_progressing_condition_says_whether_evictions_follow(
    policy: Policy, found: PolicyOutcome | None, status: str, reason: str
) -> None:
    assert condition(status_of(policy, found), "Progressing")[:2] == (status, reason)


@pytest.mark.parametrize(
    ("blocked", "status", "reason", "message"),
    [
        ((), "False", "NotBlocked", "No violated group is blocked."),
        ((BlockedCount(reason=Reason.NO_FEASIBLE_NODE, groups=2),), "True", "NoFeasibleNode", "NoFeasibleNode (2)"),
        (
            (
                BlockedCount(reason=Reason.HELD_BY_BUDGET, groups=1),
                BlockedCount(reason=Reason.NO_FEASIBLE_NODE, groups=2),
            ),
            "True",
            "SeveralReasons",
            "NoFeasibleNode (2), HeldByBudget (1)",
        ),
        # Protected pods do not block a group if other pods of the group may move.
        ((BlockedCount(reason=Reason.PROTECTED_POD, pods=5),), "False", "NotBlocked", "No violated group"),
        # A temporary reason needs no alert.
        ((BlockedCount(reason=Reason.QUIET_PERIOD, groups=5),), "False", "NotBlocked", "No violated group"),
    ],
)
def test_the_blocked_condition_has_the_reason_of_lasting_obstacles(
    blocked: tuple[BlockedCount, ...], status: str, reason: str, message: str
) -> None:
    got = condition(status_of(ENFORCE, outcome(VIOLATED, blocked=blocked)), "Blocked")
    assert got[:2] == (status, reason)
    assert message in got[2]


def test_every_reason_fits_a_condition() -> None:
    for reason in Reason:
        found = outcome(VIOLATED, blocked=(BlockedCount(reason=reason, groups=1),))
        for each in status_of(ENFORCE, found).conditions:
            assert each.reason.isalpha()


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = next_status(ENFORCE, PolicyStatus(), outcome(VIOLATED), now=NOON)
    worse = msgspec.structs.replace(VIOLATED, worst_skew=9)
    second = next_status(ENFORCE, first, outcome(worse), now=LATER)
    third = next_status(ENFORCE, second, outcome(), now=LATER)
    times = [status.condition("Balanced") for status in (first, second, third)]
    assert [each and each.last_transition_time for each in times] == [NOON, NOON, NOON + timedelta(minutes=7)]
    assert condition(second, "Balanced")[2] != condition(first, "Balanced")[2]


def test_the_same_outcome_at_another_time_changes_nothing() -> None:
    first = next_status(ENFORCE, PolicyStatus(), outcome(VIOLATED, violations=(violation(3),)), now=NOON)
    same = PolicyOutcome(summary=VIOLATED, violations=(violation(3),), plan_time=LATER)
    assert next_status(ENFORCE, first, same, now=LATER) == first
    other = PolicyOutcome(summary=BALANCED, plan_time=LATER)
    assert next_status(ENFORCE, first, other, now=LATER).last_plan_time == LATER.replace(microsecond=0)


def test_a_new_generation_is_a_change() -> None:
    first = next_status(ENFORCE, PolicyStatus(), outcome(), now=NOON)
    edited = msgspec.structs.replace(ENFORCE, generation=4)
    second = next_status(edited, first, outcome(), now=LATER)
    assert second.observed_generation == 4
    ready = second.condition("Ready")
    assert ready is not None
    assert (ready.observed_generation, ready.last_transition_time) == (4, NOON)


def test_before_the_first_plan_the_results_of_the_last_plan_are_kept() -> None:
    before = next_status(ENFORCE, PolicyStatus(), outcome(VIOLATED), now=NOON)
    edited = msgspec.structs.replace(BROKEN, generation=4)
    after = next_status(edited, before, None, now=LATER)
    assert condition(after, "Ready")[1] == "InvalidPolicy"
    assert after.condition("Balanced") == before.condition("Balanced")
    assert after.summary == VIOLATED
    assert after.last_plan_time == NOON


def test_conditions_of_other_controllers_are_kept() -> None:
    foreign = Condition(type="example.com/Reviewed", status="True", reason="Yes", last_transition_time=NOON)
    previous = PolicyStatus(conditions=(foreign,))
    for found in (None, outcome()):
        assert next_status(ENFORCE, previous, found, now=LATER).conditions[-1] == foreign


def test_the_time_of_the_last_eviction_is_kept() -> None:
    first = next_status(ENFORCE, PolicyStatus(), outcome(last_eviction_time=LATER), now=NOON)
    assert first.last_eviction_time == LATER.replace(microsecond=0)
    assert next_status(ENFORCE, first, outcome(), now=LATER).last_eviction_time == first.last_eviction_time


def test_the_worst_violations_are_those_furthest_above_their_max_skew() -> None:
    found = (violation(5, max_skew=4, name="a"), violation(3, name="b"), violation(4, name="d"), violation(4, name="c"))
    status = status_of(ENFORCE, outcome(VIOLATED, violations=found))
    assert [each.workloads[0].name for each in status.violations] == list("cdba")
    many = tuple(violation(skew, name=str(skew)) for skew in range(2, 100))
    worst = status_of(ENFORCE, outcome(VIOLATED, violations=many)).violations
    assert [each.skew for each in worst] == list(range(99, 99 - MAX_VIOLATIONS, -1))


def test_a_violation_names_the_fullest_and_the_emptiest_domains() -> None:
    few = violation(3, domains=(DomainCount("b", 2), DomainCount("c", 5), DomainCount("a", 2)))
    many = violation(3, domains=tuple(DomainCount(f"node-{pods:02}", pods) for pods in range(50)))
    shown_many, shown_few = sorted(
        status_of(ENFORCE, outcome(VIOLATED, violations=(few, many))).violations, key=lambda each: -len(each.domains)
    )
    assert [(each.domain, each.pods) for each in shown_few.domains] == [("c", 5), ("a", 2), ("b", 2)]
    assert shown_few.omitted_domains == 0
    assert [each.pods for each in shown_many.domains] == [*range(49, 39, -1), *range(9, -1, -1)]
    assert len(shown_many.domains) + shown_many.omitted_domains == 50
    assert len(shown_many.domains) == MAX_DOMAINS


def test_texts_are_cut_to_the_length_that_the_api_server_accepts() -> None:
    broken = msgspec.structs.replace(ENFORCE, problems=(Problem("spec.windows", "x" * 9000),))
    many = tuple(AffectedWorkload("Deployment", str(number)) for number in range(MAX_WORKLOADS + 5))
    long = msgspec.structs.replace(violation(3, message="m" * 9000), workloads=many)
    status = status_of(broken, outcome(VIOLATED, violations=(long,)))
    assert len(condition(status, "Ready")[2]) == MAX_MESSAGE_LENGTH
    assert len(status.violations[0].message) == MAX_MESSAGE_LENGTH
    assert status.violations[0].workloads == many[:MAX_WORKLOADS]
    assert status.violations[0].message.endswith("…")


def test_reasons_are_listed_most_frequent_first() -> None:
    blocked = (
        BlockedCount(reason="TooYoung", pods=3),
        BlockedCount(reason="BarePod", pods=3),
        BlockedCount(reason="InMotion", groups=1),
        BlockedCount(reason="LocalStorage", pods=9),
    )
    status = status_of(ENFORCE, outcome(VIOLATED, blocked=blocked))
    assert [each.reason for each in status.blocked] == ["InMotion", "LocalStorage", "BarePod", "TooYoung"]
