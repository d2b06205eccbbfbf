"""A plan counts the pods that stay in domains with too many, by reason, each once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from immutables import Map

from respread.api.reasons import Held, Reason
from respread.controller.records.history import History
from respread.controller.reporter import outcomes_of
from respread.planning.moving_pods import OnHold, never_on_hold
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.selection import Refused
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import WEB, default_policy, plan_of, reconciled_of, three_in_a, two_zones
from tests.unit.planning.test_expected_domains import expecting
from tests.worlds import HOSTNAME, NOW, cluster, constraint, node, pods, spec

NEVER = Map({"respread.dev/evict": "never"})


@pytest.mark.parametrize("reason", Reason)
def test_pods_of_a_group_on_hold_count_for_the_reason_of_the_group(reason: Reason) -> None:
    plan = plan_of(cluster(two_zones(), three_in_a()), on_hold=lambda _key, _policy: Held(reason, "it is so"))
    assert [(each.reason, each.message) for each in plan.blocked] == [(reason, "it is so")]
    assert plan.held_pods == {"default": {reason: 3}}


@pytest.mark.parametrize("reason", Reason)
def test_pods_that_may_not_be_evicted_count_for_their_own_reason(reason: Reason) -> None:
    """The reason of most pods is that of the group, unless that of others concerns all."""
    snapshot = cluster(two_zones(), three_in_a())
    of_most = Reason.TOO_YOUNG if reason is Reason.GROUP_TOO_LARGE else reason
    refused = Refused(
        lambda pod, _: Held(reason if pod.name == "web-a1-0" else of_most, "it is so"), frozenset({"shop", "default"})
    )
    plan = Planner().plan(snapshot, spread_of(snapshot), PolicySetting((default_policy(),)), now=NOW, refused=refused)
    assert plan.held_pods == {"default": Counter([reason, of_most, of_most])}
    (blocked,) = plan.blocked
    assert blocked.reason is reason


def test_each_pod_counts_once_and_only_in_domains_with_too_many() -> None:
    both = spec(constraint(), constraint(HOSTNAME))
    never = pods({"a1": 2}, both, prefix="never", annotations=NEVER)
    young = pods({"a1": 3}, both, prefix="young", creation_timestamp=NOW)
    elsewhere = pods({"b1": 1}, both, prefix="other", creation_timestamp=NOW)
    snapshot = cluster(two_zones(), [*never, *young, *elsewhere])
    plan = plan_of(snapshot)
    assert len(plan.blocked) == 2
    assert plan.held_pods == {"default": {Reason.PROTECTED_POD: 2, Reason.TOO_YOUNG: 3}}
    told = outcomes_of([default_policy()], reconciled_of(snapshot, default_policy()), History(lambda: 0.0))["default"]
    assert [(str(each.reason), each.groups, each.pods) for each in told.blocked] == [
        ("ProtectedPod", 0, 2),
        ("TooYoung", 2, 3),
    ]


def test_planned_moves_do_not_count_and_what_they_leave_does_unless_they_restore_the_group() -> None:
    plan = plan_of(cluster(two_zones(pods=1), pods({"a1": 6}, WEB)))
    assert len(plan.moves) == 1
    assert plan.held_pods == {"default": {Reason.NO_FEASIBLE_NODE: 5}}
    plan = plan_of(cluster(two_zones(), pods({"a1": 6}, WEB)))
    assert plan.moves
    assert plan.held_pods == {}


def test_pods_of_domains_above_max_skew_count_if_an_expected_domain_has_no_node() -> None:
    balanced = cluster([*two_zones(), node("c1", "c")], pods({"a1": 2, "b1": 2, "c1": 1}, WEB))
    plan = plan_of(balanced, expecting("a", "b", "c", "d"))
    assert plan.held_pods == {"default": {Reason.DOMAIN_HAS_NO_NODE: 4}}


def test_the_counts_of_one_plan_after_the_other_are_those_of_a_new_planner() -> None:
    planner = Planner()
    for number in (0, 0, 1, 3, 2, 2):
        snapshot = cluster(two_zones(), pods({"a1": 3 + number}, WEB, annotations=NEVER))
        hold: OnHold = never_on_hold if number % 2 else (lambda _key, _policy: Held(Reason.QUIET_PERIOD, "soon"))
        expected = {"default": {Reason.PROTECTED_POD: 3 + number}}
        for each in (planner, Planner()):
            setting = PolicySetting((default_policy(),))
            plan = each.plan(snapshot, spread_of(snapshot), setting, now=NOW, on_hold=hold)
            assert plan.held_pods == expected


def test_a_plan_changes_when_a_group_on_hold_is_released() -> None:
    until = NOW + timedelta(seconds=20)
    held = Held(Reason.QUIET_PERIOD, "it has changed", until)
    plan = plan_of(cluster(two_zones(), three_in_a()), on_hold=lambda _key, _policy: held)
    assert (plan.moves, plan.changes_at) == ((), until)
