"""The metrics of pods by domain are bounded, and say why constraints stay violated."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from respread.cluster.state import ClusterSnapshot
from respread.controller.reporter import figures_of
from respread.telemetry.metrics import Metrics
from tests.unit.planning.blocked_plans import default_policy, reconciled_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pods, spec

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
