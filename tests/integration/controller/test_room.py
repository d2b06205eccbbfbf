"""The operator requests a node in a zone without nodes, in the way of an autoscaler, and moves pods there.

The tests play the autoscaler: they add a node when the pod of a placeholder is Pending or a CapacityBuffer exists.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.integration.capacity_buffers import buffers, capacity_buffers, take_up
from tests.integration.operator_process import REPOSITORY, OperatorProcess, evictions, policy, refused, requests
from tests.integration.pools import POOL, Pool
from tests.integration.workloads import ZONE, constraint, pods, pods_per_domain, wait_for_ready_pods, wait_until

COMPONENT = REPOSITORY / "manifests" / "components" / "room"
LABEL = "respread.dev/placeholder"
OWN = "respread-system"
VERBS = ("create", "delete", "list")
"""On Deployments, to ask for room."""
REQUEST: dict[str, Any] = {
    "constraints": {
        "expectedDomains": [
            {
                "topologyKey": ZONE,
                "values": ["zone-a", "zone-b"],
                "provision": "Request",
                "priorityClassName": "respread-placeholder",
            }
        ]
    }
}


def placeholders(sandbox: Sandbox, kind: str = "apps/v1/namespaces/{}/deployments") -> list[dict[str, Any]]:
    path = f"/apis/{kind.format(OWN)}" if kind.startswith("apps") else f"/api/v1/namespaces/{OWN}/pods"
    found: list[dict[str, Any]] = sandbox.api.get(f"{path}?labelSelector={LABEL}")["items"]
    return found


def templates(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Return the PodTemplates of CapacityBuffers."""
    found: list[dict[str, Any]] = sandbox.api.get(f"/api/v1/namespaces/{OWN}/podtemplates")["items"]
    return found


def waiting(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Return the placeholders' pods without a node."""
    return [pod for pod in placeholders(sandbox, "pods") if "nodeName" not in pod["spec"]]


def room_missing(sandbox: Sandbox) -> dict[str, str]:
    """Return the policy's condition RoomMissing; empty if it has none."""
    return condition(sandbox, "RoomMissing")


def condition(sandbox: Sandbox, name: str) -> dict[str, str]:
    """Return a condition of the policy; empty if it has none."""
    found = sandbox.api.get("/apis/respread.dev/v1alpha1/clusterrebalancepolicies/test")
    conditions: list[dict[str, str]] = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == name), {})


@pytest.fixture
def pool(installed_sandbox: Sandbox) -> Pool:
    """A namespace whose workload could be spread over two zones, one of which has no node."""
    installed_sandbox.apply(COMPONENT / "priority-class.yaml")
    pool = Pool(installed_sandbox, "shop")
    pool.add_zone("zone-a", nodes=4, cpu="2")
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")], cpu="800m")
    wait_for_ready_pods(installed_sandbox, "shop", "web", 4)
    return pool


def add_the_node(pool: Pool) -> None:
    """Add a node that two of the pods fill, and wait until they are there and no room is asked for any more."""
    pool.add_zone("zone-b", cpu="2")
    wait_until(lambda: pods_per_domain(pool.sandbox, "shop", "web") == {"zone-a": 2, "zone-b": 2}, "2 and 2")
    wait_for_ready_pods(pool.sandbox, "shop", "web", 4)
    wait_until(lambda: room_missing(pool.sandbox).get("status") == "False", "the condition RoomMissing")
    wait_until(lambda: placeholders(pool.sandbox) == [], "the placeholder to be gone")
    assert len(evictions(pool.sandbox)) == 2


def test_a_zone_without_a_node_gets_one_and_then_the_spread_is_restored(pool: Pool, tmp_path: Path) -> None:
    sandbox = pool.sandbox
    sandbox.apply(COMPONENT / "role.yaml")
    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        sandbox.apply(json.dumps(policy(**REQUEST)))
        wait_until(lambda: len(waiting(sandbox)) == 2, "two placeholder pods without a node")
        wait_until(lambda: room_missing(sandbox).get("reason") == "Requested", "the condition RoomMissing")
        assert "2 pods of Deployment/web in shop in zone-b" in room_missing(sandbox)["message"]
        asked = waiting(sandbox)[0]["spec"]
        assert asked["nodeSelector"] == {ZONE: "zone-b", POOL: "shop"}
        assert asked["priority"] == -1
        (made,) = placeholders(sandbox)
        assert [each["name"] for each in made["metadata"]["ownerReferences"]] == ["test"]
        assert evictions(sandbox) == []

        add_the_node(pool)
        wait_until(lambda: placeholders(sandbox, "pods") == [], "the placeholder's pods to be gone")
        for result in ("Created", "Ready"):
            assert operator.metric(f'respread_room_requests_total{{result="{result}"}}') == 1
        assert operator.stop() == 0
    assert refused(sandbox) == []
    rights = {each["verb"] for each in requests(sandbox, '"deployments"') if each["objectRef"]["namespace"] == OWN}
    assert rights == {"create", "delete", "list"}
    events = sandbox.api.get("/api/v1/namespaces/shop/events")["items"]
    assert [each["message"] for each in events if each["reason"] == "FailedScheduling"] == []
    assert all("nodeName" in pod["spec"] for pod in pods(sandbox, "shop", "web"))


def test_a_full_zone_gets_a_node_and_the_spread_is_restored(pool: Pool, tmp_path: Path) -> None:
    """The pods of another workload fill the only node of zone-b. The operator asks for as many pods as it lacks."""
    sandbox = pool.sandbox
    sandbox.apply(COMPONENT / "role.yaml")
    (full,) = pool.add_zone("zone-b", cpu="1")
    pool.deploy("filler", 1, nodeName=full, cpu="800m")
    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        sandbox.apply(json.dumps(policy(**REQUEST)))
        wait_until(lambda: len(waiting(sandbox)) == 2, "the placeholder's pods to be Pending")
        wait_until(lambda: room_missing(sandbox).get("reason") == "Requested", "the condition RoomMissing")
        assert "2 pods of Deployment/web in shop in zone-b" in room_missing(sandbox)["message"]
        assert condition(sandbox, "Blocked")["reason"] == "NoFeasibleNode"
        assert evictions(sandbox) == []
        add_the_node(pool)
        assert operator.stop() == 0
    assert refused(sandbox) == []
    events = sandbox.api.get("/api/v1/namespaces/shop/events")["items"]
    web = [each["message"] for each in events if each["involvedObject"]["name"].startswith("web-")]
    assert [message for message in web if "FailedScheduling" in message] == []
    assert all("nodeName" in pod["spec"] for pod in pods(sandbox, "shop", "web"))


def test_a_capacity_buffer_requests_room_if_an_autoscaler_uses_it(pool: Pool, tmp_path: Path) -> None:
    """No placeholder is created, and the buffer and its template are deleted as soon as there is a node."""
    sandbox = pool.sandbox
    sandbox.apply(COMPONENT / "role.yaml")
    with capacity_buffers(sandbox), OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        sandbox.apply(json.dumps(policy(**REQUEST)))
        wait_until(lambda: len(templates(sandbox)) == 1, "the buffer's template")
        ((asked,), (template,)) = buffers(sandbox, OWN), templates(sandbox)
        take_up(sandbox, OWN, asked["metadata"]["name"])
        assert asked["spec"] == {
            "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
            "podTemplateRef": {"name": template["metadata"]["name"]},
            "replicas": 2,
        }
        assert template["template"]["spec"]["nodeSelector"] == {ZONE: "zone-b", POOL: "shop"}
        assert template["metadata"]["ownerReferences"][0]["uid"] == asked["metadata"]["uid"]
        wait_until(lambda: room_missing(sandbox).get("reason") == "Requested", "the condition RoomMissing")
        assert evictions(sandbox) == placeholders(sandbox) == []

        add_the_node(pool)
        wait_until(lambda: buffers(sandbox, OWN) == [], "the buffer to be gone")
        wait_until(lambda: templates(sandbox) == [], "the template to be gone with its buffer")
        assert operator.metric('respread_room_requests_total{result="Ready"}') == 1
        assert operator.stop() == 0
    assert refused(sandbox) == []
    events = sandbox.api.get("/api/v1/namespaces/shop/events")["items"]
    assert [each["message"] for each in events if each["reason"] == "FailedScheduling"] == []


def test_a_buffer_of_a_policy_that_is_deleted_while_no_replica_runs_is_deleted(pool: Pool, tmp_path: Path) -> None:
    """The garbage collector deletes that of a ClusterRebalancePolicy, and the next leader that of a RebalancePolicy."""
    sandbox = pool.sandbox
    sandbox.apply(COMPONENT / "role.yaml")
    other = Pool(sandbox, "store")
    other.add_zone("zone-a", nodes=4, cpu="2")
    other.deploy("web", 4, constraints=[constraint(ZONE, "web")], cpu="800m")

    def both_are_taken_up() -> bool:
        for each in buffers(sandbox, OWN):
            take_up(sandbox, OWN, each["metadata"]["name"])
        return len(templates(sandbox)) == 2

    with capacity_buffers(sandbox):
        with OperatorProcess(sandbox, tmp_path) as operator:
            operator.wait_until_ready()
            pool.rebalance(**REQUEST)
            sandbox.apply(json.dumps(policy(**REQUEST)))
            wait_until(both_are_taken_up, "a buffer and its template for each policy")
            assert operator.stop() == 0
        for path in ("clusterrebalancepolicies/test", "namespaces/shop/rebalancepolicies/all"):
            sandbox.api.request("DELETE", f"/apis/respread.dev/v1alpha1/{path}")
        wait_until(lambda: len(buffers(sandbox, OWN)) == 1, "the buffer of the cluster policy to be gone")
        (left,) = buffers(sandbox, OWN)
        assert left["metadata"]["annotations"]["respread.dev/placeholder-for"].endswith("for policy shop/all")
        with OperatorProcess(sandbox, tmp_path) as operator:
            wait_until(lambda: buffers(sandbox, OWN) == [], "the buffer of the RebalancePolicy to be gone")
            operator.wait_until_ready()
            assert operator.stop() == 0
    assert refused(sandbox) == []
    assert evictions(sandbox) == []


def test_without_the_permission_the_status_reports_it_and_nothing_is_evicted(pool: Pool, tmp_path: Path) -> None:
    sandbox = pool.sandbox
    with OperatorProcess(sandbox, tmp_path, "--helm-release", "spread", "--permissions-seconds", "5") as operator:
        operator.wait_until_ready()
        sandbox.apply(json.dumps(policy(**REQUEST)))
        wait_until(lambda: room_missing(sandbox).get("reason") == "Refused", "the condition RoomMissing")
        every = "create deployments.apps, delete deployments.apps, list deployments.apps in respread-system"
        # One permission is asked for after the other, and the first request that needs one may be ahead of that.
        wait_until(lambda: every in condition(sandbox, "PermissionMissing").get("message", ""), "PermissionMissing")
        assert condition(sandbox, "PermissionMissing")["status"] == "True"
        message = condition(sandbox, "PermissionMissing")["message"]
        assert "set room.enabled=true in the Helm release spread" in message
        said = [line for line in operator.lines() if line["level"] == "error"]
        assert {line["permission"] for line in said} == {f"{verb} deployments.apps" for verb in VERBS}
        assert len(said) == len(VERBS)
        assert operator.metric('respread_permissions_missing{policy="test"}') == len(VERBS)
        assert refused(sandbox) == []
        sandbox.apply(COMPONENT / "role.yaml")
        wait_until(lambda: condition(sandbox, "PermissionMissing").get("status") == "False", "the permission")
        assert operator.metric("respread_permissions_missing") == 0
        assert operator.stop() == 0
    assert evictions(sandbox) == []
