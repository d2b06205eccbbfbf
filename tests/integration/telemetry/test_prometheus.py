"""A real Prometheus scrapes a real operator: every query of dashboard and rules returns the state of the cluster."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import time
import urllib.error
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from respread.prevention.prevention import REST_SECONDS
from respread_cli.ui.history import read_past
from respread_sandbox import Sandbox
from tests.integration.helm import CHART, helm_for
from tests.integration.operator_process import OperatorProcess, policy
from tests.integration.prevention_cluster import RIGHT
from tests.integration.prometheus import PANELS, Prometheus, Series, scraping
from tests.integration.reused_sandbox import lay_out
from tests.integration.tls_front import Authority
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    create_deployment,
    deployment,
    scale,
    wait_for_ready_pods,
)
from tests.processes import wait_until
from tests.prometheus_programs import require

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
    sandbox.apply(RIGHT)
    sandbox.create_namespace("shop")
    create_deployment(sandbox, "shop", deployment("web", replicas=6, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, "shop", "web", 6)
    too_large = constraint(HOSTNAME, "idle", max_skew=2)
    create_deployment(sandbox, "shop", deployment("idle", replicas=2, constraints=[too_large]))
    wait_for_ready_pods(sandbox, "shop", "idle", 2)
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
            wait_until(
                lambda: _past_of_the_page(prometheus)[-1:] == [0], "the page to be told that nothing is violated"
            )
            _scale_down_until_it_is_counted(sandbox, prometheus)
            _check_other_panels(prometheus)


def _past_of_the_page(prometheus: Prometheus) -> list[int]:
    """Return how many constraints were violated, as `respread ui` reads it: a point for each minute."""
    return [each.violated for each in read_past(f"http://{prometheus.address}", datetime.now(UTC))]


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
    (unworkable,) = prometheus.panel("Constraints that can't work")
    assert [unworkable["metric"][each] for each in ("state", "rule")] == ["Ineffective", "SkewUnreachable"]
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


SECURE: Final = (
    "monitoring.secure.enabled=true,monitoring.secure.secretName=metrics,monitoring.serviceMonitor.enabled=true"
)
READER: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
"""


def read_metrics(address: str, authority: Authority, token: str | None = None) -> tuple[int, str]:
    """Return the status and the text of the metrics over TLS, with certificates of an authority."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    trusting = ssl.create_default_context(cafile=str(authority.own.certificate))
    with closing(http.client.HTTPSConnection(address, timeout=30, context=trusting)) as client:
        client.request("GET", "/metrics", headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.timeout(1800)
def test_metrics_over_tls_are_read_by_those_who_may_get_them(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    """Helm is built first if it is not in the cache."""
    sandbox = installed_sandbox
    parts = [part for name in ("cluster-role", "service-monitor") for part in ("--show-only", f"templates/{name}.yaml")]
    rendered = helm_for(sandbox, tmp_path)(
        *("template", "respread", str(CHART), "--namespace", "respread-system", *parts, "--set", SECURE)
    )
    role, binding, monitor = yaml.safe_load_all(rendered)
    for each in (role, binding):  # beside those of the manifests
        each["metadata"]["name"] = "metrics-over-tls"
    binding["roleRef"]["name"] = "metrics-over-tls"
    sandbox.apply(yaml.safe_dump_all([role, binding]))
    sandbox.apply(READER)
    sandbox.create_namespace("monitoring")
    tokens = {}
    for name in ("prometheus", "visitor"):
        sandbox.kubectl("create", "serviceaccount", name, "-n", "monitoring")
        tokens[name] = sandbox.kubectl("create", "token", name, "-n", "monitoring").strip()
    (endpoint,) = monitor["spec"]["endpoints"]
    host, files, folder = endpoint["tlsConfig"]["serverName"], tmp_path / "mounted", tmp_path / "certificates"
    files.mkdir()
    folder.mkdir()

    def issue(name: str) -> Authority:
        authority = Authority.create(folder, name)
        issued = authority.server(f"DNS:{host}", "IP:127.0.0.1")
        shutil.copy(issued.certificate, files / "tls.crt")
        shutil.copy(issued.key, files / "tls.key")
        return authority

    authority = issue("first")
    options = ("--metrics-address", "127.0.0.1:0", "--metrics-certificate", str(files))
    with OperatorProcess(sandbox, tmp_path, *options) as operator:
        operator.wait_until_ready()
        (address,) = [each["address"] for each in operator.lines() if each["event"] == "Metrics are served over TLS"]
        status, text = read_metrics(address, authority, tokens["prometheus"])
        assert (status, "respread_build_info{" in text) == (200, True)
        assert read_metrics(address, authority, tokens["visitor"]) == (403, "Forbidden\n")
        assert read_metrics(address, authority, "of-nobody") == (401, "Unauthorized\n")
        assert read_metrics(address, authority) == (401, "Unauthorized\n")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            operator.get("/metrics")

        sandbox.stop_component("kube-apiserver")
        assert read_metrics(address, authority, tokens["prometheus"])[0] == 200, "it is remembered for a minute"
        assert read_metrics(address, authority, tokens["visitor"])[0] == 503
        sandbox.start_component("kube-apiserver")

        renewed = issue("second")
        assert read_metrics(address, renewed, tokens["prometheus"])[0] == 200
        require("prometheus")
        (tmp_path / "token").write_text(tokens["prometheus"])
        how = {
            "scheme": endpoint["scheme"],
            "authorization": {"credentials_file": str(tmp_path / "token")},
            "tls_config": {"ca_file": str(renewed.own.certificate), "server_name": host},
        }
        with scraping(address, tmp_path, **how) as prometheus:
            wait_until(lambda: values(prometheus.query("up")) == [1], "Prometheus to read the metrics")
        assert operator.stop() == 0
    assert not any(token in operator.log.read_text() for token in tokens.values())
