"""Tasks that follow a changing cluster equal those computed from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, Policy, PolicySpec, VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import Namespace, PodDisruptionBudget, Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.planning.tasks import Task, Tasks
from respread.planning.victims.budgets import BudgetBook, BudgetIndex
from respread.planning.victims.policies import PolicyIndex, PolicySetting
from respread.planning.victims.selection import NOTHING_REFUSED, Refused, Rules, Selection
from respread.spread.index import SpreadIndex
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, NOW, ZONE, constraint, node, pod, spec

NAMESPACES = ("default", "shop")
HOSTS = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
LABELS = (Map(app="web"), Map(app="web", tier="front"), Map(app="api", tier="front"), Map(tier="back"))
SPECS = (
    spec(constraint(selector={"app": "web"})),
    spec(constraint(selector={"tier": "front"}), constraint(HOSTNAME, selector={"app": "api"})),
    spec(constraint(ZONE, selector=LabelSelector())),
    spec(),
)
SETTING = PolicySetting(
    (
        Policy(
            kind="ClusterRebalancePolicy",
            object_name="default",
            spec=ClusterPolicySpec(
                victims=VictimRules(min_age=timedelta(minutes=30)),
                namespace_selector=LabelSelector(match_labels=Map(restored="yes")),
            ),
        ),
        Policy(
            kind="RebalancePolicy",
            namespace="shop",
            object_name="api",
            spec=PolicySpec(pod_selector=LabelSelector(match_labels=Map(app="api"))),
        ),
    )
)


def owner(namespace: str, kind: str) -> Workload:
    """Return the ReplicaSet of all pods in a namespace, controlled by an owner of some kind."""
    group = "apps/v1" if kind == "Deployment" else "argoproj.io/v1alpha1"
    return Workload(
        namespace=namespace, name="web", uid="uid-web", controller=OwnerReference(group, kind, "web", "uid")
    )


pods = st.builds(
    lambda namespace, name, host, labels, of, ready, age, leaving: pod(
        name,
        host,
        of,
        namespace=namespace,
        labels=labels,
        ready=ready,
        creation_timestamp=NOW - timedelta(minutes=age),
        deletion_timestamp=NOW if leaving else None,
    ),
    st.sampled_from(NAMESPACES),
    st.sampled_from([f"p{number}" for number in range(12)]),
    st.sampled_from([*HOSTS, "a1", "a1", ""]),
    st.sampled_from(LABELS),
    st.sampled_from(SPECS),
    st.booleans(),
    st.sampled_from([10, 60]),
    st.sampled_from([False, False, False, True]),
)
budgets = st.builds(
    lambda namespace, name, selector, allowed: PodDisruptionBudget(
        namespace=namespace,
        name=name,
        selector=LabelSelector(match_labels=Map(selector)),
        current_healthy=5,
        desired_healthy=3,
        expected_pods=5,
        disruptions_allowed=allowed,
    ),
    st.sampled_from(NAMESPACES),
    st.sampled_from(["one", "two"]),
    st.sampled_from([{"app": "web"}, {"tier": "front"}, {}]),
    st.integers(0, 2),
)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("pods"), pods, st.booleans()),
        st.tuples(st.just("pods"), pods, st.just(value=True)),
        st.tuples(st.just("poddisruptionbudgets"), budgets, st.booleans()),
        st.builds(
            lambda name, restored: ("namespaces", Namespace(name=name, labels=Map(restored=restored)), True),
            st.sampled_from(NAMESPACES),
            st.sampled_from(["yes", "yes", "no"]),
        ),
        st.builds(
            lambda namespace, kind: ("replicasets", owner(namespace, kind), True),
            st.sampled_from(NAMESPACES),
            st.sampled_from(["Deployment", "Rollout"]),
        ),
        st.builds(
            lambda name, zone: ("nodes", node(name, zone), True), st.sampled_from(sorted(HOSTS)), st.sampled_from("abc")
        ),
    ),
    max_size=6,
)


def plain(tasks: Sequence[Task]) -> object:
    """Return the comparable parts. Components, and the groups of each, have no order."""
    return sorted(
        (
            sorted((str(group.key), sorted(group.counts.items())) for group in task.groups),
            sorted((str(key), policy) for key, policy in task.cure.items()),
            [each.name for each in task.pods],
            [each.name for each in task.victims],
            [(each.name, held.reason, held.message) for each, held in task.protected],
            [each.name for each in task.waiting],
            [each.name for each in task.returning],
        )
        for task in tasks
    )


def rules_of(
    snapshot: ClusterSnapshot,
    selection: Selection,
    leaving: Sequence[Pod],
    minutes: int,
    refused: Refused,
    index: BudgetIndex | None = None,
) -> Rules:
    return Rules(
        selection=selection,
        protections=SETTING.protections,
        budgets=BudgetBook(snapshot, leaving, index),
        now=NOW + timedelta(minutes=minutes),
        snapshot=snapshot,
        refused=refused,
    )


@given(
    st.lists(st.tuples(changes, st.booleans(), st.sampled_from(["", *NAMESPACES])), min_size=2, max_size=8), st.data()
)
def test_tasks_equal_those_built_from_scratch_after_any_change(
    history: Sequence[tuple[Sequence[tuple[str, object, bool]], bool, str]], data: st.DataObject
) -> None:
    state = ClusterState()
    state.replace("nodes", [node(name, zone) for name, zone in HOSTS.items()])
    state.replace("namespaces", [Namespace(name=name, labels=Map(restored="yes")) for name in NAMESPACES])
    state.replace("pods", data.draw(st.lists(pods, min_size=8, max_size=20, unique_by=lambda each: each.key)))
    index, tasks, known_budgets = SpreadIndex(), Tasks(), BudgetIndex()
    selection = Selection(PolicyIndex(SETTING.policies))
    for minutes, (batch, evicting, refusing) in enumerate(history):
        for resource, each, there in batch:
            key = each.key if resource != "nodes" else ObjectKey("", each.name)  # type: ignore[attr-defined]  # objects
            if there or key in state.keys(resource):
                state.apply(resource, [(key, each if there else None)])  # type: ignore[list-item]  # as drawn
        snapshot = state.snapshot
        leaving = list(snapshot.pods.values())[:2] if evicting else []
        refused = NOTHING_REFUSED
        if refusing:
            held = Held(Reason.HELD_BY_BUDGET, "refused")
            refused = Refused(lambda pod, _: held if pod.name < "p4" else None, frozenset({refusing}))  # noqa: B023
        selection.advance(snapshot, index.update(snapshot))
        from_scratch = Selection(PolicyIndex(SETTING.policies))
        from_scratch.advance(snapshot, spread_of(snapshot))
        after = minutes * 10
        found = tasks.advance(rules_of(snapshot, selection, leaving, after, refused, known_budgets))
        expected = Tasks().advance(rules_of(snapshot, from_scratch, leaving, after, refused))
        assert plain(found) == plain(expected)
        assert selection.selected == from_scratch.selected
        again = tasks.advance(rules_of(snapshot, selection, leaving, after, refused, known_budgets))
        for one, other in zip(again, found, strict=True):
            assert one is other or (refusing and one.goes_on_from(other, {each.uid for each in other.victims}))


def test_a_changed_pod_keeps_the_tasks_of_other_pods() -> None:
    state = ClusterState()
    state.replace("nodes", [node(name, zone) for name, zone in HOSTS.items()])
    state.replace("namespaces", [Namespace(name="default", labels=Map(restored="yes"))])
    apps = {app: spec(constraint(selector={"app": app})) for app in ("web", "api")}
    there = [
        pod(
            f"{app}-{number}",
            "a1",
            of,
            labels=Map(app=app),
            controller=OwnerReference("apps/v1", "ReplicaSet", "", app),
        )
        for app, of in apps.items()
        for number in range(3)
    ]
    state.replace("pods", there)
    index, tasks, selection = SpreadIndex(), Tasks(), Selection(PolicyIndex(SETTING.policies))
    selection.advance(state.snapshot, index.update(state.snapshot))
    violated, before = selection.violated, tasks.advance(rules_of(state.snapshot, selection, (), 0, NOTHING_REFUSED))
    changed = msgspec.structs.replace(state.snapshot.pods[ObjectKey("default", "web-1")], node_name="c1")
    state.apply("pods", [(changed.key, changed)])
    selection.advance(state.snapshot, index.update(state.snapshot))
    after = tasks.advance(rules_of(state.snapshot, selection, (), 0, NOTHING_REFUSED))
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False]
    pairs = zip(violated["default"], selection.violated["default"], strict=True)
    assert sum(one is other for one, other in pairs) == 1


def test_a_new_constraint_joins_the_component_of_the_pods_that_it_counts() -> None:
    state = ClusterState()
    state.replace("nodes", [node(name, zone) for name, zone in HOSTS.items()])
    state.replace("namespaces", [Namespace(name="default", labels=Map(restored="yes"))])
    index, tasks, selection = SpreadIndex(), Tasks(), Selection(PolicyIndex(SETTING.policies))
    crowded, even, sizes = ("a1", "a1", "a1"), ("a1", "b1", "c1"), []
    steps = [(crowded, 3, 1), (crowded, 1, 1), (crowded, 3, 1), (even, 3, 1), (even, 1, 1), (crowded, 1, 1)]
    for hosts, of, own in [*steps, (crowded, 1, 0), (crowded, 1, 1)]:
        changed = [pod(f"p{number}", host, SPECS[0], labels=LABELS[0]) for number, host in enumerate(hosts)]
        changed += [pod("both", "a1", SPECS[3], labels=LABELS[own]), pod("other", "a1", SPECS[of], labels=LABELS[3])]
        state.apply("pods", [(each.key, each) for each in changed])
        selection.advance(state.snapshot, index.update(state.snapshot))
        found = tasks.advance(rules_of(state.snapshot, selection, (), 0, NOTHING_REFUSED))
        sizes.append([len(task.groups) for task in found])
    assert sizes == [[1], [3], [1], [], [], [3], [1], [3]]
