"""With `victims.budget: Required`, only pods that a PodDisruptionBudget selects are evicted."""

from __future__ import annotations

import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.objects import PodDisruptionBudget
from tests.unit.planning.blocked_plans import OF_WEB, blocked, default_policy, plan_of, three_in_a, two_zones
from tests.worlds import cluster

REQUIRED = default_policy(victims=VictimRules(budget="Required"))
OF_API = LabelSelector(match_labels=Map(app="api"))


def budget(selector: LabelSelector | None = OF_WEB, *, namespace: str = "default") -> PodDisruptionBudget:
    return PodDisruptionBudget(
        namespace=namespace,
        name="web",
        selector=selector,
        current_healthy=3,
        desired_healthy=2,
        expected_pods=3,
        disruptions_allowed=1,
    )


@pytest.mark.parametrize("others", [(), (budget(OF_API),), (budget(None),), (budget(namespace="other"),)], ids=str)
def test_pods_without_a_budget_stay(others: tuple[PodDisruptionBudget, ...]) -> None:
    found = blocked(cluster(two_zones(), three_in_a(), poddisruptionbudgets=others), REQUIRED)
    assert found.reason is Reason.NO_BUDGET
    assert (
        "no PodDisruptionBudget selects it, and the policy's victims.budget is Required; create one that does, or set "
        "victims.budget: Optional"
    ) in found.message


def test_pods_with_a_budget_are_evicted() -> None:
    world = cluster(two_zones(), three_in_a(), poddisruptionbudgets=[budget()])
    assert len(plan_of(world, REQUIRED).moves) == 1


def test_pods_without_a_budget_are_evicted_by_default() -> None:
    assert len(plan_of(cluster(two_zones(), three_in_a())).moves) == 1


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_the_api_server_frees_pods_that_do_not_run_and_they_stay_all_the_same(phase: str) -> None:
    found = blocked(cluster(two_zones(), three_in_a(phase=phase, ready=False)), REQUIRED)
    assert found.reason is Reason.NO_BUDGET
