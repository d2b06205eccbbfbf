"""The commands of the quick start work: they install Respread, plan, and show an eviction."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from respread.cli.main import respread
from respread_sandbox import Sandbox
from tests.integration.helm import CHART, Helm, helm_for
from tests.integration.operator_process import OperatorProcess
from tests.integration.prevention_cluster import COST
from tests.integration.workloads import pods, wait_until

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "quick-start.md"
OPERATOR: Final = "respread-system"
SHOP: Final = "shop"
POLICY: Final = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
NEEDS_OTHER_CHARTS: Final = re.compile(r"prometheus-community|-n monitoring\b")
"""Commands that need Prometheus and Grafana. test_prometheus.py runs the queries of the dashboard on a Prometheus."""
MONITOR: Final = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
"""A stub for the CRDs of the Prometheus operator."""

pytestmark = pytest.mark.timeout(1800)
"""The time limit. Helm is built first if it is not in the cache."""


def commands(section: str) -> Iterator[list[str]]:
    """Yield the words of each command that a section of the page shows in its shell blocks."""
    (text,) = re.findall(
        rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for _, block in re.findall(r"^( *)```sh\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if not NEEDS_OTHER_CHARTS.search(line):
                yield shlex.split(line)


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
    sandbox.apply(MONITOR)
    with ExitStack() as ended:
        reader = Reader(sandbox, helm_for(sandbox, tmp_path), tmp_path, ended)
        installing = list(commands("Install it with Helm"))
        assert len(installing) == 2
        for words in installing:
            shown = reader.types(words)
        assert re.search(r"^default +DryRun +True ", shown, re.MULTILINE)  # Helm waits for the plan
        operator = reader.operator
        assert operator is not None

        _check_eviction(sandbox, reader)
        for words in commands("Look at your own cluster"):
            reader.types(words)
        assert operator.metric('respread_evictions_total{result="Evicted"}') >= 1  # the metric of the dashboard's panel
        assert operator.stop() == 0


def _check_eviction(sandbox: Sandbox, reader: Reader) -> None:
    for words in commands("See an eviction on a dashboard"):
        if words[:2] == ["kubectl", "events"]:
            wait_until(lambda words=words: "EvictedForSpread" in reader.types(words), "the Event of an eviction")  # type: ignore[misc]  # no types for defaults
            continue
        if words[:2] in (["kubectl", "delete"], ["helm", "uninstall"]):
            continue
        if words[:2] == ["kubectl", "scale"]:
            _keep_the_pods_of_one_zone(sandbox)
        shown = reader.types(words)
        if words[0] == "helm":
            _check_scraped_objects(sandbox)
            # With the times of the page, this would take a minute and a half longer.
            sooner = {"spec": {"quietPeriod": "1s", "victims": {"minAge": "0s"}}}
            sandbox.api.request("PATCH", POLICY, sooner)
        if words[:2] == ["respread", "skew"]:
            assert "deploy/web" in shown


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
    boards = sandbox.api.get(f"/api/v1/namespaces/{OPERATOR}/configmaps?labelSelector=grafana_dashboard%3D1")["items"]
    (board,) = (json.loads(text) for each in boards for text in each["data"].values())
    page = PAGE.read_text(encoding="utf-8")
    assert f"the dashboard *{board['title']}* in Grafana" in page
    titles = {panel["title"] for panel in board["panels"]}
    assert {"Skew above maxSkew", "Evictions by answer"} <= titles
    assert all(f"*{title}*" in " ".join(page.split()) for title in ("Skew above maxSkew", "Evictions by answer"))
