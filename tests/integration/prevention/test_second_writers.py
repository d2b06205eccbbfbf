"""Another writer of pod deletion costs on a real control plane: Respread gives way and keeps costs where possible."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from respread.prevention.contests import WAIT, WAIT_IF_REPLACING
from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from tests.faults.rounds import in_the_background
from tests.integration.operator_process import OperatorProcess, evictions, policy, refused
from tests.integration.prevention_cluster import COST, RIGHT, all_ready, costs, create, excess, patched_at, patches
from tests.integration.records import record
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import ZONE, pods, scale, wait_until

POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/test"
PERIOD_SECONDS = 1.0
"""How often the other writer changes the pods. Karpenter does so once a minute."""


def other_writer(
    sandbox: Sandbox, app: str, cost: Callable[[dict[str, Any]], str | None]
) -> AbstractContextManager[object]:
    """Return a context in which the costs of an app's pods become what `cost` returns, each time; None is none."""

    def write() -> None:
        for pod in pods(sandbox, "shop", app):
            name, wanted = pod["metadata"]["name"], cost(pod)
            if pod["metadata"].get("annotations", {}).get(COST) == wanted:
                continue
            path = f"/api/v1/namespaces/shop/pods/{name}?fieldManager=karpenter"
            try:
                sandbox.api.request("PATCH", path, {"metadata": {"annotations": {COST: wanted}}})
            except ApiError as error:
                if error.status != 404:  # the pod was deleted in the meantime
                    raise

    return in_the_background(write, PERIOD_SECONDS)


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    """Twelve nodes in three zones, with Respread installed and the permission to patch pods."""
    installed_sandbox.create_namespace("shop")
    installed_sandbox.apply(RIGHT)
    return lay_out(installed_sandbox, 4, 4, 4)


def prevent(sandbox: Sandbox, **prevention: str) -> None:
    """Apply a policy that prevents and does not evict, so that the skew of a scale-down stays visible."""
    sandbox.apply(json.dumps(policy(mode="DryRun", prevention={"podDeletionCost": "Enabled", **prevention})))


def condition(sandbox: Sandbox) -> dict[str, str]:
    """Return the policy's condition CostsContested; empty if it has none."""
    conditions: list[dict[str, str]] = sandbox.api.get(POLICY).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "CostsContested"), {})


def scale_downs(sandbox: Sandbox) -> dict[str, str]:
    """Return how `respread skew -o json` describes the scale-downs of each Deployment."""
    command = [sys.executable, "-m", "respread_cli.main", "skew", "-n", "shop", "-o", "json"]
    command += ["--kubeconfig", str(sandbox.kubeconfig)]
    shown = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert shown.returncode in {0, 1}, shown.stderr
    return {each["workload"]["name"]: each["reason"] for each in json.loads(shown.stdout)["protections"]}


def ours(sandbox: Sandbox, app: str) -> list[str]:
    """Return the app's pods with a cost that only Respread owns."""
    return [
        pod["metadata"]["name"]
        for pod in pods(sandbox, "shop", app)
        if {each["manager"] for each in pod["metadata"]["managedFields"] if COST in json.dumps(each)} == {"respread"}
    ]


def test_costs_that_another_writer_keeps_removing_are_written_less_often(cluster: Sandbox, tmp_path: Path) -> None:
    prevent(cluster)
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        create(cluster, "web", 9)
        create(cluster, "calm", 6)
        wait_until(lambda: all_ready(cluster, {"web": 9, "calm": 6}, ranked=True), "all pods to be ranked")
        begun = time.monotonic()
        with other_writer(cluster, "web", lambda _pod: None):
            wait_until(lambda: max(patches(cluster).values()) >= 3, "a third attempt")
            wait_until(lambda: condition(cluster).get("status") == "True", "the policy to say so")
            written = patches(cluster)
            seconds = time.monotonic() - begun
            assert scale_downs(cluster) == {"web": "CostsContested", "calm": "Protected"}
            assert operator.metric('respread_prevention_contested_replica_sets{policy="test"}') == 1
            lost = 'respread_prevention_costs_lost_total{policy="test"}'
            wait_until(lambda: operator.metric(lost) >= 9 * 2, "lost costs to be counted")
        assert "Deployment/web in shop" in condition(cluster)["message"]
        most = 1 + math.floor(math.log2(seconds / WAIT.first_seconds + 1))
        assert max(written.values()) <= most
        assert {written[pod["metadata"]["name"]] for pod in pods(cluster, "shop", "calm")} == {1}
        # The first deleted pods show that a scale-down has begun. The next ones are chosen by costs.
        scale(cluster, "shop", "web", 8)
        wait_until(lambda: all_ready(cluster, {"web": 8}, ranked=True), "costs for the next step")
        scale(cluster, "shop", "web", 4)
        wait_until(lambda: all_ready(cluster, {"web": 4}, ranked=False), "the scale-down")
        assert excess(cluster, ZONE)["web"] == 0
        assert operator.stop() == 0
    assert evictions(cluster) == []
    assert refused(cluster) == []


def test_a_new_leader_continues_the_wait(cluster: Sandbox, tmp_path: Path) -> None:
    prevent(cluster)
    with other_writer(cluster, "web", lambda _pod: None):
        with OperatorProcess(cluster, tmp_path) as operator:
            operator.wait_until_ready()
            create(cluster, "web", 6)
            wait_until(lambda: condition(cluster).get("status") == "True", "the policy to say so", seconds=180)
            assert operator.stop() == 0
        wait_until(lambda: not costs(cluster, "web"), "the other writer to have the last word")
    written = patches(cluster)
    (contested,) = record(cluster, POLICY)["contestedCosts"]
    until = datetime.fromisoformat(contested["until"])
    assert (contested["namespace"], contested["kind"], contested["name"]) == ("shop", "Deployment", "web")
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        contested_sets = 'respread_prevention_contested_replica_sets{policy="test"}'
        wait_until(lambda: operator.metric(contested_sets) == 1, "the new leader to know of it")
        time.sleep(3)  # on a slow machine, the wait may be over by then
        assert Counter(name for name, received in patched_at(cluster) if received < until) == written


def test_a_policy_may_allow_replacing_costs_of_others(cluster: Sandbox, tmp_path: Path) -> None:
    """The costs of the other writer would empty a zone first."""
    prevent(cluster, costsOfOthers="Replace")
    create(cluster, "web", 9, hostname=None)
    wait_until(lambda: all_ready(cluster, {"web": 9}, ranked=False), "all pods to be there")

    def empties_a_zone(pod: dict[str, Any]) -> str:
        return "-50" if pod["spec"]["nodeName"].startswith("node-a") else "50"

    with OperatorProcess(cluster, tmp_path) as operator:
        # Before that, a patch may cross with one of the other writer, and is repeated without a loss.
        wait_until(lambda: all_ready(cluster, {"web": 9}, ranked=True), "all pods to be ranked")
        begun = time.monotonic()
        with other_writer(cluster, "web", empties_a_zone):
            wait_until(lambda: "karpenter" in condition(cluster).get("message", ""), "the policy to name it")
            written, seconds = patches(cluster), time.monotonic() - begun
        assert max(written.values()) <= 1 + math.floor(math.log2(seconds / WAIT.first_seconds + 1))
        longest = WAIT_IF_REPLACING.longest_seconds
        wait_until(lambda: len(ours(cluster, "web")) == 9, "all costs to be ours", seconds=longest + 60)
        scale(cluster, "shop", "web", 4)
        wait_until(lambda: all_ready(cluster, {"web": 4}, ranked=False), "the scale-down")
        assert excess(cluster, ZONE)["web"] == 0
        assert operator.stop() == 0
