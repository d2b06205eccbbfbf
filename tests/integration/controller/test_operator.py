"""The operator on a real control plane, with the permissions of manifests/."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess, audited, evictions, policy, refused, status_of
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
    wait_until,
)
from tests.properties.instances import factor


@pytest.fixture
def one_zone(installed_sandbox: Sandbox) -> Sandbox:
    """A cluster with Respread installed and nodes in zone-a only; more zones are added later."""
    installed_sandbox.create_namespace("shop")
    return lay_out(installed_sandbox, 4)


def fill(sandbox: Sandbox, *names: str, replicas: int = 6, **fields: Any) -> None:
    for name in names:
        constraints = [constraint(ZONE, name), constraint(HOSTNAME, name, when_unsatisfiable="ScheduleAnyway")]
        create_deployment(sandbox, "shop", deployment(name, replicas=replicas, constraints=constraints, **fields))
    for name in names:
        wait_for_ready_pods(sandbox, "shop", name, replicas)


def add_zones(sandbox: Sandbox) -> None:
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)


def balanced(sandbox: Sandbox, *names: str) -> bool:
    counts = [pods_per_domain(sandbox, "shop", name) for name in names]
    return all(len(count) == 3 and max(count.values()) - min(count.values()) <= 1 for count in counts)


def conditions(sandbox: Sandbox) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status_of(sandbox).get("conditions", ())}


def test_new_zones_are_filled_with_the_fewest_evictions(one_zone: Sandbox, tmp_path: Path) -> None:
    fill(one_zone, "web", "api")
    add_zones(one_zone)
    one_zone.apply(json.dumps(policy()))
    with OperatorProcess(one_zone, tmp_path) as operator:
        wait_until(lambda: balanced(one_zone, "web", "api"), "both Deployments to be spread over three zones")
        wait_until(lambda: conditions(one_zone).get("Balanced") == "True", "the policy's status to say so")
        # [6, 0, 0] with maxSkew 1 takes 4 moves, so two Deployments take 8.
        assert len(evictions(one_zone)) == 8
        assert status_of(one_zone)["summary"]["evicted"] == 8
        assert status_of(one_zone)["summary"]["violated"] == 0
        assert operator.metric('respread_evictions_total{namespace="shop",policy="test",result="Evicted"}') == 8
        improved = 'respread_eviction_outcomes_total{outcome="Improved",policy="test"}'
        wait_until(lambda: operator.metric(improved) == 8, "all replacements to be Ready where they help")
        events = one_zone.api.get("/apis/events.k8s.io/v1/namespaces/shop/events")["items"]
        ours = [event for event in events if event.get("reportingController") == "respread.dev/respread"]
        assert {event["regarding"]["kind"] for event in ours} == {"Deployment", "Pod"}
        assert {event["reason"] for event in ours} == {"EvictedForSpread"}
        assert operator.stop() == 0
    assert refused(one_zone) == []
    assert not any(line["level"] in {"error", "critical"} for line in operator.lines())


def test_a_dry_run_evicts_nothing_and_reports_its_plan(one_zone: Sandbox, tmp_path: Path) -> None:
    fill(one_zone, "web")
    add_zones(one_zone)
    one_zone.apply(json.dumps(policy(mode="DryRun")))
    with OperatorProcess(one_zone, tmp_path):
        wait_until(lambda: status_of(one_zone).get("summary", {}).get("plannedEvictions") == 4, "the plan")
        (violation,) = status_of(one_zone)["violations"]
        assert violation["workloads"] == [{"kind": "Deployment", "name": "web"}]
        assert violation["skew"] == 6
        assert violation["reason"] == "DryRun"
        assert conditions(one_zone)["Balanced"] == "False"
        time.sleep(2)
        assert evictions(one_zone) == []
        one_zone.apply(json.dumps(policy(mode="Enforce")))
        wait_until(lambda: balanced(one_zone, "web"), "web to be spread once the policy enforces")
        assert len(evictions(one_zone)) == 4


def test_a_namespace_that_is_being_deleted_is_left_alone(one_zone: Sandbox, tmp_path: Path) -> None:
    fill(one_zone, "web")
    add_zones(one_zone)
    one_zone.freeze_component("kube-controller-manager")  # it would delete the pods
    try:
        one_zone.api.request("DELETE", "/api/v1/namespaces/shop")
        one_zone.apply(json.dumps(policy()))
        with OperatorProcess(one_zone, tmp_path):
            wait_until(lambda: conditions(one_zone).get("Balanced") == "True", "the policy's status")
            assert status_of(one_zone)["summary"]["pods"] == 0
        assert len(pods(one_zone, "shop", "web")) == 6
        assert not any('"subresource":"eviction"' in each for each in audited(one_zone))
    finally:
        one_zone.thaw_component("kube-controller-manager")


@pytest.mark.long
def test_an_operator_killed_and_restarted_evicts_no_pod_too_many(one_zone: Sandbox, tmp_path: Path) -> None:
    names = ["web", "api", "jobs", "mail"]
    fill(one_zone, *names)
    add_zones(one_zone)
    one_zone.apply(json.dumps(policy(limits={"inFlight": 2})))
    for stop_at in (3, 7, 11):
        # Without the Lease, which a killed leader holds for another 15 s, the next one starts at once.
        with OperatorProcess(one_zone, tmp_path, "--no-leader-election") as operator:
            wait_until(lambda at=stop_at: len(evictions(one_zone)) >= at, "some evictions")  # type: ignore[misc]  # no types for defaults
            operator.process.send_signal(signal.SIGKILL)
            operator.process.wait()
    with OperatorProcess(one_zone, tmp_path, "--no-leader-election"):
        wait_until(lambda: balanced(one_zone, *names), "all Deployments to be spread")
        time.sleep(1)
    assert len(evictions(one_zone)) == 4 * len(names)


def test_a_budget_is_respected_and_the_spread_is_restored(one_zone: Sandbox, tmp_path: Path) -> None:
    fill(one_zone, "web", annotations={"sandbox.respread.dev/ready-after-seconds": "1"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    one_zone.apply(json.dumps(budget))
    add_zones(one_zone)
    one_zone.apply(json.dumps(policy(limits={"inFlightPerWorkload": 3})))
    with OperatorProcess(one_zone, tmp_path):
        wait_until(lambda: balanced(one_zone, "web"), "web to be spread")
        wait_for_ready_pods(one_zone, "shop", "web", 6)
    assert len(evictions(one_zone)) == 4
    asked = [each for each in audited(one_zone) if '"subresource":"eviction"' in each]
    assert not any(json.loads(each).get("responseStatus", {}).get("code") == 429 for each in asked)


def test_scale_downs_leave_no_skew_behind(one_zone: Sandbox, tmp_path: Path) -> None:
    add_zones(one_zone)
    names = [f"web-{number}" for number in range(8 if factor() > 1 else 4)]
    fill(one_zone, *names, replicas=9)
    one_zone.apply(json.dumps(policy()))
    with OperatorProcess(one_zone, tmp_path) as operator:
        operator.wait_until_ready()
        for number, name in enumerate(names):
            scale(one_zone, "shop", name, 3 + number % 4)
        wait_until(
            lambda: (
                balanced(one_zone, *names)
                and all(len(pods(one_zone, "shop", name)) == 3 + number % 4 for number, name in enumerate(names))
            ),
            "all Deployments to be spread",
        )
