"""The commands of the quick start work: they install Respread, plan, and show an eviction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import Sandbox
from tests.integration.helm import CHART, Helm, helm_for
from tests.integration.operator_process import OperatorProcess
from tests.integration.prevention_cluster import COST
from tests.integration.prometheus import DASHBOARD, Prometheus, scraping
from tests.integration.prometheus_operator import define_monitoring
from tests.integration.workloads import pods, wait_until
from tests.prometheus_programs import is_installed
from tests.shown_commands import commands

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "quick-start.md"
OPERATOR: Final = "respread-system"
SHOP: Final = "shop"
POLICY: Final = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
COUNTED: Final = f'respread_evictions_total{{namespace="{SHOP}", result="Evicted"}}'
NEEDS_OTHER_CHARTS: Final = re.compile(r"prometheus-community|-n monitoring\b")
"""Commands for charts of Prometheus and Grafana. A Prometheus process runs the queries of the dashboard instead."""

pytestmark = pytest.mark.timeout(1800)
"""The time limit. Helm is built first if it is not in the cache."""


def typed(section: str) -> Iterator[list[str]]:
    """Yield the words of each command of a section that a reader can type here."""
    return (words for words in commands(PAGE, section) if not NEEDS_OTHER_CHARTS.search(" ".join(words)))


class Reader:
    """Runs the commands of the page. The operator is a process, because its pods are simulated."""

    def __init__(self, sandbox: Sandbox, helm: Helm, folder: Path, ended: ExitStack) -> None:
        self._sandbox = sandbox
        self._helm = helm
        self._folder = folder
        self._ended = ended
        self.operator: OperatorProcess | None = None

    def types(self, words: list[str]) -> str:
        """Return the output of a command."""
        program, *arguments = words
        if program == "sleep":  # waits until pods have about the same age, which does not matter here (see below)
            return ""
        if program == "helm":
            return self._helm_with_operator([str(CHART) if each == "charts/respread" else each for each in arguments])
        if program == "kubectl":
            return self._sandbox.kubectl(*(str(ROOT / each) if (ROOT / each).exists() else each for each in arguments))
        assert program == "respread", words
        kubeconfig = {"KUBECONFIG": str(self._sandbox.kubeconfig)}
        done = CliRunner().invoke(respread, arguments, env=kubeconfig, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def _helm_with_operator(self, arguments: list[str]) -> str:
        """Run Helm, which waits until the operator has planned. The operator starts once it has its permissions."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._helm, *arguments)
            if self.operator is None:
                account = f"/api/v1/namespaces/{OPERATOR}/serviceaccounts/respread"
                wait_until(lambda: running.done() or self._sandbox.api.exists(account), "the ServiceAccount")
                if not running.done():
                    self.operator = self._ended.enter_context(OperatorProcess(self._sandbox, self._folder))
            return running.result()


def test_the_commands_of_the_quick_start_have_the_documented_result(sandbox: Sandbox, tmp_path: Path) -> None:
    define_monitoring(sandbox)
    with ExitStack() as ended:
        reader = Reader(sandbox, helm_for(sandbox, tmp_path), tmp_path, ended)
        installing = list(typed("Install it with Helm"))
        assert len(installing) == 2
        for words in installing:
            shown = reader.types(words)
        assert re.search(r"^default +DryRun +True ", shown, re.MULTILINE)  # Helm waits for the plan
        operator = reader.operator
        assert operator is not None

        scraped = scraping(operator.address(), tmp_path) if is_installed("prometheus") else nullcontext()
        _check_eviction(sandbox, reader, ended.enter_context(scraped))
        for words in typed("Look at your own cluster"):
            reader.types(words)
        assert operator.metric('respread_evictions_total{result="Evicted"}') >= 1
        assert operator.stop() == 0


def _check_eviction(sandbox: Sandbox, reader: Reader, prometheus: Prometheus | None) -> None:
    for words in typed("See an eviction on a dashboard"):
        if words[:2] == ["kubectl", "events"]:
            wait_until(lambda words=words: "EvictedForSpread" in reader.types(words), "the Event of an eviction")  # type: ignore[misc]  # no types for defaults
            _wait_for_panel(prometheus, "Evictions by answer", {"result": "Evicted", "policy": "default"})
            continue
        if words[:2] in (["kubectl", "delete"], ["helm", "uninstall"]):
            continue
        if words[:2] == ["kubectl", "scale"]:
            _keep_the_pods_of_one_zone(sandbox)
            if prometheus is not None:  # an increase needs a value before it
                wait_until(lambda: bool(prometheus.query(COUNTED)), "the evictions of the namespace to be counted")
        shown = reader.types(words)
        if words[0] == "helm":
            _check_scraped_objects(sandbox)
            sandbox.api.request("PATCH", POLICY, {"spec": {"quietPeriod": "1h", "victims": {"minAge": "0s"}}})
        if words[:2] == ["respread", "skew"]:
            assert "deploy/web" in shown
            _wait_for_panel(prometheus, "Skew above maxSkew", {"workload": "Deployment/web", "namespace": SHOP})
            # With the times of the page, this would take a minute and a half longer.
            sandbox.api.request("PATCH", POLICY, {"spec": {"quietPeriod": "1s"}})


def _wait_for_panel(prometheus: Prometheus | None, title: str, labels: dict[str, str]) -> None:
    """Wait until a panel of the dashboard shows a series with these labels above 0."""

    def shown() -> bool:
        assert prometheus is not None
        found = [each for each in prometheus.panel(title) if labels.items() <= each["metric"].items()]
        return any(float(each["value"][1]) > 0 for each in found)

    if prometheus is not None:
        wait_until(shown, f"the panel {title} to show {labels}")


def _keep_the_pods_of_one_zone(sandbox: Sandbox) -> None:
    """Let the scale-down delete pods of other zones, so that it certainly violates the constraint."""
    for pod in pods(sandbox, SHOP, "web"):
        if pod["spec"]["nodeName"].startswith("node-a"):
            path = f"/api/v1/namespaces/{SHOP}/pods/{pod['metadata']['name']}"
            sandbox.api.request("PATCH", path, {"metadata": {"annotations": {COST: "100"}}})


def _check_scraped_objects(sandbox: Sandbox) -> None:
    monitors = f"/apis/monitoring.coreos.com/v1/namespaces/{OPERATOR}/servicemonitors"
    (monitor,) = sandbox.api.get(monitors)["items"]
    assert monitor["metadata"]["labels"]["release"] == "monitoring"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True  # as Prometheus is configured in this test
    selector = ",".join(f"{name}%3D{value}" for name, value in monitor["spec"]["selector"]["matchLabels"].items())
    (service,) = sandbox.api.get(f"/api/v1/namespaces/{OPERATOR}/services?labelSelector={selector}")["items"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    boards = sandbox.api.get(f"/api/v1/namespaces/{OPERATOR}/configmaps?labelSelector=grafana_dashboard%3D1")["items"]
    (board,) = (json.loads(text) for each in boards for text in each["data"].values())
    assert board == DASHBOARD
    page = PAGE.read_text(encoding="utf-8")
    assert f"the dashboard *{board['title']}* in Grafana" in page
    titles = {panel["title"] for panel in board["panels"]}
    assert {"Skew above maxSkew", "Evictions by answer"} <= titles
    assert all(f"*{title}*" in " ".join(page.split()) for title in ("Skew above maxSkew", "Evictions by answer"))
