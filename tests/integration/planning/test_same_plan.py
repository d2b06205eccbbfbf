"""The operator makes the moves that `respread plan` shows for the same state, live and from a snapshot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from respread_sandbox import Sandbox
from respread_sandbox.components import CONTROLLER_MANAGER
from tests.integration.operator_process import OperatorProcess, evictions, policy, status_of
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import HOSTNAME, ZONE, constraint, create_deployment, deployment, wait_for_ready_pods
from tests.processes import wait_until

REPLICAS = {"web": 6, "api": 5, "queue": 3, "lone": 1}
AMPLE = dict.fromkeys(("inFlight", "inFlightPerNamespace", "inFlightPerNode", "inFlightPerWorkload"), 100)
"""Limits that allow all moves of a first wave."""


@pytest.fixture
def crowded(installed_sandbox: Sandbox) -> Sandbox:
    """Deployments whose pods are all in the first of three zones, and a policy that does not evict yet."""
    sandbox = lay_out(installed_sandbox, 4)
    sandbox.create_namespace("shop")
    for name, replicas in REPLICAS.items():
        both = [constraint(ZONE, name), constraint(HOSTNAME, name, when_unsatisfiable="ScheduleAnyway")]
        create_deployment(sandbox, "shop", deployment(name, replicas=replicas, constraints=both))
    for name, replicas in REPLICAS.items():
        wait_for_ready_pods(sandbox, "shop", name, replicas)
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)
    # The default policy of the manifests allows two evictions in flight per node, over all policies.
    sandbox.kubectl("delete", "clusterrebalancepolicies", "--all")
    sandbox.apply(json.dumps(policy(mode="DryRun", limits=AMPLE)))
    return sandbox


def respread(sandbox: Sandbox, *arguments: str) -> str:
    command = [sys.executable, "-m", "respread_cli.main", *arguments]
    connection = [] if "--snapshot" in arguments else ["--kubeconfig", str(sandbox.kubeconfig)]
    done = subprocess.run([*command, *connection], check=False, capture_output=True, text=True)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


def test_the_operator_evicts_exactly_the_pods_that_the_plan_moves_first(crowded: Sandbox, tmp_path: Path) -> None:
    plan = json.loads(respread(crowded, "plan", "-o", "json"))
    snapshot = tmp_path / "cluster.json"
    respread(crowded, "snapshot", str(snapshot))
    of_snapshot = json.loads(respread(crowded, "plan", "--snapshot", str(snapshot), "-o", "json"))
    assert of_snapshot["moves"] == plan["moves"]
    first = {move["pod"] for move in plan["moves"] if move["wave"] == 1}
    assert len(first) >= 3

    with OperatorProcess(crowded, tmp_path):
        wait_until(
            lambda: status_of(crowded).get("summary", {}).get("plannedEvictions") == len(plan["moves"]),
            "the operator to plan as many evictions",
        )
        assert evictions(crowded) == []
        # Without controllers, there are no replacements, so only the first wave of the plan can be evicted.
        crowded.stop_component(CONTROLLER_MANAGER)
        try:
            crowded.apply(json.dumps(policy(mode="Enforce", limits=AMPLE)))
            wait_until(lambda: len(evictions(crowded)) >= len(first), "the first evictions")
            assert {entry["objectRef"]["name"] for entry in evictions(crowded)} == first
        finally:
            crowded.start_component(CONTROLLER_MANAGER)
