"""The policy that governs a pod is a namespaced one, then the one with the highest priority, then the oldest."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, Problem
from respread.api.policy import ClusterPolicySpec, ConstraintRules, Policy, PolicySpec
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterState
from respread.planning.victims.policies import PolicyIndex, PolicySetting, kinds_restored, reach
from respread.planning.victims.selection import Selection
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS
from respread.spread.index import SpreadIndex
from tests.worlds import cluster as snapshot_of
from tests.worlds import constraint, node, pods, spec

OLD = datetime(2026, 1, 1, tzinfo=UTC)
NEW = datetime(2026, 2, 1, tzinfo=UTC)
SPEC = PodSpec()
WEB = Map(app="web")
DB = Map(app="db")
NO_LABELS: Map[str, str] = Map()


def own(name: str, namespace: str = "shop", *, created: datetime | None = OLD, **spec: Any) -> Policy:
    return Policy(
        kind="RebalancePolicy",
        namespace=namespace,
        object_name=name,
        creation_timestamp=created,
        spec=PolicySpec(**spec),
    )


def cluster(name: str, *, created: datetime | None = OLD, **spec: Any) -> Policy:
    return Policy(
        kind="ClusterRebalancePolicy", object_name=name, creation_timestamp=created, spec=ClusterPolicySpec(**spec)
    )


def labelled(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=Map(labels))


def known(name: str, labels: Map[str, str] | None) -> dict[str, Namespace]:
    return {} if labels is None else {name: Namespace(name=name, labels=labels)}


def governed(
    *policies: Policy, labels: Map[str, str] = WEB, namespace: str = "shop", in_labels: Map[str, str] | None = NO_LABELS
) -> tuple[str | None, list[str]]:
    found, overridden = PolicyIndex(policies).in_namespace(namespace, known(namespace, in_labels)).governance(labels)
    return None if found is None else found.name, [each.name for each in overridden]


OF_DB = labelled(app="db")
OF_TEAM_A = cluster("c", namespace_selector=labelled(team="a"))


@pytest.mark.parametrize(
    ("policies", "of", "expected"),
    [
        ([], {}, (None, [])),
        ([own("a", "blog"), own("b", pod_selector=OF_DB)], {}, (None, [])),
        ([cluster("c", priority=100), own("a", priority=-100)], {}, ("shop/a", [])),
        ([cluster("c"), own("a", pod_selector=OF_DB)], {}, ("c", [])),
        ([cluster("c"), own("a", pod_selector=OF_DB)], {"labels": DB}, ("shop/a", [])),
        (
            [own("a", priority=1), own("b", created=NEW, priority=2), own("d", priority=2), own("c", priority=2)],
            {},
            ("shop/c", ["shop/d", "shop/b", "shop/a"]),
        ),
        ([cluster("x"), cluster("y", priority=1)], {}, ("y", ["x"])),
        ([own("a", created=None), own("b", created=NEW)], {}, ("shop/b", ["shop/a"])),
        ([OF_TEAM_A], {"in_labels": Map(team="a")}, ("c", [])),
        ([OF_TEAM_A], {"in_labels": Map(team="b")}, (None, [])),
        ([cluster("c", namespace_selector=LabelSelector())], {"in_labels": None}, (None, [])),
        ([cluster("c", namespace_selector=LabelSelector()), own("a")], {"in_labels": None}, ("shop/a", [])),
    ],
)
def test_the_scope_then_priority_then_age_then_name_decide_which_of_the_policies_that_select_a_pod_governs_it(
    policies: list[Policy], of: dict[str, Any], expected: tuple[str | None, list[str]]
) -> None:
    """A policy that was never created is the youngest, and no cluster policy governs an unknown namespace."""
    assert governed(*policies, **of) == expected


def test_policies_come_in_the_order_of_their_priorities_and_those_that_only_plan_last() -> None:
    enforced = (cluster("a", mode="Enforce"), own("c", mode="Enforce", priority=1))
    assert PolicySetting((cluster("b", priority=9), *enforced)).ranks == {"shop/c": 0, "a": 1, "b": 2}


def test_by_default_a_cluster_policy_excludes_the_system_namespaces() -> None:
    for namespace in ("kube-system", "kube-public", "kube-node-lease"):
        assert governed(cluster("c"), namespace=namespace) == (None, [])
        assert governed(cluster("c", namespace_selector=LabelSelector()), namespace=namespace) == ("c", [])


def test_soft_default_constraints_matter_if_any_policy_restores_soft_ones() -> None:
    soft = cluster("soft", constraints=ConstraintRules(when_unsatisfiable=("ScheduleAnyway",)))
    assert [kinds_restored(each) for each in ([cluster("c"), soft], [cluster("c")])] == [ALL_DEFAULTS, HARD_DEFAULTS]


def test_an_invalid_policy_still_governs_its_pods() -> None:
    valid = own("a", created=None, mode="Enforce")
    wrong = msgspec.structs.replace(valid, problems=(Problem("spec.quietPeriod", "is wrong"),))
    assert governed(wrong, cluster("c", mode="Enforce")) == ("shop/a", [])


def test_changed_namespaces_apply_at_once() -> None:
    index, shop = PolicyIndex([OF_TEAM_A, own("a", pod_selector=OF_DB)]), Namespace(name="shop")
    of_team_a = msgspec.structs.replace(shop, labels=Map(team="a"))
    leaving = msgspec.structs.replace(of_team_a, terminating=True)
    of_shop = (None, "shop/a")
    for namespace, names in ((shop, of_shop), (of_team_a, ("c", "shop/a")), (leaving, (None, None)), (shop, of_shop)):
        found = index.in_namespace("shop", {"shop": namespace})
        governing = [found.governance(labels).policy for labels in (WEB, DB)]
        assert (*(each and each.name for each in governing), found.is_empty) == (*names, namespace is leaving)


def test_reach_counts_pods_and_names_the_governing_policy() -> None:
    state = ClusterState()
    pods = [
        Pod(namespace=namespace, name=f"{app}-{number}", uid="u", spec=SPEC, labels=Map(app=app))
        for namespace, app, count in (("shop", "web", 3), ("shop", "db", 2), ("blog", "web", 4), ("unknown", "web", 5))
        for number in range(count)
    ]
    state.apply("pods", [(pod.key, pod) for pod in pods])
    state.apply("namespaces", [(ObjectKey("", name), Namespace(name=name)) for name in ("shop", "blog")])
    policies = [
        own("web", pod_selector=labelled(app="web")),
        own("all", priority=-1),
        cluster("c"),
        cluster("d", priority=-1),
        cluster("nowhere", namespace_selector=labelled(team="a")),
    ]
    found = reach(PolicyIndex(policies), state.snapshot)
    assert found.pods == Map({"shop/web": 3, "shop/all": 2, "c": 4})
    assert found.overridden_by == Map({"shop/all": ("shop/web",), "d": ("c",)})


def test_cached_answers_are_evicted_and_computed_again() -> None:
    policies = PolicyIndex([own("a", pod_selector=labelled(tier="1"))]).in_namespace("shop", {})
    asked = [Map(tier=str(number % 2), hash=str(number)) for number in range(10_000)]
    before = sum(map(sys.getrefcount, asked))
    for number, labels in enumerate(asked):
        found = policies.governance(labels).policy
        assert (found is not None) == bool(number % 2)
    del labels
    assert sum(map(sys.getrefcount, asked)) - before < 5_000


def test_a_group_is_selected_only_while_it_exists() -> None:
    selection, index = Selection(PolicyIndex([cluster("all")])), SpreadIndex()
    nodes = [node("a1", "a"), node("b1", "b")]
    db = pods({"a1": 1}, spec(constraint(selector=DB)), labels=DB, prefix="db")  # It keeps the namespace.
    for count in (3, 0, 2):
        snapshot = snapshot_of(nodes, [*pods({"a1": count}, spec(constraint())), *db])
        selection.advance(snapshot, index.update(snapshot))
        assert list(selection.selected.values()) == ["all"] * (1 + bool(count))
        cured = [list(each.cure.values()) for of in selection.violated.values() for each in of]
        assert cured == [["all"]] * bool(count)
