"""The effect of a replacement's domain on the spread."""

from __future__ import annotations

import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, ConstraintRules, Policy
from respread.cluster.pod import Pod
from respread.moves.entry import Outcome
from respread.moves.following import compared
from respread.planning.plan import Move
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, NOW, cluster, constraint, node, pod, pods, spec

WEB = spec(constraint())
NODES = [node("a1", "a"), node("b1", "b"), node("c1", "c"), node("x1")]


def the_move() -> Move:
    policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
    (move,) = plan_cluster(cluster(NODES, pods({"a1": 3, "b1": 1, "c1": 1}, WEB)), [policy], now=NOW).moves
    return move


def replacement(on: str) -> Pod:
    return pod("new", on, WEB)


@pytest.mark.parametrize(
    ("on", "others", "outcome"),
    [
        ("b1", {"a1": 2, "b1": 1, "c1": 1}, Outcome.IMPROVED),
        ("a1", {"a1": 2, "b1": 1, "c1": 1}, Outcome.UNCHANGED),
        ("b1", {"a1": 2, "b1": 3, "c1": 0}, Outcome.WORSE),
    ],
)
def test_the_outcome_follows_from_the_domain_of_the_replacement(
    on: str, others: dict[str, int], outcome: Outcome
) -> None:
    new = replacement(on)
    spread = spread_of(cluster(NODES, [*pods(others, WEB), new]))
    assert compared(spread, the_move(), new) is outcome


@pytest.mark.parametrize(
    ("on", "zones", "outcome"),
    [
        # Zone b has one pod too many now, as zone a had before, and the nodes are spread better. No group is worse.
        ("b2", {"a1": 3, "b1": 3, "c1": 2}, Outcome.IMPROVED),
        # Zone a had no surplus pod any more, because other pods were deleted. Now zone b has one.
        ("b2", {"a1": 1, "b1": 2, "c1": 1}, Outcome.WORSE),
    ],
)
def test_an_unchanged_group_keeps_the_outcome_and_a_worse_one_makes_it_worse(
    on: str, zones: dict[str, int], outcome: Outcome
) -> None:
    soft = spec(constraint(when="ScheduleAnyway"), constraint(HOSTNAME, when="ScheduleAnyway"))
    nodes = [node("a1", "a"), node("b1", "b"), node("b2", "b"), node("c1", "c")]
    restored = ConstraintRules(when_unsatisfiable=("ScheduleAnyway",))
    policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(constraints=restored))
    planned = plan_cluster(cluster(nodes, pods({"a1": 4, "b1": 3, "c1": 2}, soft)), [policy], now=NOW).moves[0]
    assert set(planned.from_domains) == {"a", "a1"}
    new = pod("new", on, soft)
    assert compared(spread_of(cluster(nodes, [*pods(zones, soft), new])), planned, new) is outcome


def test_a_deleted_group_does_not_affect_the_outcome() -> None:
    other = pods({"a1": 1}, spec(constraint(selector=Map(app="other"))), labels=Map(app="other"))
    assert compared(spread_of(cluster(NODES, other)), the_move(), replacement("b1")) is Outcome.UNKNOWN
