"""How fast the spread of a real cluster is restored, and how long the rest takes as users see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import Sandbox
from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.integration.operator_process import OperatorProcess, policy
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
    wait_until,
)

DONE = {"evictionsLeft": 0, "remaining": "0s", "seconds": 0, "boundBy": ""}
PATH = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"


def planned(sandbox: Sandbox) -> dict[str, Any]:
    """Return what `respread plan` says."""
    done = CliRunner().invoke(respread, ["plan", "-o", "json"], env={"KUBECONFIG": str(sandbox.kubeconfig)})
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def shown(sandbox: Sandbox) -> dict[str, Any]:
    """Return the columns that `kubectl get` shows of the policy test."""
    client = sandbox.api.client
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = client.session.get(f"{client.url}{PATH}/test", headers=accept, timeout=10).json()
    (row,) = table["rows"]
    return dict(zip([each["name"] for each in table["columnDefinitions"]], row["cells"], strict=True))


def test_status_columns_and_plan_say_how_long_the_rest_takes(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox = lay_out(installed_sandbox, 2)
    sandbox.create_namespace("shop")
    create_deployment(sandbox, "shop", deployment("web", replicas=30, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, "shop", "web", 30)
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(2, zone=zone)
    sandbox.apply(json.dumps(policy("test", mode="DryRun", limits={"inFlightPerWorkload": 1, "inFlightPerNode": 10})))

    def pace() -> dict[str, Any]:
        found: dict[str, Any] = sandbox.api.get(f"{PATH}/test").get("status", {}).get("pace", {})
        return found

    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        wait_until(lambda: pace().get("evictionsLeft") == 20, "the status to say how long 20 evictions take")
        said = pace()
        assert said["boundBy"] == "inFlightPerWorkload 1"
        # Simulated pods are Ready within seconds, and Kubernetes stores whole seconds.
        assert 20 <= said["seconds"] <= 20 * 10
        assert planned(sandbox)["pace"] == {"seconds": said["seconds"], "boundBy": said["boundBy"]}
        columns = shown(sandbox)
        assert (columns["Remaining"], columns["Bound-By"]) == (said["remaining"], said["boundBy"])

        five = {"inFlightPerWorkload": 5, "inFlightPerNode": 10}
        sandbox.apply(json.dumps(policy("test", mode="DryRun", limits=five)))
        # The limits of the policy that the manifests contain bound all evictions of the pods that it selects.
        other = " of policy default"
        wait_until(
            lambda: pace().get("boundBy", "").endswith(other), lambda: f"the status to follow the limits: {pace()}"
        )
        assert pace()["seconds"] < said["seconds"]
        sandbox.apply(json.dumps(policy("test", limits=five)))
        wait_until(lambda: pace() == DONE, lambda: f"nothing to be left; it says {pace()}")
    assert len(pods(sandbox, "shop")) == 30


def test_pods_with_the_default_constraints_are_moved_at_the_same_time(
    installed_sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox = lay_out(installed_sandbox, 4)
    sandbox.create_namespace("shop")
    create_deployment(sandbox, "shop", deployment("web", replicas=24, constraints=[]))
    wait_for_ready_pods(sandbox, "shop", "web", 24)
    added = {name for zone in ("zone-b", "zone-c") for name in sandbox.nodes.add(4, zone=zone)}
    wait_until(lambda: added <= sandbox.nodes.ready(), "the new nodes to be Ready")
    soft = {"whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"]}
    limits = {"inFlight": 50, "inFlightPerNode": 50, "inFlightPerWorkload": "100%"}
    sandbox.apply(json.dumps(policy("test", constraints=soft, limits=limits)))
    moves = planned(sandbox)["moves"]
    assert [move["wave"] for move in moves] == [1] * 13

    def is_restored() -> bool:
        counts = pods_per_domain(sandbox, "shop", "web").values()
        return sum(counts) == 24 and len(counts) == 3 and max(counts) - min(counts) <= 5

    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        wait_until(is_restored, lambda: f"the spread to be restored: {operator.log}")


@pytest.mark.parametrize("grace_seconds", [60, 600])
def test_scale_downs_are_restored_while_all_deleted_pods_still_terminate(
    installed_sandbox: Sandbox, tmp_path: Path, grace_seconds: int
) -> None:
    sandbox = lay_out(installed_sandbox, 2, 2, 2)
    sandbox.create_namespace("shop")
    slowly = {"annotations": {TERMINATE_AFTER_ANNOTATION: str(grace_seconds)}}
    names = ["web", "api", "mail"]
    for name in names:
        constraints = [constraint(ZONE, name)]
        manifest = deployment(name, replicas=12, constraints=constraints, terminationGracePeriodSeconds=grace_seconds)
        manifest["spec"]["template"]["metadata"].update(slowly)
        create_deployment(sandbox, "shop", manifest)
    for name in names:
        wait_for_ready_pods(sandbox, "shop", name, 12)
    of_zone = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in nodes(sandbox)}
    costs = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "100"}}}
    for pod in pods(sandbox, "shop"):
        if of_zone[pod["spec"]["nodeName"]] == "zone-a":
            sandbox.api.request("PATCH", f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}", costs)
    # One pod of a Deployment at a time: each eviction follows one whose pod still terminates.
    sandbox.apply(json.dumps(policy("test", limits={"inFlightPerWorkload": 1})))

    def terminating(name: str) -> int:
        return sum("deletionTimestamp" in pod["metadata"] for pod in pods(sandbox, "shop", name))

    def is_restored(name: str) -> bool:
        counts = pods_per_domain(sandbox, "shop", name)
        return sorted(counts.values()) == [2, 2, 2]

    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        for name in names:
            scale(sandbox, "shop", name, 6)  # of [4, 4, 4], it leaves the 4 of zone-a and 2 others
        wait_until(lambda: all(map(is_restored, names)), lambda: f"the spread to be restored: {operator.log}")
        # 6 were scaled down, and 2 more evicted. None is gone yet.
        assert {name: terminating(name) for name in names} == dict.fromkeys(names, 8)


def nodes(sandbox: Sandbox) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = sandbox.api.get("/api/v1/nodes")["items"]
    return items
