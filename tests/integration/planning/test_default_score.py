"""What the scheduler's score of default constraints is worth: it prefers a domain, and other scores may outweigh it.

See docs/decisions/default-scores.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess, evictions, policy
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

COUNTED = {"foo": "bar"}
TRIES = 5


def counted(name: str, *constraints: dict[str, Any], replicas: int) -> dict[str, Any]:
    """Return a Deployment whose pods the constraint of `spread` counts."""
    manifest = deployment(name, replicas=replicas, constraints=constraints)
    manifest["spec"]["template"]["metadata"]["labels"] |= COUNTED
    return manifest


@pytest.fixture
def crowded(installed_sandbox: Sandbox) -> Sandbox:
    """One pod with a zone constraint, three without any that it counts, all in zone-a, and then a node in zone-b."""
    sandbox = lay_out(installed_sandbox, 1)
    sandbox.create_namespace("shop")
    only_counted = constraint(ZONE, "") | {"labelSelector": {"matchLabels": COUNTED}}
    create_deployment(sandbox, "shop", counted("spread", only_counted, replicas=1))
    create_deployment(sandbox, "shop", counted("free", replicas=3))
    wait_for_ready_pods(sandbox, "shop", "spread", 1)
    wait_for_ready_pods(sandbox, "shop", "free", 3)
    added = sandbox.nodes.add(1, zone="zone-b")
    wait_until(lambda: sandbox.nodes.ready().issuperset(added), "the node of zone-b to be Ready")
    sandbox.kubectl("delete", "clusterrebalancepolicies", "--all")
    return sandbox


def replace_one_in_zone_a(sandbox: Sandbox) -> dict[str, int]:
    """Evict a pod of `free` in zone-a as a descheduler would, and return its pods per zone when they are Ready."""
    victim = next(each for each in pods(sandbox, "shop", "free") if each["spec"]["nodeName"].startswith("node-a"))
    name, total = victim["metadata"]["name"], len(pods(sandbox, "shop", "free"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "shop"}}
    sandbox.api.request("POST", f"/api/v1/namespaces/shop/pods/{name}/eviction", eviction)
    wait_until(
        lambda: name not in {each["metadata"]["name"] for each in pods(sandbox, "shop", "free")}, f"{name} to be gone"
    )
    wait_for_ready_pods(sandbox, "shop", "free", total)
    return pods_per_domain(sandbox, "shop", "free")


def test_other_scores_outweigh_the_default_one_so_that_an_eviction_is_in_vain(crowded: Sandbox) -> None:
    scale(crowded, "shop", "free", 4)
    wait_for_ready_pods(crowded, "shop", "free", 4)
    assert pods_per_domain(crowded, "shop", "free") == {"zone-a": 3, "zone-b": 1}
    large = deployment("large", replicas=1, cpu="7", nodeSelector={ZONE: "zone-b"})
    large["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "28Gi"
    create_deployment(crowded, "shop", large)
    wait_for_ready_pods(crowded, "shop", "large", 1)

    # zone-b has fewer pods and room for all of them, and the default constraints prefer it.
    assert [replace_one_in_zone_a(crowded) for _ in range(TRIES)] == [{"zone-a": 3, "zone-b": 1}] * TRIES

    scale(crowded, "shop", "large", 0)
    wait_for_ready_pods(crowded, "shop", "large", 0)
    assert replace_one_in_zone_a(crowded) == {"zone-a": 2, "zone-b": 2}


def respread_plan(sandbox: Sandbox, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "respread_cli.main", "plan", "-o", "json", *arguments]
    connection = [] if "--snapshot" in arguments else ["--kubeconfig", str(sandbox.kubeconfig)]
    done = subprocess.run([*command, *connection], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def test_pods_without_the_constraint_stay_as_operator_plan_and_plan_of_a_snapshot_say(
    crowded: Sandbox, tmp_path: Path
) -> None:
    crowded.apply(json.dumps(policy(mode="Enforce")))
    snapshot = tmp_path / "cluster.json"
    command = ["snapshot", str(snapshot), "--kubeconfig", str(crowded.kubeconfig)]
    subprocess.run([sys.executable, "-m", "respread_cli.main", *command], check=True)
    for plan in (respread_plan(crowded), respread_plan(crowded, "--snapshot", str(snapshot))):
        assert not plan["moves"]
        assert [each["reason"] for each in plan["blocked"]] == ["UnknownReplacement"]

    def said() -> list[str]:
        found = crowded.api.get("/apis/respread.dev/v1alpha1/clusterrebalancepolicies/test")
        return [each["reason"] for each in found.get("status", {}).get("violations", ())]

    with OperatorProcess(crowded, tmp_path):
        wait_until(lambda: said() == ["UnknownReplacement"], "the operator to say why nothing is restored")
        assert evictions(crowded) == []
