"""Respread starts in real pods, as chart and manifests install it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.faults.operators import NAMESPACE
from tests.node.installation import Installation, moment

USER = "65532"


def test_two_replicas_are_ready_on_two_nodes_without_a_restart_or_warning(installation: Installation) -> None:
    sandbox = installation.cluster.sandbox
    installation.uninstall()
    sandbox.kubectl("delete", "events", "--all", f"--namespace={NAMESPACE}")
    installation.install()
    assert len({pod["spec"]["nodeName"] for pod in installation.pods()}) == 2
    assert set(installation.restarts().values()) == {0}
    slow = [pod["metadata"]["name"] for pod in installation.pods() if starts_slowly(installation, pod)]
    expected = tuple(f"Pod {name}: Unhealthy {probe}" for name in slow for probe in ("Startup", "Readiness"))
    assert [each for each in installation.warnings() if not each.startswith(expected)] == []


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
