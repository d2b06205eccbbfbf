"""Respread and its page start in real pods, as chart and manifests install them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.faults.operators import NAMESPACE
from tests.integration.cli.ui_process import LONG_SECONDS
from tests.integration.workloads import is_ready
from tests.node.installation import Installation, moment
from tests.node.programs import PAGE_IMAGE, Programs
from tests.node.workloads import ZONES, create, leave_in_zone, on_simulated_nodes
from tests.processes import wait_until
from tests.shown_commands import commands

USER = "65532"
DOCS: Final = Path(__file__).parents[2] / "docs"


def test_two_replicas_are_ready_on_two_nodes_without_a_restart_or_warning(installation: Installation) -> None:
    sandbox = installation.cluster.sandbox
    installation.uninstall()
    sandbox.kubectl("delete", "events", "--all", f"--namespace={NAMESPACE}")
    installation.install()
    assert len({pod["spec"]["nodeName"] for pod in installation.pods()}) == 2
    assert set(installation.restarts().values()) == {0}
    slow = [pod["metadata"]["name"] for pod in installation.pods() if starts_slowly(installation, pod)]
    expected = tuple(f"Pod {name}: Unhealthy {probe}" for name in slow for probe in ("Startup", "Readiness"))
    warnings = [each for each in installation.warnings() if not each.startswith(expected)]
    # A kubelet that has not read a ConfigMap of the pod in time tries again.
    assert [each for each in warnings if "failed to sync configmap cache: timed out" not in each] == []


def starts_slowly(installation: Installation, pod: dict[str, Any]) -> bool:
    """Return whether the first probes came too early, because the machine is busy."""
    (container,), (status,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
    first_probe = moment(status["state"]["running"]["startedAt"]) + container["startupProbe"]["initialDelaySeconds"]
    log = installation.cluster.sandbox.kubectl("logs", pod["metadata"]["name"], f"--namespace={NAMESPACE}")
    (serving,) = (line for line in map(json.loads, log.splitlines()) if line["event"].startswith("Serving"))
    (ready,) = (each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == "Ready")
    # Times of statuses are in whole seconds. Readiness is probed every five.
    return bool(moment(serving["timestamp"]) > first_probe - 1 or moment(ready) > first_probe + 3)


def test_the_kernel_gives_the_processes_no_privilege(installed: Installation) -> None:
    for pod in installed.pods():
        check_privileges(installed, pod)


def check_privileges(installed: Installation, pod: dict[str, Any]) -> None:
    """Check that a pod's process has no privilege and can't write to its root file system."""
    (process,) = installed.node_of(pod).process_ids(pod)
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert set(status["Uid"].split()) == {USER}
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    mounts = Path(f"/proc/{process}/mounts").read_text(encoding="utf-8").splitlines()
    (root,) = (options for _, at, _, options, *_ in map(str.split, mounts) if at == "/")
    assert "ro" in root.split(",")


def test_every_node_reads_metrics_through_the_service(installed: Installation) -> None:
    service = installed.cluster.sandbox.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/respread")
    for node in installed.cluster.nodes.values():
        metrics = node.get(f"http://{service['spec']['clusterIP']}:8080/metrics")
        assert "respread_leader" in metrics


@pytest.fixture(scope="module")
def page(installation: Installation, programs: Programs) -> Installation:
    """Respread with its page, which nobody has looked at yet."""
    for node in installation.cluster.nodes.values():
        node.import_image(programs.page, PAGE_IMAGE)
    installation.cluster.sandbox.kubectl("delete", "events", "--all", f"--namespace={NAMESPACE}")
    installation.install("ui.enabled=true")
    return installation


@contextmanager
def forwarded(installation: Installation) -> Iterator[Callable[[str], Any]]:
    """Forward the page as docs/ui.md says. Yield a function that returns its answer to a path."""
    ((_, *typed),) = (words for words in commands(DOCS / "ui.md", "In the cluster") if words)
    sandbox = installation.cluster.sandbox
    command = [str(sandbox.kubectl_path), f"--kubeconfig={sandbox.kubeconfig}", *typed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as kubectl:
        assert kubectl.stdout is not None
        forwarding = re.fullmatch(r"Forwarding from (127\.0\.0\.1:\d+) -> 8765\n", kubectl.stdout.readline())
        assert forwarding is not None, "kubectl has forwarded nothing"

        def get(path: str) -> Any:
            answer = requests.get(f"http://{forwarding[1]}/{path}", timeout=LONG_SECONDS)
            answer.raise_for_status()
            return answer.json() if path else answer.text

        try:
            yield get
        finally:
            kubectl.terminate()


def zones_of(get: Callable[[str], Any], namespace: str) -> dict[str, int]:
    """Return the pods per zone of the only workload of a namespace, as the page shows them, and none before it does."""
    rows = get("api/cluster")["overview"]["rows"]
    return dict(*(row["group"]["counts"] for row in rows if row["group"]["namespace"] == namespace))


def test_the_page_follows_the_cluster_behind_a_forwarded_port_and_after_a_restart(
    page: Installation, namespace: str
) -> None:
    sandbox = page.cluster.sandbox
    create(sandbox, namespace, [on_simulated_nodes("web", 6)])
    (pod,) = page.page_pods()
    assert is_ready(pod)
    with forwarded(page) as get:
        assert "<title>" in get("")
        assert get("api/cluster")["live"]
        wait_until(lambda: zones_of(get, namespace) == dict.fromkeys(ZONES, 2), "the page to show the Deployment")
        staying = leave_in_zone(sandbox, namespace, "web", "zone-c")
        left = {**dict.fromkeys(ZONES, 0), "zone-c": staying}
        wait_until(lambda: zones_of(get, namespace) == left, "the page to show the scale-down")
        assert get("api/history")["unreadable"] is None

    (process,) = page.node_of(pod).process_ids(pod)
    os.kill(process, signal.SIGKILL)

    def again() -> bool:
        (now,) = page.page_pods()
        return now["status"]["containerStatuses"][0]["restartCount"] == 1 and is_ready(now)

    wait_until(again, lambda: f"the page to be Ready again:\n{page.describe()}")
    with forwarded(page) as get:
        assert zones_of(get, namespace) == left
    warned = [each for each in page.warnings() if each.startswith("Pod respread-ui-")]
    assert all("the cluster is still being read" in each or "BackOff" in each for each in warned), warned


TRY_TO_WRITE: Final = """
import json, os, pathlib, ssl, urllib.error, urllib.request as r
folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
token, trusted = (folder / "token").read_text(), ssl.create_default_context(cafile=folder / "ca.crt")
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
def ask(method, path, body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    try:
        asked = r.Request(server + path, body and json.dumps(body).encode(), headers, method=method)
        return r.urlopen(asked, context=trusted).status
    except urllib.error.HTTPError as error:
        return error.code
def writes(path):
    try:
        pathlib.Path(path, "written").touch()
        return True
    except OSError:
        return False
pod = "/api/v1/namespaces/NAMESPACE/pods/POD"
policy = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "POD", "namespace": "NAMESPACE"}}
print(json.dumps({
    "list pods": ask("GET", "/api/v1/pods?limit=1"),
    "evict": ask("POST", pod + "/eviction", eviction),
    "delete": ask("DELETE", pod),
    "patch": ask("PATCH", pod, {"metadata": {"labels": {"a": "b"}}}),
    "patch policy": ask("PATCH", policy, {"spec": {"mode": "Enforce"}}),
    "read Secrets": ask("GET", "/api/v1/secrets"),
    "files": [each for each in ("/", "/tmp", "/opt/respread", "/var/tmp") if writes(each)],
}))
"""
"""Python code for the page's container, which prints the status of each answer, and where it could write."""


def test_the_page_can_write_neither_files_nor_objects(page: Installation) -> None:
    sandbox = page.cluster.sandbox
    (pod,) = page.page_pods()
    check_privileges(page, pod)
    name = pod["metadata"]["name"]
    code = TRY_TO_WRITE.replace("NAMESPACE", NAMESPACE).replace("POD", name)
    said = json.loads(sandbox.kubectl("exec", name, f"--namespace={NAMESPACE}", "--", "python3", "-c", code))
    assert said.pop("files") == []
    assert said.pop("list pods") == HTTPStatus.OK
    assert set(said.values()) == {HTTPStatus.FORBIDDEN}, said
