"""Spread groups of the default constraints of schedulers, for pods without their own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, ConstraintRules, Policy, WhenUnsatisfiable
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import Service, Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.planning.plan import Plan
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS, DefaultConstraints
from respread.spread.group import GroupKey
from respread.spread.index import SpreadIndex
from tests.plans import plan_cluster
from tests.spread_profiles import spread_profile
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, pods, spec

PLAIN = spec()
FRONT = Map(app="web", tier="front")
OWNER = Workload(namespace="default", name="web", selector=LabelSelector(match_labels=Map(app="web")))
NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c")]


def configured(profile: Profile) -> SchedulerConfiguration:
    return SchedulerConfiguration(profiles=Map({"default-scheduler": profile}))


def listed(*constraints: tuple[str, int, str]) -> SchedulerConfiguration:
    fields = ("topologyKey", "maxSkew", "whenUnsatisfiable")
    given = [dict(zip(fields, each, strict=True)) for each in constraints]
    return configured(spread_profile({"defaultingType": "List", "defaultConstraints": given}))


HARD_ZONES = listed((ZONE, 1, "DoNotSchedule"))


def world(*placed: Pod, owners: tuple[Workload, ...] = (OWNER,), **others: list[Service]) -> ClusterSnapshot:
    return cluster(NODES, placed or pods({"a1": 3, "a2": 2, "b1": 1}, PLAIN), replicasets=owners, **others)


def keys(snapshot: ClusterSnapshot, defaults: DefaultConstraints | None) -> list[str]:
    return sorted(map(str, spread_of(snapshot, defaults).groups))


def test_pods_without_constraints_form_groups_of_the_default_constraints() -> None:
    (group,) = spread_of(world(), DefaultConstraints(HARD_ZONES)).groups.values()
    assert str(group.key) == f"{ZONE} (maxSkew 1, DoNotSchedule) of app=web in default"
    assert group.all_counts() == {"a": 5, "b": 1, "c": 0}
    assert group.violated
    assert [str(each) for each in group.workloads] == ["ReplicaSet/web"]


def test_a_constraint_of_the_pod_disables_all_default_constraints() -> None:
    own = spec(constraint(HOSTNAME, when="ScheduleAnyway"))
    (key,) = spread_of(world(*pods({"a1": 2}, own)), DefaultConstraints(HARD_ZONES, ALL_DEFAULTS)).groups
    assert key.topology_key == HOSTNAME


def test_a_default_constraint_equal_to_a_pods_own_shares_its_group() -> None:
    """The scheduler counts the same pods for both, and so one eviction helps both."""
    own = pods({"a1": 1}, spec(constraint(ZONE)), prefix="own")
    (group,) = spread_of(world(*own, *pods({"b1": 1}, PLAIN)), DefaultConstraints(HARD_ZONES)).groups.values()
    assert len(group.carriers) == 2


def test_soft_defaults_form_groups_only_on_request() -> None:
    snapshot = world()
    as_it_comes = SchedulerConfiguration()
    assert keys(snapshot, DefaultConstraints(as_it_comes, HARD_DEFAULTS)) == []
    assert keys(snapshot, DefaultConstraints(as_it_comes, ALL_DEFAULTS)) == [
        f"{HOSTNAME} (maxSkew 3, ScheduleAnyway) of app=web in default",
        f"{ZONE} (maxSkew 5, ScheduleAnyway) of app=web in default",
    ]


def test_built_in_defaults_require_only_their_own_key_of_a_node() -> None:
    """A node without a zone still counts for the hostname, unlike with constraints of a list."""
    snapshot = cluster([*NODES, node("x1")], pods({"x1": 4, "a1": 1}, PLAIN), replicasets=[OWNER])

    def hostnames(configuration: SchedulerConfiguration) -> dict[str, int]:
        groups = spread_of(snapshot, DefaultConstraints(configuration, ALL_DEFAULTS)).groups.values()
        (found,) = [group.all_counts() for group in groups if group.key.topology_key == HOSTNAME]
        return found

    both = listed((HOSTNAME, 3, "ScheduleAnyway"), (ZONE, 5, "ScheduleAnyway"))
    assert hostnames(SchedulerConfiguration())["x1"] == 4
    assert "x1" not in hostnames(both)


@pytest.mark.parametrize(
    ("there", "defaults", "selectors"),
    [
        (pod("plain", "a1", PLAIN), DefaultConstraints(HARD_ZONES), ["app=web"]),
        (pod("plain", "a1", PLAIN), None, []),
        (pod("front", "a1", PLAIN, labels=FRONT), DefaultConstraints(HARD_ZONES), ["app=web,tier=front"]),
        (pod("bare", "a1", PLAIN, controller=None), DefaultConstraints(HARD_ZONES), []),
        (pod("other", "a1", spec(scheduler_name="other")), DefaultConstraints(HARD_ZONES), []),
    ],
)
def test_the_scheduler_selects_by_services_and_the_owner_and_without_either_not_at_all(
    there: Pod, defaults: DefaultConstraints | None, selectors: list[str]
) -> None:
    service = Service(namespace="default", name="web", selector=Map(tier="front"))
    found = keys(world(there, services=[service]), defaults)
    assert found == [f"{ZONE} (maxSkew 1, DoNotSchedule) of {selector} in default" for selector in selectors]


def test_an_unknown_owner_forms_no_group_but_is_requested() -> None:
    spread = spread_of(world(owners=()), DefaultConstraints(HARD_ZONES))
    assert not spread.groups
    (owner,) = spread.owners["default"]
    assert (owner.resource, owner.key, owner.uid) == ("replicasets", ObjectKey("default", "web"), "uid-web")


def test_an_owner_is_not_requested_if_no_default_constraint_needs_it() -> None:
    own = pods({"a1": 1}, spec(constraint()))
    assert not spread_of(world(owners=()), DefaultConstraints(SchedulerConfiguration())).owners
    assert not spread_of(world(*own, owners=()), DefaultConstraints(HARD_ZONES)).owners


# From one snapshot to the next


@pytest.mark.parametrize(
    "owner",
    ["apps/v1 ReplicaSet", "apps/v1 StatefulSet", "v1 ReplicationController"],
    ids=lambda owner: owner.split()[1],
)
def test_groups_follow_changes_of_services_and_owners(owner: str) -> None:
    version, kind = owner.split()
    resource = f"{kind.lower()}s"
    reference = OwnerReference(version, kind, OWNER.name, "uid-web")
    state = ClusterState(world(pod("web-1", "a1", PLAIN, controller=reference), owners=()))
    defaults = DefaultConstraints(HARD_ZONES)
    index = SpreadIndex(defaults)

    def check(selector: str | None) -> None:
        found = index.update(state.snapshot)
        assert found == spread_of(state.snapshot, defaults)
        assert [str(key.selector) for key in found.groups] == ([] if selector is None else [selector])

    check(None)
    state.apply(resource, [(OWNER.key, OWNER)])
    check("app=web")
    service = Service(namespace="default", name="web", selector=Map(app="web"))
    state.apply("services", [(service.key, service)])
    check("app=web")
    other = Workload(namespace="default", name="web", selector=LabelSelector(match_labels=Map(app="web", tier="x")))
    state.apply(resource, [(OWNER.key, other)])
    check("app=web,tier=x")
    state.apply("services", [(service.key, None)])
    for each in ("replicasets", "statefulsets", "replicationcontrollers"):  # so that all of them have changed
        state.apply(each, [(ObjectKey("default", "new"), msgspec.structs.replace(other, name="new"))])
    state.apply(resource, [(OWNER.key, None)])
    check(None)


def test_every_unknown_owner_is_requested() -> None:
    of_web, of_api = (
        pod("web-1", "a1", PLAIN, controller=OwnerReference("apps/v1", "ReplicaSet", name, f"uid-{name}"))
        for name in ("web", "api")
    )
    state = ClusterState(world(of_web, owners=()))
    index = SpreadIndex(DefaultConstraints(HARD_ZONES))
    index.update(state.snapshot)
    state.apply("pods", [(of_api.key, of_api)])
    assert [owner.key.name for owner in index.update(state.snapshot).owners["default"]] == ["api"]


def test_changes_in_other_namespaces_do_not_affect_groups() -> None:
    state = ClusterState(world())
    index = SpreadIndex(DefaultConstraints(HARD_ZONES))
    before = index.update(state.snapshot)
    elsewhere = Service(namespace="elsewhere", name="web", selector=Map(app="web"))
    state.apply("services", [(elsewhere.key, elsewhere)])
    unrelated = Workload(namespace="default", name="other", selector=LabelSelector(match_labels=Map(app="other")))
    state.apply("replicasets", [(unrelated.key, unrelated)])
    assert index.update(state.snapshot) is before


# Planning


def plan(
    snapshot: ClusterSnapshot, defaults: DefaultConstraints, kinds: tuple[WhenUnsatisfiable, ...] = ("DoNotSchedule",)
) -> Plan:
    rules = ConstraintRules(when_unsatisfiable=kinds)
    policy = Policy(kind="ClusterRebalancePolicy", object_name="test", spec=ClusterPolicySpec(constraints=rules))
    return plan_cluster(
        snapshot,
        [policy],
        now=NOW,
        spread=spread_of(snapshot, defaults),
        predictor=Predictor(ClusterView(), defaults.configuration),
    )


def counts_after(planned: Plan, key: str = ZONE) -> dict[str, int]:
    (counts,) = [dict(counts) for group, counts in planned.counts_after.items() if group.topology_key == key]
    return counts


def test_hard_defaults_are_restored_with_the_fewest_evictions() -> None:
    planned = plan(world(), DefaultConstraints(HARD_ZONES))
    assert len(planned.moves) == 3 == planned.lower_bound
    assert counts_after(planned) == {"a": 2, "b": 2, "c": 2}
    assert not planned.blocked


def test_a_plan_does_not_violate_hard_defaults_of_other_pods() -> None:
    """The default constraint of other pods also counts a pod with its own constraint."""
    own = pods({"a1": 3}, spec(constraint(ZONE, selector=Map(tier="x"))), prefix="own", labels=Map(app="web", tier="x"))
    plain = pods({"b1": 2, "c1": 2}, PLAIN)
    planned = plan(world(*own, *plain), DefaultConstraints(HARD_ZONES))
    after = {str(key.selector): counts for key, counts in planned.counts_after.items()}
    assert after["tier=x"] == {"a": 2, "b": 1}
    # One more eviction would help them, but would leave 1, 3 and 3 pods of `app=web`.
    assert sorted(after["app=web"].values()) == [2, 2, 3]


def test_soft_defaults_are_restored_if_the_policy_selects_them() -> None:
    crowded = world(*pods({"a1": 8}, PLAIN))
    defaults = DefaultConstraints(SchedulerConfiguration(), ALL_DEFAULTS)
    kinds: tuple[WhenUnsatisfiable, ...] = ("DoNotSchedule", "ScheduleAnyway")
    assert plan(crowded, defaults).moves == ()
    planned = plan(crowded, defaults, kinds)
    assert planned.moves
    assert not any(_violated(key, counts) for key, counts in planned.counts_after.items())


def _violated(key: GroupKey, counts: Mapping[str, int]) -> bool:
    domains = "abc" if key.topology_key == ZONE else ("a1", "a2", "b1", "c1")
    return max(counts.values()) - min(counts.get(each, 0) for each in domains) > key.max_skew


def test_pods_of_different_owners_form_different_groups() -> None:
    """Pods with the same labels and spec and different owners have different default constraints."""
    other = OwnerReference("apps/v1", "ReplicaSet", "other", "uid-other")
    labels = Map(app="web", tier="x")
    placed = [
        *pods({"a1": 2}, PLAIN, labels=labels),
        *pods({"a1": 2}, PLAIN, labels=labels, controller=other, prefix="other"),
    ]
    of_other = Workload(namespace="default", name="other", selector=LabelSelector(match_labels=Map(tier="x")))
    snapshot = world(*placed, owners=(OWNER, of_other))
    spread = spread_of(snapshot, DefaultConstraints(HARD_ZONES))
    assert sorted(str(key.selector) for key in spread.groups) == ["app=web", "tier=x"]
    assert all(len(group.carriers) == 1 for group in spread.groups.values())
    planned = plan(snapshot, DefaultConstraints(HARD_ZONES))
    assert all(dict(counts) == {"a": 2, "b": 1, "c": 1} for counts in planned.counts_after.values())
