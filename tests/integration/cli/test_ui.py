"""`respread ui` follows a real cluster with only the permissions to list and watch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import yaml

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from tests.integration.cli.ui_process import LONG_SECONDS, Page
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
    add_account(sandbox, "viewer", "*")


def add_account(sandbox: Sandbox, name: str, *api_groups: str) -> None:
    """Add a ServiceAccount that may list and watch everything of some API groups."""
    rules = [{"apiGroups": api_groups, "resources": ["*"], "verbs": ["list", "watch"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    sandbox.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}})
    sandbox.api.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}],
    }
    sandbox.api.request("POST", f"{rbac}/clusterrolebindings", binding)


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


def test_events_of_the_operator_are_shown_and_a_missing_permission_is_reported(cluster: Sandbox, page: Page) -> None:
    path = "api/events?namespace=shop&workload=deploy/web"
    assert page.get(path) == {"events": [], "unreadable": None}
    for number, reporter in enumerate(("respread.dev/respread", "somebody.else/entirely")):
        event = {
            "metadata": {"name": f"web.{number}", "namespace": NAMESPACE},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal",
            "reason": "EvictedForSpread",
            "action": "Evict",
            "note": f"from {reporter}",
            "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": NAMESPACE, "name": "web"},
            "reportingController": reporter,
            "reportingInstance": "test",
        }
        cluster.api.request("POST", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events", event)
    wait_until(lambda: page.get(path)["events"] != [], "the Event to be shown")
    (event,) = page.get(path)["events"]
    assert (event["reason"], event["note"]) == ("EvictedForSpread", "from respread.dev/respread")
    add_account(cluster, "narrow", "", "apps", "policy", "storage.k8s.io", "scheduling.k8s.io", "respread.dev")
    narrow = Page(cluster.kubeconfig_for_service_account(NAMESPACE, "narrow"))
    unreadable = "You are not allowed to list Events in namespace shop, so they are not shown."
    assert narrow.get(path) == {"events": [], "unreadable": unreadable}
    assert narrow.get("api/workload?namespace=shop&workload=deploy/web")["explain"]["kind"] == "ExplainReport"
    assert narrow.end() == 0


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
    wait_until(lambda: page.get("api/cluster")["lost"] is None, "no kind to be missed any more")


def test_the_ui_sends_only_read_requests(cluster: Sandbox) -> None:
    before = cluster.files.audit_log.stat().st_size  # A new API server forbids everything for a moment.
    page = Page(cluster.kubeconfig_for_service_account(NAMESPACE, "viewer"))
    page.get("api/cluster")
    page.get("api/nodes")
    answer = requests.post(page.url + "api/simulate", json={"scale": ["shop/deploy/web=3"]}, timeout=LONG_SECONDS)
    assert answer.json()["report"]["scaled"]
    assert page.end() == 0
    verbs, refused = set(), set()
    for line in cluster.files.audit_log.read_bytes()[before:].splitlines():
        entry = msgspec.json.decode(line)
        if entry["user"]["username"] == VIEWER:
            verbs.add(entry["verb"])
            if entry.get("responseStatus", {}).get("code") == 403:
                refused.add(entry["requestURI"])
    assert verbs == {"get", "list", "watch"}  # get: /version
    assert refused == set()


def test_each_context_has_the_history_of_its_own_prometheus(cluster: Sandbox, tmp_path: Path) -> None:
    """Nobody listens where they are, so the page says which one it asked."""
    config = yaml.safe_load(cluster.kubeconfig_for_service_account(NAMESPACE, "viewer").read_text(encoding="utf-8"))
    (entry,) = config["contexts"]
    config["contexts"] += [{**entry, "name": "west"}, {**entry, "name": "without"}]
    (kubeconfig := tmp_path / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
    first, west = "http://127.0.0.1:9", "http://127.0.0.1:8"
    page = Page(kubeconfig, f"--prometheus={first}", f"--prometheus=west={west}")

    def choose(context: str) -> str:
        requests.post(f"{page.url}api/context", json={"context": context}, timeout=LONG_SECONDS).raise_for_status()
        return str(page.get("api/history")["unreadable"])

    assert f" at {first}: " in page.get("api/history")["unreadable"]
    assert f" at {west}: " in choose("west")
    assert choose("without") == "None"
    assert f" at {first}: " in choose(entry["name"])
    assert page.end() == 0
