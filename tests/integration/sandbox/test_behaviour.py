"""The sandbox behaves like a cluster, with real scheduling, controllers, budgets and permissions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from respread_sandbox import ApiError, Sandbox
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    create_deployment,
    deployment,
    is_ready,
    pods,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
    wait_until,
)


def test_nodes_are_ready_and_spread_over_zones(sandbox: Sandbox) -> None:
    nodes = sandbox.api.get("/api/v1/nodes")["items"]
    zones = [node["metadata"]["labels"][ZONE] for node in nodes]
    assert sorted(zones) == ["zone-a"] * 4 + ["zone-b"] * 4 + ["zone-c"] * 4
    assert all(is_ready(node) for node in nodes)
    assert not any("taints" in node["spec"] for node in nodes)
    assert all(node["metadata"]["labels"][HOSTNAME] == node["metadata"]["name"] for node in nodes)


def test_spread_deployment_becomes_ready_and_scales(sandbox: Sandbox, namespace: str) -> None:
    create_deployment(sandbox, namespace, deployment("web", replicas=9, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, namespace, "web", 9)
    assert pods_per_domain(sandbox, namespace, "web") == {"zone-a": 3, "zone-b": 3, "zone-c": 3}
    scale(sandbox, namespace, "web", 2)
    wait_for_ready_pods(sandbox, namespace, "web", 2)


def test_pods_have_the_status_that_a_kubelet_reports(sandbox: Sandbox, namespace: str) -> None:
    sidecar = {"name": "proxy", "image": "simulated", "restartPolicy": "Always"}
    init = {"name": "migrate", "image": "simulated"}
    create_deployment(sandbox, namespace, deployment("web", replicas=1, initContainers=[init, sidecar]))
    wait_for_ready_pods(sandbox, namespace, "web", 1)
    (pod,) = pods(sandbox, namespace, "web")
    status = pod["status"]
    assert status["phase"] == "Running"
    assert {condition["type"]: condition["status"] for condition in status["conditions"]} == dict.fromkeys(
        ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"), "True"
    )
    assert "terminated" in status["initContainerStatuses"][0]["state"]
    assert "running" in status["initContainerStatuses"][1]["state"]
    assert status["podIP"].startswith("10.")


def test_a_budget_is_computed_and_respected_by_the_eviction_api(sandbox: Sandbox, namespace: str) -> None:
    create_deployment(sandbox, namespace, deployment("web", replicas=3))
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    sandbox.api.request("POST", path, budget)
    wait_for_ready_pods(sandbox, namespace, "web", 3)

    def disruptions_allowed() -> int | None:
        allowed: int | None = sandbox.api.get(f"{path}/web").get("status", {}).get("disruptionsAllowed")
        return allowed

    wait_until(lambda: disruptions_allowed() == 1, "the budget's status")
    names = [pod["metadata"]["name"] for pod in pods(sandbox, namespace, "web")]
    create_deployment(sandbox, namespace, deployment("blocker", replicas=0))
    sandbox.nodes.cordon(*sandbox.nodes.names())  # so that no replacement becomes Ready
    try:
        evict(sandbox, namespace, names[0])
        with pytest.raises(ApiError) as refused:
            evict(sandbox, namespace, names[1])
    finally:
        sandbox.nodes.uncordon(*sandbox.nodes.names())
    assert refused.value.status == 429
    assert refused.value.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "Cannot evict pod as it would violate the pod's disruption budget" in str(refused.value)
    wait_for_ready_pods(sandbox, namespace, "web", 3)
    wait_until(lambda: disruptions_allowed() == 1, "the budget to allow a disruption again")


def evict(sandbox: Sandbox, namespace: str, name: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    sandbox.api.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)


def test_a_service_account_has_only_its_own_permissions(sandbox: Sandbox, namespace: str) -> None:
    sandbox.kubectl("create", "serviceaccount", "reader", f"--namespace={namespace}")
    sandbox.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", f"--namespace={namespace}")
    account = f"--serviceaccount={namespace}:reader"
    sandbox.kubectl("create", "rolebinding", "reader", "--role=reader", account, f"--namespace={namespace}")
    kubeconfig = sandbox.kubeconfig_for_service_account(namespace, "reader")
    whoami = sandbox.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", kubeconfig=kubeconfig)
    assert whoami == f"system:serviceaccount:{namespace}:reader"
    sandbox.kubectl("get", "pods", f"--namespace={namespace}", kubeconfig=kubeconfig)
    for refused in (["get", "pods"], ["get", "nodes"], ["get", "secrets", f"--namespace={namespace}"]):
        with pytest.raises(Exception, match="Forbidden"):
            sandbox.kubectl(*refused, kubeconfig=kubeconfig)


def test_a_rotated_token_replaces_the_file_at_once(sandbox: Sandbox, namespace: str) -> None:
    first = sandbox.kubeconfig_for_service_account(namespace, "default").read_text()
    second = sandbox.kubeconfig_for_service_account(namespace, "default")
    assert second.read_text() != first
    assert second.stat().st_mode & 0o077 == 0


def test_tokens_work_as_pods_use_them(sandbox: Sandbox, namespace: str) -> None:
    kubeconfig = sandbox.kubeconfig_for_service_account(namespace, "default")
    review = sandbox.kubectl("auth", "can-i", "create", "selfsubjectreviews", kubeconfig=kubeconfig)
    assert review.strip() == "yes"
    wait_until(
        lambda: sandbox.api.exists(f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"),
        "the root certificate that pods mount with their token",
    )


def test_single_pods_can_become_ready_late_or_never(sandbox: Sandbox, namespace: str) -> None:
    late = {"sandbox.respread.dev/ready-after-seconds": "1"}
    never = {"sandbox.respread.dev/ready-after-seconds": "never"}
    create_deployment(sandbox, namespace, deployment("late", replicas=2, annotations=late))
    create_deployment(sandbox, namespace, deployment("never", replicas=1, annotations=never))
    wait_for_ready_pods(sandbox, namespace, "late", 2)
    for pod in pods(sandbox, namespace, "late"):
        times = {condition["type"]: condition["lastTransitionTime"] for condition in pod["status"]["conditions"]}
        assert times["Ready"] > times["PodScheduled"]
    wait_until(lambda: pods(sandbox, namespace, "never")[0]["status"]["phase"] == "Running", "the other to run")
    time.sleep(1)
    (pod,) = pods(sandbox, namespace, "never")
    assert not is_ready(pod)


def test_a_pod_that_a_test_makes_unready_stays_so(sandbox: Sandbox, namespace: str) -> None:
    create_deployment(sandbox, namespace, deployment("web", replicas=1))
    wait_for_ready_pods(sandbox, namespace, "web", 1)
    (pod,) = pods(sandbox, namespace, "web")
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ProbeFailed"}]}}
    sandbox.api.request("PATCH", f"{path}/status", unready, patch_type="strategic-merge")
    sandbox.api.request("PATCH", path, {"metadata": {"annotations": {"touched": "yes"}}})
    time.sleep(1)
    assert not is_ready(sandbox.api.get(path))


def test_termination_can_take_up_to_the_grace_period(sandbox: Sandbox, namespace: str) -> None:
    slow = {"sandbox.respread.dev/terminate-after-seconds": "10"}
    create_deployment(sandbox, namespace, deployment("slow", replicas=1, annotations=slow))
    create_deployment(sandbox, namespace, deployment("prompt", replicas=1))
    wait_for_ready_pods(sandbox, namespace, "slow", 1)
    wait_for_ready_pods(sandbox, namespace, "prompt", 1)
    scale(sandbox, namespace, "slow", 0)
    scale(sandbox, namespace, "prompt", 0)
    wait_until(lambda: not pods(sandbox, namespace, "prompt"), "the prompt pod to go")
    (terminating,) = pods(sandbox, namespace, "slow")
    assert terminating["metadata"]["deletionGracePeriodSeconds"] == 30
    begun = time.monotonic()
    wait_until(lambda: not pods(sandbox, namespace, "slow"), "the slow pod to go")
    assert time.monotonic() - begun > 1


def test_pods_of_jobs_finish(sandbox: Sandbox, namespace: str) -> None:
    sandbox.kubectl("create", "job", "report", "--image=simulated", f"--namespace={namespace}")
    sandbox.kubectl("wait", "job/report", "--for=condition=Complete", "--timeout=120s", f"--namespace={namespace}")
    (pod,) = pods(sandbox, namespace)
    assert pod["status"]["phase"] == "Succeeded"


def test_apply_takes_text_files_and_kustomizations(sandbox: Sandbox, namespace: str, tmp_path: Any) -> None:
    config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\n"
    sandbox.apply(config_map % ("text", namespace))
    (tmp_path / "file.yaml").write_text(config_map % ("file", namespace))
    sandbox.apply(tmp_path / "file.yaml")
    (tmp_path / "kustomization.yaml").write_text("resources: [file.yaml]\nnamePrefix: kustomized-\n")
    sandbox.apply(tmp_path)
    names = sandbox.kubectl("get", "configmaps", "-o", "name", f"--namespace={namespace}").split()
    assert {"configmap/text", "configmap/file", "configmap/kustomized-file"} <= set(names)
