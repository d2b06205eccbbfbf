"""A forecast says whether a workload is protected, the reason if not, and the result of a scale-down."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from immutables import Map

from respread.api.decoding import decode_policy
from respread.api.policy import Policy
from respread.cluster.meta import POD_DELETION_COST, OwnerReference
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.replica_set import ReplicaSetIndex
from respread.spread.carried import DefaultConstraints
from respread_cli.report.scale_downs import (
    Forecast,
    NotForetoldError,
    ProtectionReport,
    Ranking,
    ScaleDownReason,
    WorkloadPods,
    foretell,
    protection_of,
    workloads_of,
)
from tests.spreads import spread_of
from tests.unit.spread.test_defaults import HARD_ZONES, OWNER
from tests.worlds import NOW, ZONE, cluster, constraint, node, pod, spec

NODES = [node(f"{zone}{number}", zone) for zone in "abc" for number in (1, 2)]
SPREAD = spec(constraint())


def cluster_policy(name: str, **spec: object) -> Policy:
    return decode_policy("ClusterRebalancePolicy", {"metadata": {"name": name}, "spec": spec})


PREVENTS = cluster_policy("prevents", prevention={"podDeletionCost": "Enabled"})


def web(
    number: int, on: str, cost: int | None = None, *, ours: bool = True, age_seconds: int = 3600, **fields: object
) -> Pod:
    annotations = Map() if cost is None else Map({POD_DELETION_COST: str(cost)})
    return pod(
        f"web-{number}",
        on,
        fields.pop("of", SPREAD),  # type: ignore[arg-type]  # a PodSpec
        annotations=annotations,
        deletion_cost_is_ours=cost is not None and ours,
        creation_timestamp=NOW - timedelta(seconds=age_seconds),
        **fields,  # type: ignore[arg-type]  # a Pod's
    )


def snapshot_of(*pods: Pod) -> ClusterSnapshot:
    return cluster(NODES, pods)


def only(snapshot: ClusterSnapshot) -> WorkloadPods:
    (found,) = workloads_of(snapshot, spread_of(snapshot), snapshot.pods_by_labels).values()
    return found


def protection(*pods: Pod, policy: Policy | None = PREVENTS) -> ProtectionReport:
    snapshot = snapshot_of(*pods)
    return protection_of(only(snapshot), PolicyIndex([] if policy is None else [policy]), snapshot)


def forecast(replicas: int, ranking: Ranking, *pods: Pod) -> Forecast:
    return foretell(only(snapshot_of(*pods)), replicas, NOW, ranking)


def counts(found: Forecast) -> dict[str, int]:
    (group,) = found.groups
    return group.all_counts()


RANKED = (web(1, "a1", -3000), web(2, "b1", -2000), web(3, "c1", -1000))


def test_a_workload_is_protected_if_all_pods_have_respreads_costs() -> None:
    found = protection(*RANKED)
    assert found.protected
    assert (found.reason, found.policy) == ("Protected", "prevents")


@pytest.mark.parametrize(
    ("reason", "pods", "policy"),
    [
        ("NoPolicy", RANKED, None),
        ("PreventionDisabled", RANKED, cluster_policy("idle")),
        (
            "ConstraintNotSelected",
            RANKED,
            cluster_policy(
                "hosts",
                prevention={"podDeletionCost": "Enabled"},
                constraints={"topologyKeys": ["kubernetes.io/hostname"]},
            ),
        ),
        ("NotRanked", (*RANKED, web(4, "a2")), PREVENTS),
        ("CostsOfOthers", (*RANKED, web(4, "a2"), web(5, "b2", -1, ours=False)), PREVENTS),
        ("CostsOfOthers", tuple(web(number, "a1", 7, ours=False) for number in range(3)), PREVENTS),
        ("SinglePod", (web(1, "a1"),), PREVENTS),
        ("NoConstraint", tuple(web(number, "a1", of=spec()) for number in range(2)), PREVENTS),
    ],
)
def test_an_unprotected_workload_has_a_reason(reason: str, pods: tuple[Pod, ...], policy: Policy | None) -> None:
    found = protection(*pods, policy=policy)
    assert found.reason == reason
    assert not found.protected
    assert found.message.endswith(".")


def test_an_invalid_policy_is_named() -> None:
    found = protection(*RANKED, policy=cluster_policy("typo", quietPeriod="soon"))
    assert (found.reason, found.policy) == ("InvalidPolicy", "typo")


@pytest.mark.parametrize(
    ("kind", "api_version", "reason"),
    [
        ("StatefulSet", "apps/v1", "HighestOrdinal"),
        ("DaemonSet", "apps/v1", "NotScaledDown"),
        ("Job", "batch/v1", "NotScaledDown"),
        ("CloneSet", "apps.kruise.io/v1alpha1", "UnknownController"),
    ],
)
def test_other_controllers_have_other_deletion_orders(kind: str, api_version: str, reason: str) -> None:
    owner = OwnerReference(api_version, kind, "web", "uid-other")
    assert protection(*(web(number, "a1", controller=owner) for number in range(3))).reason == reason


def test_costs_of_other_writers_are_reported_for_a_protected_workload() -> None:
    found = protection(*RANKED, web(4, "a2", 5, ours=False))
    assert found.protected
    assert "1 of 4" in found.message


def test_a_rollout_has_no_forecast() -> None:
    other = OwnerReference("apps/v1", "ReplicaSet", "web-2", "uid-web-2")
    labelled = Map({"app": "web", "pod-template-hash": "2"})
    old = OwnerReference("apps/v1", "ReplicaSet", "web-1", "uid-web-1")
    pods = (
        web(1, "a1", controller=old, labels=Map({"app": "web", "pod-template-hash": "1"})),
        web(2, "b1", controller=other, labels=labelled),
    )
    assert protection(*pods).reason == "RollingOut"
    with pytest.raises(NotForetoldError, match="a rollout is going on"):
        forecast(1, "as it is", *pods)


CROWDED = (
    # By age alone, zone c would lose both of its pods, which are the youngest.
    web(1, "a1", age_seconds=1 << 16),
    web(2, "a2", age_seconds=1 << 15),
    web(3, "b1", age_seconds=1 << 14),
    web(4, "b2", age_seconds=1 << 13),
    web(5, "c1", age_seconds=1 << 12),
    web(6, "c2", age_seconds=1 << 11),
)


def test_costs_keep_the_spread_in_a_scale_down_that_would_lose_it() -> None:
    without = forecast(4, "without costs", *CROWDED)
    assert counts(without) == {"a": 2, "b": 2, "c": 0}
    assert not without.certain
    assert without.evictions == 1
    with_costs = forecast(3, "with costs", *CROWDED)
    assert counts(with_costs) == {"a": 1, "b": 1, "c": 1}
    assert with_costs.certain
    assert with_costs.evictions == 0
    assert len(with_costs.deleted) == 3


def test_the_forecast_without_prevention_uses_only_costs_of_others() -> None:
    pods = (web(1, "a1", -3000), web(2, "a2", -4000), web(3, "b1", -1000), web(4, "c1", -9000, ours=False))
    assert [each.name for each in forecast(2, "as it is", *pods).deleted] == ["web-4", "web-2"]
    assert [each.name for each in forecast(3, "without costs", *pods).deleted] == ["web-4"]


def test_unready_pods_are_deleted_first_whatever_their_cost() -> None:
    pods = (*RANKED, web(4, "a2", -500, ready=False))
    assert [each.name for each in forecast(3, "with costs", *pods).deleted] == ["web-4"]


def test_a_stateful_set_loses_its_highest_ordinals() -> None:
    owner = OwnerReference("apps/v1", "StatefulSet", "web", "uid-set")
    pods = [web(number, on, controller=owner) for number, on in ((0, "a1"), (2, "b1"), (10, "c1"), (9, "a2"))]
    found = forecast(2, "with costs", *pods)
    assert [each.name for each in found.deleted] == ["web-10", "web-9"]
    assert found.certain
    assert counts(found) == {"a": 1, "b": 1, "c": 0}


def test_scaling_to_the_current_replicas_deletes_no_pod() -> None:
    found = forecast(3, "with costs", *RANKED)
    assert found.deleted == ()
    assert found.certain


def test_an_unknown_controller_has_no_forecast() -> None:
    owner = OwnerReference("apps.kruise.io/v1alpha1", "CloneSet", "web", "uid-clones")
    with pytest.raises(NotForetoldError, match="CloneSet"):
        forecast(1, "as it is", *(web(number, "a1", controller=owner) for number in range(3)))


def test_workloads_are_listed_by_name_without_terminating_pods() -> None:
    leaving = web(9, "b1", deletion_timestamp=NOW)
    snapshot = snapshot_of(*RANKED, leaving, pod("lone", "a1", spec(), namespace="shop", controller=None))
    found = workloads_of(snapshot, spread_of(snapshot), snapshot.pods_by_labels)
    assert {str(name) for name in found} == {"ReplicaSet/web", "Pod/lone"}
    assert len(found[WorkloadName("ReplicaSet", "default", "web")].pods) == 3
    assert [str(name) for name in workloads_of(snapshot, spread_of(snapshot), {"shop"})] == ["Pod/lone"]


def test_default_constraints_are_treated_as_constraints_of_the_pod() -> None:
    defaults, plain = DefaultConstraints(HARD_ZONES), spec()
    before = cluster(NODES, [web(1, "a1", of=plain), web(2, "a2", of=plain), web(3, "b1", of=plain)])
    index = ReplicaSetIndex()
    index.update(before, spread_of(before, defaults))
    assert index.by_uid["uid-web"].groups == ()  # the selector is not read yet
    state = ClusterState(before)
    state.replace("replicasets", [OWNER])
    changes = index.update(state.snapshot, spread_of(state.snapshot, defaults))
    (changed,) = changes.changed
    (group,) = changed.groups
    assert group.key.topology_key == ZONE
    (workload,) = workloads_of(
        state.snapshot, spread_of(state.snapshot, defaults), state.snapshot.pods_by_labels
    ).values()
    assert counts(foretell(workload, 2, NOW, "with costs")) == {"a": 1, "b": 1, "c": 0}


@pytest.mark.parametrize("reason", ScaleDownReason)
def test_every_forecast_reason_is_documented(reason: ScaleDownReason) -> None:
    documentation = Path(__file__).parents[3] / "docs" / "prevention.md"
    assert f"`{reason}`" in documentation.read_text(encoding="utf-8")
