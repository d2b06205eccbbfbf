"""What stands in a move's way at the last moment."""

from __future__ import annotations

import pytest

from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.problem import Problem
from respread.api.reasons import Reason
from respread.handlers.permission import Permission
from respread.planning.assembly import plan_cluster
from respread.planning.plan import Move
from tests.unit.worlds import NOW, cluster, constraint, node, pods, spec

ENFORCES = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
WRONG = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(mode="Enforce"),
    problems=(Problem("spec.windows[0].timeZone", "there is no such zone"),),
)


@pytest.fixture
def move() -> Move:
    snapshot = cluster([node("a1", "a"), node("b1", "b")], pods({"a1": 2}, spec(constraint())))
    (move,) = plan_cluster(snapshot, [ENFORCES], now=NOW).moves
    return move


@pytest.mark.parametrize(
    ("leads", "policy", "reason"),
    [
        (True, ENFORCES, None),
        (False, ENFORCES, Reason.NOT_LEADING),
        (True, None, Reason.NOT_SELECTED),
        (True, WRONG, Reason.INVALID_POLICY),
        (
            True,
            Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec()),
            Reason.DRY_RUN,
        ),
    ],
)
def test_permission(move: Move, leads: bool, policy: Policy | None, reason: Reason | None) -> None:
    held = Permission(lambda: leads, lambda _name: policy)(move)
    assert (None if held is None else held.reason) is reason
