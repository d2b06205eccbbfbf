"""Default constraints of the scheduler's configuration: applied by a real scheduler, and restored by the operator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from tests.integration.operator_process import OperatorProcess, evictions, policy, refused
from tests.integration.prevention_cluster import all_ready, costs, patches, prevent
from tests.integration.reused_sandbox import ReusedSandbox, lay_out, start_reused_sandbox
from tests.integration.workloads import deployment, pods_per_domain, wait_for_ready_pods, wait_until
from tests.scheduler_configurations import HARD_DEFAULTS

PATHS = {
    "web": "/apis/apps/v1/namespaces/shop/deployments",
    "set": "/apis/apps/v1/namespaces/shop/statefulsets",
    "controller": "/api/v1/namespaces/shop/replicationcontrollers",
}
"""By name, where a workload of each kind is created."""


def without_constraints(name: str) -> dict[str, Any]:
    manifest = deployment(name, replicas=6)
    if name == "set":
        manifest["kind"] = "StatefulSet"
        manifest["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    elif name == "controller":
        manifest |= {"apiVersion": "v1", "kind": "ReplicationController"}
        manifest["spec"]["selector"] = {"app": name}
    return manifest


@pytest.fixture(scope="module")
def hard_defaults(binaries: Binaries) -> Iterator[ReusedSandbox]:
    """A control plane whose scheduler has hard default constraints."""
    options = SandboxOptions(nodes=0, audit=True, scheduler_configuration=HARD_DEFAULTS)
    with start_reused_sandbox(options, binaries) as running:
        yield running


@pytest.fixture
def cluster(hard_defaults: ReusedSandbox) -> Sandbox:
    """The control plane of `hard_defaults`, with a namespace and without nodes."""
    sandbox = hard_defaults.reset()
    sandbox.create_namespace("shop")
    return sandbox


@pytest.fixture
def crowded(cluster: Sandbox) -> Sandbox:
    """A workload of each kind with all pods in the first of three zones."""
    sandbox = lay_out(cluster, 4)
    for name, path in PATHS.items():
        sandbox.api.request("POST", path, without_constraints(name))
    for name in PATHS:
        wait_for_ready_pods(sandbox, "shop", name, 6)
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)
    return sandbox


def balanced(sandbox: Sandbox, name: str) -> bool:
    counts = pods_per_domain(sandbox, "shop", name)
    return len(counts) == 3 and max(counts.values()) - min(counts.values()) <= 1


def report_of(sandbox: Sandbox, command: str, *options: str) -> dict[str, Any]:
    """Return the output of a command for the cluster."""
    words = [command, "-o", "json", "--kubeconfig", str(sandbox.kubeconfig), *options]
    done = subprocess.run([sys.executable, "-m", "respread_cli.main", *words], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_pods_without_constraints_follow_the_default_constraints(crowded: Sandbox, tmp_path: Path) -> None:
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text(HARD_DEFAULTS)
    crowded.apply(json.dumps(policy()))
    options = ("--scheduler-configuration", str(configuration))
    assert len(report_of(crowded, "plan", *options)["moves"]) == 4 * len(PATHS)
    assert [each["skew"] for each in report_of(crowded, "skew", "-n", "shop", *options)["groups"]] == [6] * len(PATHS)
    with OperatorProcess(crowded, tmp_path, "--scheduler-configuration", str(configuration)) as operator:
        wait_until(lambda: all(balanced(crowded, name) for name in PATHS), "all workloads to be spread")
        for name in PATHS:
            wait_for_ready_pods(crowded, "shop", name, 6)
        # [6, 0, 0] with maxSkew 1 takes 4 moves for each kind of owner.
        assert len(evictions(crowded)) == 4 * len(PATHS)
        improved = 'respread_eviction_outcomes_total{outcome="Improved",policy="test"}'
        wait_until(lambda: operator.metric(improved) >= 4, "replacements to be Ready where they help")
        assert operator.stop() == 0
    assert refused(crowded) == []
    assert not any(line["level"] in {"warning", "error", "critical"} for line in operator.lines())


def test_without_the_configuration_default_constraints_are_unknown(crowded: Sandbox, tmp_path: Path) -> None:
    crowded.apply(json.dumps(policy()))
    with OperatorProcess(crowded, tmp_path) as operator:
        operator.wait_until_ready()
        status = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/test"
        wait_until(lambda: "summary" in crowded.api.get(status).get("status", {}), "a status")
        assert crowded.api.get(status)["status"]["summary"]["violated"] == 0
        assert evictions(crowded) == []
    asked = [line for line in crowded.files.audit_log.read_text().splitlines() if "respread-system:respread" in line]
    assert not any('"resource":"replicasets"' in line for line in asked), "no owner is read that nothing depends on"


def test_scale_downs_keep_the_default_constraints_of_the_scheduler(cluster: Sandbox, tmp_path: Path) -> None:
    lay_out(cluster, 4, 4, 4)
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text(HARD_DEFAULTS)
    prevent(cluster)
    with OperatorProcess(cluster, tmp_path, "--scheduler-configuration", str(configuration)) as operator:
        operator.wait_until_ready()
        for name, path in PATHS.items():
            cluster.api.request("POST", path, without_constraints(name))
            cluster.api.request("PATCH", f"{path}/{name}/scale", {"spec": {"replicas": 12}})
        by_costs = {"web": 12, "controller": 12}
        wait_until(lambda: all_ready(cluster, by_costs, ranked=True), "all pods to be ranked")
        wait_for_ready_pods(cluster, "shop", "set", 12)
        for replicas in (8, 5, 2):
            for name in by_costs:
                cluster.api.request("PATCH", f"{PATHS[name]}/{name}/scale", {"spec": {"replicas": replicas}})
                by_costs[name] = replicas
            wait_until(lambda: all_ready(cluster, by_costs, ranked=False), "pods to be gone")
            assert [balanced(cluster, name) for name in by_costs] == [True, True]
        assert operator.stop() == 0
    assert costs(cluster, "set") == {}, "a StatefulSet does not look at them"
    assert set(patches(cluster).values()) == {1}
    assert refused(cluster) == []
