"""`respread ui` follows a real cluster, with the right to list and watch and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    scale,
    wait_for_ready_pods,
    wait_until,
)

NAMESPACE = "shop"
VIEWER = "system:serviceaccount:shop:viewer"
LONG_SECONDS = 120
"""Longer than anything takes on a slow machine."""


@pytest.fixture(scope="module")
def cluster(binaries: Binaries) -> Iterator[Sandbox]:
    """A cluster with a Deployment that is spread evenly, and a ServiceAccount that may only list and watch."""
    with Sandbox.start(SandboxOptions(nodes=6, zones=3, audit=True), binaries=binaries) as sandbox:
        prepare(sandbox)
        yield sandbox


def prepare(sandbox: Sandbox) -> None:
    sandbox.create_namespace(NAMESPACE)
    create_deployment(sandbox, NAMESPACE, deployment("web", replicas=6, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, NAMESPACE, "web", 6)
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    sandbox.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "viewer"}})
    sandbox.api.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": "viewer"}, "rules": rules})
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "viewer"}],
    }
    sandbox.api.request("POST", f"{rbac}/clusterrolebindings", binding)


class Page:
    """A running `respread ui`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "respread.cli.main", "ui", "--no-open", "--kubeconfig", str(kubeconfig)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        said, _, self.url = self._process.stdout.readline().strip().partition(" ")
        assert said == "Serving", self._process.wait(LONG_SECONDS)

    def get(self, path: str) -> Any:
        answer = requests.get(self.url + path, timeout=LONG_SECONDS)
        answer.raise_for_status()
        return answer.json()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield updates as they arrive; the first item is empty, after which no change is missed."""
        with requests.get(self.url + "api/changes", timeout=LONG_SECONDS, stream=True) as stream:
            name = ""
            for line in stream.iter_lines(chunk_size=1):
                field, _, value = line.decode().partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name in {"version", "update"}:
                    yield json.loads(value) if name == "update" else {}

    def end(self) -> int:
        self._process.terminate()
        self._process.communicate(timeout=LONG_SECONDS)
        return self._process.returncode


@pytest.fixture
def page(cluster: Sandbox) -> Iterator[Page]:
    running = Page(cluster.kubeconfig_for_service_account(NAMESPACE, "viewer"))
    yield running
    assert running.end() == 0


def web_counts(update: dict[str, Any]) -> list[int] | None:
    """Return the counts of the Deployment's zone constraint, if an update has them."""
    for row in update.get("change", {}).get("rows", ()):
        if row["group"]["workloads"] == [{"kind": "Deployment", "name": "web"}]:
            return sorted(row["group"]["counts"].values())
    return None


def test_a_scale_down_appears_at_once_with_the_moves_that_restore_it(cluster: Sandbox, page: Page) -> None:
    before = page.get("api/cluster")
    (row,) = before["overview"]["rows"]
    assert before["live"]
    assert row["group"]["counts"] == {"zone-a": 2, "zone-b": 2, "zone-c": 2}
    updates = page.events()
    assert next(updates) == {}
    begun = time.monotonic()
    scale(cluster, NAMESPACE, "web", 9)
    counts = None
    while counts != [3, 3, 3]:
        counts = web_counts(next(updates)) or counts
        assert time.monotonic() - begun < LONG_SECONDS
    scale(cluster, NAMESPACE, "web", 6)
    while sum(counts or ()) != 6:
        counts = web_counts(next(updates)) or counts
        assert time.monotonic() - begun < LONG_SECONDS
    assert page.get("api/workload?namespace=shop&workload=deploy/web")["explain"]["kind"] == "ExplainReport"


def test_a_lost_connection_is_reported_and_missed_changes_follow(cluster: Sandbox, page: Page) -> None:
    updates = page.events()
    assert next(updates) == {}
    cluster.stop_component("kube-apiserver")
    lost = next(update["lost"] for update in updates if "lost" in update)
    assert "can't be reached" in lost["message"] or "broke" in lost["message"]
    cluster.start_component("kube-apiserver")
    assert next(update for update in updates if "lost" not in update)
    scale(cluster, NAMESPACE, "web", 12)
    wait_for_ready_pods(cluster, NAMESPACE, "web", 12)

    def shown() -> int:
        page_now = page.get("api/cluster")
        return sum(sum(row["group"]["counts"].values()) for row in page_now["overview"]["rows"])

    wait_until(lambda: shown() == 12, "the pods made after the connection came back are shown")
    assert page.get("api/cluster")["lost"] is None


def test_the_ui_sends_only_read_requests(cluster: Sandbox) -> None:
    before = cluster.audit_log.stat().st_size  # An API server that has just started forbids everything for a moment.
    page = Page(cluster.kubeconfig_for_service_account(NAMESPACE, "viewer"))
    page.get("api/cluster")
    page.get("api/nodes")
    answer = requests.post(page.url + "api/simulate", json={"scale": ["shop/deploy/web=3"]}, timeout=LONG_SECONDS)
    assert answer.json()["report"]["scaled"]
    assert page.end() == 0
    verbs, refused = set(), set()
    for line in cluster.audit_log.read_bytes()[before:].splitlines():
        entry = msgspec.json.decode(line)
        if entry["user"]["username"] == VIEWER:
            verbs.add(entry["verb"])
            if entry.get("responseStatus", {}).get("code") == 403:
                refused.add(entry["requestURI"])
    assert verbs == {"get", "list", "watch"}  # get: /version
    assert refused == set()
