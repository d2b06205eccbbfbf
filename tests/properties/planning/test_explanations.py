"""Explanations exist for plans of any cluster, and never contradict the plan."""

from __future__ import annotations

import pytest

from respread.api.reasons import Reason
from respread.planning.plan import BlockedGroup
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView as SchedulerView
from respread.spread.index import Spread
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.explain_report import ConstraintReport, ExplainReport, explain_report
from respread_cli.report.planned import Planned, PolicyReport
from respread_cli.report.target import find_target
from tests.properties.instances import factor, try_on
from tests.properties.planning.small_worlds import NOW, SMALL, World, policy_of, snapshot_of, worlds
from tests.spreads import spread_of


def planned_for(world: World) -> Planned:
    snapshot, policy = snapshot_of(world), policy_of(world)
    spread, predictor, setting = spread_of(snapshot), Predictor(SchedulerView()), PolicySetting((policy,))
    return Planned(
        view=ReadCluster(snapshot=snapshot, policies=(policy,), time=NOW, source="a world"),
        setting=setting,
        reports=(PolicyReport(name=policy.name, mode=policy.spec.mode),),
        default_policy=False,
        spread=spread,
        predictor=predictor,
        plan=Planner(predictor).plan(snapshot, spread, setting, now=NOW),
        in_flight=(),
    )


def explained(planned: Planned, word: str) -> ExplainReport:
    return explain_report(planned, find_target(word, planned.view.snapshot, planned.setting.policies))


@pytest.mark.timeout(900 * factor())
def test_explanations_agree_with_the_plan() -> None:
    try_on(worlds(SMALL), 12, 0, _agree)


def _agree(world: World) -> None:
    planned = planned_for(world)
    plan, spread = planned.plan, planned.spread
    (policy,) = planned.setting.policies
    report = explained(planned, f"policy/{policy.name}")
    assert [each.pod for each in report.pods if each.fate == "Moves"] == [move.pod.name for move in plan.moves]
    assert all(each.fate in {"Moves", "MayMove", "Held"} for each in report.pods if _is_too_full(each.pod, planned))
    assert all(each.message for each in report.pods)
    assert sorted(each.reason for each in report.constraints if each.reason) == sorted(
        each.reason for each in plan.blocked
    )
    for blocked in plan.blocked:
        _is_to_the_point(blocked, spread)
    for workload in {name for group in spread.groups.values() for name in group.workloads}:
        of_workload = explained(planned, f"{workload.kind}/{workload.name}")
        assert all(each.group.namespace == workload.namespace for each in of_workload.constraints)
        for constraint in of_workload.constraints:
            nodes = sum(each.nodes for each in constraint.domains) + sum(each.nodes for each in constraint.ineligible)
            assert nodes == len(planned.view.snapshot.nodes)
            assert all(each.too_full == (each.pods > _most(constraint)) for each in constraint.domains)


def _most(constraint: ConstraintReport) -> int:
    return constraint.group.minimum + constraint.group.max_skew


def _is_too_full(pod: str, planned: Planned) -> bool:
    """Return whether a pod is counted in a domain with too many pods, of a selected group."""
    found = next(each for each in planned.view.snapshot.pods.values() if each.name == pod)
    return any(
        found.labels in group.matched
        and (domain := group.domains.of_node.get(found.node_name)) is not None
        and group.count(domain) > group.minimum + group.key.max_skew
        for key, group in planned.spread.groups.items()
        if key in planned.plan.policies
    )


def _is_to_the_point(blocked: BlockedGroup, spread: Spread) -> None:
    """Assert that a reason is that of the group, and that its message names its subject."""
    group = spread.groups[blocked.group]
    few = len(group.domains.nodes) < group.key.min_domains
    assert blocked.reason is not Reason.TOO_FEW_DOMAINS or few
    assert blocked.reason is not Reason.CONFLICTING_CONSTRAINTS or not few
    assert blocked.reason is Reason.SEARCH_LIMIT or any(domain in blocked.message for domain in group.domains.nodes)
