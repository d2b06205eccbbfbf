"""Namespaces share the first wave and the search budget, so that one with many groups does not use all of both."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning import solving
from respread.planning.plan import in_turns
from respread.planning.planner import Planner
from respread.planning.search.board import SearchBudget
from respread.planning.solution import Finder, Solution
from respread.planning.tasks import Task
from respread.planning.victims.policies import PolicySetting
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.worlds import NOW, cluster, constraint, node, pods, spec

NODES = [node("a1", "a", pods=2000), node("b1", "b", pods=2000)]


def policy(in_flight: int) -> Policy:
    limits = Limits(in_flight=in_flight)
    return Policy(
        kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce", limits=limits)
    )


def app(namespace: str, name: str, replicas: int = 2) -> list[Pod]:
    """Return pods of a workload that are all in one zone."""
    labels = Map(app=name)
    return pods(
        {"a1": replicas},
        spec(constraint(selector=labels)),
        prefix=f"{namespace}-{name}",
        namespace=namespace,
        labels=labels,
        controller=OwnerReference("apps/v1", "ReplicaSet", name, f"uid-{namespace}-{name}"),
    )


def world(**apps: int) -> ClusterSnapshot:
    return cluster(
        NODES, [pod for space, number in apps.items() for each in range(number) for pod in app(space, f"app-{each:03}")]
    )


def test_a_namespace_with_one_group_is_in_the_first_wave_beside_one_with_a_hundred() -> None:
    plan = plan_cluster(world(greedy=100, shop=1, blog=2), [policy(in_flight=1)], now=NOW)
    first = [move.pod.namespace for move in plan.moves if move.wave == 0]
    assert first.count("shop") == 1
    assert first.count("blog") >= 1
    assert len(plan.moves) == 103


def test_namespaces_alternate_in_the_search_and_the_longest_waiting_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget allows two searches per plan. In the order of the plan, greedy namespaces would use all of it.

    So it is while nodes change, after which no solution is valid.
    """
    given: list[tuple[str, int]] = []
    find = Finder.find

    def watched(self: Finder, tasks: tuple[Task, ...], search_budget: SearchBudget, *others: Any) -> Solution:
        given.append((tasks[0].namespace, search_budget._most))
        found = find(self, tasks, search_budget, *others)
        for _ in range(max(search_budget._most - search_budget.spent, 0)):
            search_budget.spend()  # a hard search uses its whole budget
        return found

    monkeypatch.setattr(Finder, "find", watched)
    planner = Planner(limits=solving.SearchLimits(of_one=100, of_small=100, of_all=200, reserve=0))
    searched: list[set[str]] = []
    for _ in range(3):
        given.clear()
        snapshot = world(a_greedy=10, b=1, c=1, d=1)
        setting = PolicySetting(policies=(policy(in_flight=10),))
        planner.plan(snapshot, spread_of(snapshot), setting, now=NOW)
        searched.append({namespace for namespace, most in given if most > 0})
    assert [len(each) for each in searched[:2]] == [2, 2]
    assert set().union(*searched[:2]) == {"a_greedy", "b", "c", "d"}


def test_each_namespace_is_served_once_before_any_is_served_twice() -> None:
    items = ["g1", "g2", "g3", "a1", "b1", "a2"]
    assert in_turns(items, lambda item: item[0]) == ["g1", "a1", "b1", "g2", "a2", "g3"]
    assert in_turns(items, lambda item: item[0], {"g": 9, "a": 3}) == ["b1", "a1", "g1", "a2", "g2", "g3"]
