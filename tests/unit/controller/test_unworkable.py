"""The status and the metrics of a policy contain what can't work among the constraints that it governs."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from respread.api.status import MAX_UNWORKABLE, Summary
from respread.controller.records.history import History
from respread.controller.reporter import Reconciled, figures_of, outcomes_of
from respread.planning.audit.auditor import Auditor
from respread.telemetry.metrics import Metrics
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy, reconciled_of
from tests.worlds import ZONE, cluster, constraint, node, pod, pods, spec

METRIC = "respread_spread_groups_unworkable"


def reconciled_with(loose: int) -> Reconciled:
    """Return the reconcile of a workload with Pending pods for want of zones, and others with too large a maxSkew."""
    of = spec(constraint(ZONE, min_domains=3))
    placed = [*pods({"a1": 1, "b1": 1}, of), pod("web-new", "", of)]
    for number in range(loose):
        placed += pods({"a1": 2}, spec(constraint(ZONE, max_skew=5)), namespace=f"team-{number:02}")
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
