"""What metrics and statuses say of groups: pods by domain, why and for how long they are violated, what can't work."""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map
from prometheus_client import CollectorRegistry

from respread.api.status import MAX_UNWORKABLE, Summary
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.history import History
from respread.controller.reporter import Reconciled, ViolationTimes, figures_of, outcomes_of
from respread.planning.audit.auditor import Auditor
from respread.spread.group import GroupKey, SpreadGroup
from respread.telemetry.metrics import Metrics
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy, reconciled_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, pods, spec

PODS = "respread_spread_pods"
BLOCKED = "respread_spread_blocked"


def samples(world: ClusterSnapshot, name: str, **options: Any) -> list[tuple[dict[str, str], float]]:
    """Return the samples of a metric for a cluster, without the labels that all have in common."""
    policy = default_policy()
    reconciled = reconciled_of(world, policy)
    registry = CollectorRegistry()
    Metrics(registry, version="1", **options).show_plan(figures_of([policy], reconciled, {}))
    found = [sample for family in registry.collect() for sample in family.samples if sample.name == name]
    common = {"namespace", "workload", "when_unsatisfiable"}
    return [({k: v for k, v in sample.labels.items() if k not in common}, sample.value) for sample in found]


def in_zones(number: int, key: str = ZONE, **of_last: Any) -> ClusterSnapshot:
    nodes = [node(f"n{at}", f"z{at:02}", **(of_last if at == number - 1 else {})) for at in range(number)]
    return cluster(nodes, pods({"n0": 3, "n1": 1}, spec(constraint(key))))


def test_every_domain_has_its_pods_even_if_there_are_none() -> None:
    assert samples(in_zones(3), PODS) == [
        ({"topology_key": ZONE, "domain": domain}, pods) for domain, pods in (("z00", 3), ("z01", 1), ("z02", 0))
    ]


def test_at_most_16_domains_are_shown_and_no_nodes_and_none_if_it_is_switched_off() -> None:
    assert len(samples(in_zones(16), PODS)) == 16
    assert samples(in_zones(17), PODS) == []
    assert samples(in_zones(2, HOSTNAME), PODS) == []
    assert samples(in_zones(3), PODS, domain_pods=False) == []


def test_a_constraint_that_stays_violated_has_its_reason() -> None:
    assert samples(in_zones(3), BLOCKED) == []
    assert samples(in_zones(3, unschedulable=True), BLOCKED) == [
        ({"topology_key": ZONE, "reason": "NoFeasibleNode"}, 1)
    ]


METRIC, VIOLATED = "respread_spread_groups_unworkable", "respread_spread_groups_violated"


def reconciled_with(loose: int) -> Reconciled:
    """Return the reconcile of a workload with Pending pods for want of zones, and others with too large a maxSkew."""
    of = spec(constraint(ZONE, min_domains=3))
    placed = [*pods({"a1": 1, "b1": 1}, of), pod("web-new", "", of), pod("odd", "a1", of, labels=Map(app="odd"))]
    for number in range(loose):
        placed += pods({"a1": 2}, spec(constraint(HOSTNAME, max_skew=5)), namespace=f"team-{number:02}")
    placed += pods({"a1": 1, "b1": 1}, spec(constraint()), namespace="well")
    world, policy = cluster([node("a1", "a"), node("b1", "b")], placed), default_policy()
    return reconciled_of(world, policy, findings=Auditor().update(world, spread_of(world)))


def test_the_status_counts_them_and_has_the_worst_with_cause_and_cure() -> None:
    outcome = outcomes_of([default_policy()], reconciled_with(loose=12), History(lambda: 0.0))["default"]
    summary = outcome.summary
    assert (summary.unsatisfiable, summary.ineffective, summary.violated, summary.worst_skew) == (1, 12, 0, 2)
    assert len(outcome.unworkable) == MAX_UNWORKABLE
    first = outcome.unworkable[0]
    assert (first.state, first.when, first.rule) == ("Unsatisfiable", "Now", "TooFewDomains")
    assert [each.name for each in first.workloads] == ["web"]
    assert first.cure == "lower minDomains to 2, or add nodes in more domains"
    assert {each.rule for each in outcome.unworkable[1:]} == {"SkewUnreachable"}
    assert msgspec.json.encode(outcome.unworkable)
    of_none = outcomes_of([default_policy()], reconciled_of(cluster([], []), default_policy()), History(lambda: 0.0))
    assert of_none["default"].summary == Summary()


def test_the_metric_counts_them_by_rule() -> None:
    registry = CollectorRegistry()
    Metrics(registry, version="1").show_plan(figures_of([default_policy()], reconciled_with(loose=2), {}))
    labels = {"policy_namespace": "", "policy": "default"}
    pending = {"state": "Unsatisfiable", "when": "Now", "rule": "TooFewDomains"}
    idle = {"state": "Ineffective", "when": "Now", "rule": "SkewUnreachable"}
    assert registry.get_sample_value(METRIC, labels | pending) == 1
    assert registry.get_sample_value(METRIC, labels | idle) == 2
    assert registry.get_sample_value(VIOLATED, labels | {"when_unsatisfiable": "DoNotSchedule"}) == 0


def group_of(a: int, b: int) -> dict[GroupKey, SpreadGroup]:
    counts = {"a1": a, "b1": b}
    return dict(spread_of(cluster([node("a1", "a"), node("b1", "b")], pods(counts, spec(constraint())))).groups)


def test_a_violation_lasts_until_the_group_is_balanced() -> None:
    times = ViolationTimes()
    (key,) = group_of(3, 0)
    assert times.see(group_of(1, 1), {key: "default"}, 1.0) == []
    assert times.see(group_of(3, 0), {key: "default"}, 10.0) == []
    assert times.see(group_of(3, 1), {key: "default"}, 20.0) == []
    assert times.see(group_of(2, 1), {key: "default"}, 30.0) == [("default", 20.0)]
    assert times.see(group_of(2, 1), {key: "default"}, 40.0) == []


def test_a_deleted_or_deselected_group_does_not_count_as_restored() -> None:
    times = ViolationTimes()
    (key,) = group_of(3, 0)
    assert times.see(group_of(3, 0), {key: "default"}, 10.0) == []
    assert times.see({}, {}, 20.0) == []
    assert times.see(group_of(3, 0), {key: "default"}, 30.0) == []
    assert times.see(group_of(2, 1), {}, 40.0) == []
    assert times.see(group_of(2, 1), {key: "default"}, 50.0) == []
