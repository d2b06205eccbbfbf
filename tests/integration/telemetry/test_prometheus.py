"""A real Prometheus scrapes a real operator: every query of dashboard and rules returns the state of the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from respread.prevention.prevention import REST_SECONDS
from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess, policy
from tests.integration.prometheus import PANELS, Prometheus, Series, scraping
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    scale,
    wait_for_ready_pods,
)
from tests.processes import wait_until
from tests.prometheus_programs import require

PREVENTION: Final = Path(__file__).parents[3] / "manifests" / "components" / "prevention" / "cluster-role.yaml"
NOT_HERE: Final = {"Why groups stay violated"}
"""Panels without data for this cluster: no group is blocked."""


def values(series: Series) -> list[float]:
    return [float(each["value"][1]) for each in series]


def active(rules: list[dict[str, Any]]) -> list[str]:
    """Return which alerts are pending or firing."""
    return [each["name"] for each in rules if each.get("state", "inactive") != "inactive"]


def test_dashboard_and_rules_show_the_state_of_the_cluster(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    require("prometheus")
    sandbox = lay_out(installed_sandbox, 4)
    sandbox.apply(PREVENTION)
    sandbox.create_namespace("shop")
    create_deployment(sandbox, "shop", deployment("web", replicas=6, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, "shop", "web", 6)
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)
    prevention = {"podDeletionCost": "Enabled"}
    sandbox.apply(json.dumps(policy(mode="DryRun", prevention=prevention)))
    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        with scraping(operator.address(), tmp_path) as prometheus:
            _check_violations(prometheus)
            sandbox.apply(json.dumps(policy(prevention=prevention)))
            improved = 'respread_eviction_outcomes_total{outcome="Improved"}'
            wait_until(lambda: sum(values(prometheus.query(improved))) > 0, "evictions to improve the spread")
            wait_until(lambda: values(prometheus.panel("Violated groups")) == [0], "the constraint to hold")
            wait_until(lambda: prometheus.panel("Skew above maxSkew") == [], "no skew to be shown")
            _scale_down_until_it_is_counted(sandbox, prometheus)
            _check_other_panels(prometheus)


def _check_violations(prometheus: Prometheus) -> None:
    for title, expected in {
        "Skew above maxSkew": 5,  # [6, 0, 0] with maxSkew 1
        "Violated groups": 1,
        "Planned evictions": 4,
        "Leaders": 1,
    }.items():
        _wait_until_shown(lambda title=title: values(prometheus.panel(title)), [expected], title)  # type: ignore[misc]
    (skew,) = prometheus.panel("Skew above maxSkew")
    assert skew["metric"] == {
        "cluster": "east",
        "namespace": "shop",
        "workload": "Deployment/web",
        "topology_key": ZONE,
    }
    shown = sorted(
        (each["metric"]["workload"], float(each["value"][1])) for each in prometheus.panel("Violated workloads")
    )
    assert shown == [("Deployment/web", 1), ("Deployment/web", 6)]  # maxSkew and skew; no reason, as moves are planned
    by_zone = {
        each["metric"]["domain"]: float(each["value"][1]) for each in prometheus.panel("Where pods are, by zone")
    }
    assert by_zone == {"zone-a": 6, "zone-b": 0, "zone-c": 0}
    recorded = "cluster:respread_spread_groups_violated:sum"
    _wait_until_shown(lambda: values(prometheus.query(recorded)), [1], recorded)
    _wait_until_shown(lambda: active(prometheus.rules()), ["RespreadConstraintViolated"], "active alerts")


def _wait_until_shown(read: Callable[[], list[Any]], expected: list[Any], what: str) -> None:
    """Wait until Prometheus, which scrapes and evaluates once a second, shows the expected value."""
    wait_until(lambda: read() == expected, lambda: f"{what} to be {expected}: it is {read()}")


def _scale_down_until_it_is_counted(sandbox: Sandbox, prometheus: Prometheus) -> None:
    """Scale down, repeatedly if necessary: it counts only if the operator saw all pods at rest before and after."""
    for rest_seconds in (REST_SECONDS + 1, 3 * REST_SECONDS, 6 * REST_SECONDS):
        for replicas in (6, 4):
            scale(sandbox, "shop", "web", replicas)
            wait_for_ready_pods(sandbox, "shop", "web", replicas)
            time.sleep(rest_seconds)
        if prometheus.panel("Evictions avoided"):
            return
    raise AssertionError("no scale-down was counted")


def _check_other_panels(prometheus: Prometheus) -> None:
    for title in PANELS.keys() - NOT_HERE - {"Skew above maxSkew", "Violated workloads"}:
        wait_until(lambda title=title: bool(prometheus.panel(title)), f"the panel {title} to show something")  # type: ignore[misc]
    _wait_until_shown(lambda: active(prometheus.rules()), [], "active alerts")
    assert {each["name"]: each.get("lastError", "") for each in prometheus.rules() if each["health"] != "ok"} == {}
    build = prometheus.query("respread_build_info")
    assert build[0]["metric"]["cluster"] == "east"
