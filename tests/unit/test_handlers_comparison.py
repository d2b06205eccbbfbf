"""What a replacement's place did to the spread."""

from __future__ import annotations

import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.pod import Pod
from respread.eviction.outcomes import Outcome
from respread.handlers.comparison import Comparison
from respread.planning.assembly import plan_cluster
from respread.planning.plan import Move
from respread.spread.index import spread_of
from tests.unit.worlds import NOW, cluster, constraint, node, pod, pods, spec

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
def test_the_replacements_domain_tells(on: str, others: dict[str, int], outcome: Outcome) -> None:
    new = replacement(on)
    spread = spread_of(cluster(NODES, [*pods(others, WEB), new]))
    assert Comparison(spread)(the_move(), new) is outcome


def test_a_group_that_is_gone_tells_nothing() -> None:
    other = pods({"a1": 1}, spec(constraint(selector=Map(app="other"))), labels=Map(app="other"))
    assert Comparison(spread_of(cluster(NODES, other)))(the_move(), replacement("b1")) is Outcome.UNKNOWN
