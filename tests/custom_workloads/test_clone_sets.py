"""CloneSets of OpenKruise with their own controller: at rest they are restored, with two revisions they stay."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread_sandbox import Sandbox
from tests.custom_workloads.conftest import Run
from tests.go_programs import PROGRAMS, find_or_build, source_of
from tests.integration.pools import POOL, Pool
from tests.integration.workloads import ZONE, constraint, deployment, wait_for_ready_pods, wait_until

REPLICAS = 4
QUIET_SECONDS = 4.0
CLONE_SETS = "/apis/apps.kruise.io/v1alpha1/namespaces/{}/clonesets"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

pytestmark = pytest.mark.timeout(1800)
"""The fixture builds the controller first if it is not in the cache."""


def free_ports(number: int) -> list[int]:
    """Return different unused ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def webhooks(source: Path) -> list[dict[str, Any]]:
    """Return only the webhook configurations of CloneSets, which set defaults."""
    documents = yaml.safe_load_all((source / "config" / "webhook" / "manifests.yaml").read_text(encoding="utf-8"))
    found = []
    for each in documents:
        of_clone_sets = [
            webhook for webhook in each["webhooks"] if webhook["clientConfig"]["service"]["path"].endswith("-cloneset")
        ]
        kind = "mutating" if each["kind"].startswith("Mutating") else "validating"
        metadata = {"name": f"kruise-{kind}-webhook-configuration"}
        found.append({**each, "metadata": metadata, "webhooks": of_clone_sets})
    return found


@pytest.fixture(scope="module", autouse=True)
def _kruise(cluster: Sandbox, run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = PROGRAMS["kruise"]
    source = source_of(program)
    cluster.create_namespace("kruise-system")
    definitions = source / "config" / "crd" / "bases"
    cluster.kubectl("apply", "--server-side", "-f", str(definitions))  # too long for the annotation of a plain apply
    cluster.wait_for_definitions("clonesets.apps.kruise.io")
    for each in webhooks(source):
        cluster.apply(json.dumps(each))
    health, webhook = free_ports(2)
    run(
        find_or_build(program),
        f"--kubeconfig={cluster.kubeconfig}",
        "--enable-leader-election=false",
        "--enable-pprof=false",
        "--metrics-addr=0",
        f"--health-probe-addr=127.0.0.1:{health}",
        WEBHOOK_HOST="localhost",
        WEBHOOK_PORT=str(webhook),
        WEBHOOK_CERT_DIR=str(tmp_path_factory.mktemp("certificates")),
    )


def create(pool: Pool) -> None:
    """Create a CloneSet, as soon as its webhooks answer, and wait until its pods are Ready."""
    manifest = deployment(
        "web", replicas=REPLICAS, constraints=[constraint(ZONE, "web")], nodeSelector={POOL: pool.name}
    )
    spec = {name: manifest["spec"][name] for name in ("replicas", "selector", "template")}
    body = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": {"name": "web"}, "spec": spec}

    def created() -> bool:
        try:
            pool.sandbox.api.request("POST", CLONE_SETS.format(pool.name), body)
        except Exception as error:  # noqa: BLE001 - whatever kept the API server from asking the webhook
            return "already exists" in str(error)
        return True

    wait_until(created, "the webhooks to answer")
    wait_for_ready_pods(pool.sandbox, pool.name, "web", REPLICAS)


def change(pool: Pool, spec: dict[str, Any]) -> None:
    pool.sandbox.api.request("PATCH", f"{CLONE_SETS.format(pool.name)}/web", {"spec": spec})


def status(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = pool.sandbox.api.get(f"{CLONE_SETS.format(pool.name)}/web").get("status", {})
    return found


def violation(pool: Pool) -> tuple[str, str]:
    """Return reason and message of the violation; empty if there is none."""
    found = pool.status().get("violations") or [{}]
    return str(found[0].get("reason", "")), str(found[0].get("message", ""))


def test_pods_of_a_clone_set_at_rest_are_moved_by_default(pool: Pool) -> None:
    create(pool)
    pool.add_zone("zone-b")
    pool.rebalance()
    pool.wait_until_balanced(REPLICAS, 2)
    assert len(pool.evicted()) == 2
    assert status(pool)["updatedReplicas"] == REPLICAS


def test_pods_of_a_clone_set_with_two_revisions_stay(pool: Pool) -> None:
    create(pool)
    template = {"metadata": {"annotations": {"revision": "2"}}}
    change(pool, {"updateStrategy": {"partition": 2}, "template": template})
    wait_until(lambda: status(pool).get("updatedReplicas") == 2, "half of the pods to be updated")
    wait_for_ready_pods(pool.sandbox, pool.name, "web", REPLICAS)
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance()
    wait_until(lambda: violation(pool)[0] == "ProtectedPod", lambda: f"the reason; it is {violation(pool)}")
    assert "CloneSet web keeps 2 of its pods at an older revision" in violation(pool)[1]
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    assert pool.uids() == before
    change(pool, {"updateStrategy": {"partition": 0}})
    pool.wait_until_balanced(REPLICAS, 0)


@pytest.mark.parametrize("costs", [False, True], ids=["without costs", "with costs"])
def test_a_scale_down_of_a_clone_set_follows_the_deletion_costs_and_then_the_spread(pool: Pool, *, costs: bool) -> None:
    """docs/workloads.md describes this."""
    pool.add_zone("zone-b")
    create(pool)
    assert pool.counts() == {"zone-a": 2, "zone-b": 2}
    nodes = {
        each["metadata"]["name"]: each["metadata"]["labels"] for each in pool.sandbox.api.get("/api/v1/nodes")["items"]
    }
    if costs:
        for each in pool.pods():
            cost = "-100" if nodes[each["spec"]["nodeName"]][ZONE] == "zone-b" else "100"
            body = {"metadata": {"annotations": {DELETION_COST: cost}}}
            pool.sandbox.api.request("PATCH", f"/api/v1/namespaces/{pool.name}/pods/{each['metadata']['name']}", body)
    change(pool, {"replicas": 2})
    pool.wait_for(2)
    assert pool.counts() == ({"zone-a": 2, "zone-b": 0} if costs else {"zone-a": 1, "zone-b": 1})
