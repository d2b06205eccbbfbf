"""Namespaces share the first wave and the search budget, so that one with many groups does not use all of both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.policy import Limits, Policy
from respread.cluster.meta import EVICT, OwnerReference
from respread.cluster.pod import Pod
from respread.planning import solving
from respread.planning.plan import in_turns
from respread.planning.planner import Planner
from respread.planning.search.board import SearchBudget
from respread.planning.solution import Finder, Solution
from respread.planning.tasks import Task
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.protection import NEVER
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, cluster, constraint, node, pods, spec

NODES = [node("a1", "a", pods=2000), node("b1", "b", pods=2000)]


def policy(in_flight: int) -> Policy:
    return default_policy(mode="Enforce", limits=Limits(in_flight=in_flight))


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


def test_a_namespace_with_one_group_is_in_the_first_wave_beside_one_with_a_hundred() -> None:
    """Also if it has another one that can't be restored."""
    apps = {"greedy": 100, "shop": 1, "blog": 2}
    all_pods = [pod for space, number in apps.items() for at in range(number) for pod in app(space, f"app-{at:03}")]
    all_pods += [msgspec.structs.replace(pod, annotations=Map({EVICT: NEVER})) for pod in app("shop", "kept")]
    plan = plan_cluster(cluster(NODES, all_pods), [policy(in_flight=1)], now=NOW)
    first = [move.pod.namespace for move in plan.moves if move.wave == 0]
    assert first.count("shop") == 1
    assert first.count("blog") >= 1
    assert len(plan.moves) == 103


def test_namespaces_alternate_in_the_search_and_the_longest_waiting_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search is hard and uses all that it is given. One that got less is made again by the next plan."""
    given: list[tuple[str, int, int]] = []
    find = Finder.find

    def watched(self: Finder, tasks: tuple[Task, ...], search_budget: SearchBudget, *others: Any) -> Solution:
        given.append((tasks[0].namespace, search_budget._most, search_budget._reserve))
        search_budget.draw_reserve()
        search_budget.spend(search_budget._most)
        return find(self, tasks, SearchBudget(1000), *others)._replace(proven=False)

    monkeypatch.setattr(Finder, "find", watched)
    small, large = solving.SMALL_PODS, solving.SMALL_PODS + 1
    sizes = {("a", "web"): small, ("a", "api"): 2, ("b", "web"): large, ("c", "web"): 2, ("d", "web"): large}
    snapshot = cluster(NODES, [pod for of, size in sizes.items() for pod in app(*of, size)])
    spread, setting = spread_of(snapshot), PolicySetting((policy(in_flight=10),))
    planner = Planner(limits=solving.SearchLimits(of_one=30, of_small=50, of_all=95, reserve=60))
    for searches in (
        [("a", 50, 60), ("b", 30, 0), ("c", 15, 0), ("d", 0, 0), ("a", 0, 0)],
        [("d", 30, 0), ("a", 50, 60), ("c", 15, 0)],
        [("c", 50, 60)],
        [],
    ):
        given.clear()
        planner.plan(snapshot, spread, setting, now=NOW)
        assert given == searches


def test_each_namespace_is_served_once_before_any_is_served_twice() -> None:
    items = ["g1", "g2", "g3", "a1", "b1", "a2"]
    assert in_turns(items, lambda item: item[0]) == ["g1", "a1", "b1", "g2", "a2", "g3"]
    assert in_turns(items, lambda item: item[0], {"g": 9, "a": 3}) == ["b1", "a1", "g1", "a2", "g2", "g3"]
