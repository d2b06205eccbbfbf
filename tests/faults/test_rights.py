"""The permissions in the manifests are exactly those that the operator uses, compared in both directions."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread.controller.prevention_loop import AT_ONCE
from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import Asked, Fault, FaultProxy
from tests.faults.rounds import Workload, close_zones, create, enforce, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration import prevention_cluster
from tests.integration.capacity_buffers import buffers, capacity_buffers
from tests.integration.operator_process import REPOSITORY, refused, requests
from tests.integration.prevention_cluster import PREVENTS, RIGHT, costs
from tests.integration.reused_sandbox import is_emptied, lay_out
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    create_deployment,
    deployment,
    evict_slowly,
    wait_for_ready_pods,
)

ROLES = (
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/respread",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/respread-system/roles/respread-leader-election",
)
ROOM = REPOSITORY / "manifests" / "components" / "room"
ROOM_ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/respread-system/roles/respread-room"
PREVENTION_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/respread-prevention"
OF_KUBERNETES = ("kube-system", "kube-public")
Right = tuple[str, str, str]
"""A verb, an API group and a resource, with its subresource."""


def granted(sandbox: Sandbox, *roles: str) -> set[Right]:
    rules = [rule for path in roles or ROLES for rule in sandbox.api.get(path)["rules"]]
    return {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def used(sandbox: Sandbox) -> set[Right]:
    found = set()
    for entry in requests(sandbox):
        about = entry.get("objectRef")
        if about and "resource" in about:
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            found.add((entry["verb"], about.get("apiGroup", ""), resource))
    return found


def other_workloads(sandbox: Sandbox) -> None:
    """Create a StatefulSet and a ReplicationController with four pods each."""
    for name, path in (
        ("set", "/apis/apps/v1/namespaces/rights/statefulsets"),
        ("controller", "/api/v1/namespaces/rights/replicationcontrollers"),
    ):
        constraints = [constraint(ZONE, name, nodeTaintsPolicy="Honor")]
        manifest = deployment(name, replicas=4, constraints=constraints)
        if name == "set":
            manifest["kind"] = "StatefulSet"
            manifest["spec"]["serviceName"] = name
            manifest["spec"]["podManagementPolicy"] = "Parallel"
            manifest["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 4}}
        else:
            manifest |= {"apiVersion": "v1", "kind": "ReplicationController"}
            manifest["spec"]["selector"] = {"app": name}
        sandbox.api.request("POST", path, manifest)


def custom_workloads(sandbox: Sandbox) -> None:
    """Create pods whose owners have kinds that this API server does not serve. The operator requests them anyway."""

    def manifest(name: str, api_version: str, kind: str) -> dict[str, Any]:
        constraints = [constraint(ZONE, name, nodeTaintsPolicy="Honor")]
        made = deployment(name, replicas=3, constraints=constraints)
        owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
        return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}

    rolled = manifest("rolled", "argoproj.io/v1alpha1", "Rollout")
    rolled["spec"].pop("strategy", None)
    sandbox.api.request("POST", "/apis/apps/v1/namespaces/rights/replicasets", {**rolled, "kind": "ReplicaSet"})
    cloned = manifest("cloned", "apps.kruise.io/v1alpha1", "CloneSet")
    template = cloned["spec"]["template"]
    for number in range(3):
        owners = {"name": f"cloned-{number}", "ownerReferences": cloned["metadata"]["ownerReferences"]}
        pod = {"metadata": {**template["metadata"], **owners}, "spec": template["spec"]}
        sandbox.api.request("POST", "/api/v1/namespaces/rights/pods", pod)


def keep_an_earlier_revision(sandbox: Sandbox) -> None:
    """Change the StatefulSet's template, while its partition keeps all pods as they are."""
    path = "/apis/apps/v1/namespaces/rights/statefulsets/set"
    sandbox.api.request("PATCH", path, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})


@pytest.fixture
def audited(installed_sandbox: Sandbox) -> Sandbox:
    return lay_out(installed_sandbox, 3, 3, 3)


class Busy:
    """Refuses the first evictions, so that the same Event occurs several times and a patch counts it."""

    def __init__(self) -> None:
        self.left = 4

    def __call__(self, asked: Asked) -> Fault | None:
        if not asked.is_eviction or not self.left:
            return None
        self.left -= 1
        return Fault("429")


def namespaced_policy(namespace: str) -> dict[str, Any]:
    spec = {"mode": "Enforce", "quietPeriod": "1s", "victims": {"minAge": "0s"}, "limits": {"inFlightPerWorkload": 1}}
    return {
        "apiVersion": "respread.dev/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": "own", "namespace": namespace},
        "spec": spec,
    }


READ_IF_OWNING: set[Right] = {("get", "argoproj.io", "rollouts"), ("get", "apps.kruise.io", "clonesets")}
CHANGE_RECORD: Right = ("patch", "respread.dev", "clusterrebalancepolicyrecords")
LIST_EVENTS: Right = ("list", "events.k8s.io", "events")
READ_LATE = ("get", "", "pods")
"""The operator reads a single pod only if the read of its controller is 2 s old when it evicts the pod."""


def test_every_granted_permission_is_used_and_no_other_is_needed(audited: Sandbox, tmp_path: Path) -> None:
    workloads = [Workload("rights", "web", 6, 1), Workload("elsewhere", "web", 4, 1)]
    with PodWatcher(audited) as watcher, FaultProxy(audited, Busy()) as proxy:
        close_zones(audited, closed=True)
        create(audited, watcher, workloads, random.Random(1))
        other_workloads(audited)
        custom_workloads(audited)
        enforce(audited)
        audited.apply(json.dumps(namespaced_policy("rights")))
        for app in ("set", "controller"):
            wait_for(lambda app=app: watcher.ready("rights", app) == 4, f"{app} to be Ready")  # type: ignore[misc]  # no types for defaults
        for app in ("rolled", "cloned"):
            wait_for(lambda app=app: watcher.ready("rights", app) == 3, f"{app} to be Ready")  # type: ignore[misc]  # no types for defaults
        keep_an_earlier_revision(audited)
        close_zones(audited, closed=False)
        with Replica(audited, proxy, tmp_path, "one", "--leader-election", "--lease-seconds", "3") as replica:
            wait_for(lambda: watcher.evicted()["rights", "web"] == 4, "the Deployment to be spread")
            for app in ("set", "controller"):
                wait_for(lambda app=app: watcher.evicted()["rights", app] > 0, f"an eviction of {app}")  # type: ignore[misc]  # no types for defaults
            wait_for(lambda: CHANGE_RECORD in used(audited), "the record of the cluster's policy to be changed")
            wait_for(lambda: used(audited) >= READ_IF_OWNING, "the owners of the others to be asked for")
            evict_slowly(audited, "rights", "web")
            wait_for(lambda: LIST_EVENTS in used(audited), "a look at who else evicts")
            assert replica.stop() == 0
            lines = replica.log.read_text()
    assert used(audited) | {READ_LATE} == granted(audited)
    assert refused(audited) == []
    assert not any(right[0] == "delete" for right in granted(audited))
    assert not any("secret" in right[2] or "*" in right for right in granted(audited))
    token = (tmp_path / "one.kubeconfig").read_text().rpartition("token:")[2].split()[0]
    assert token not in lines
    assert "Bearer" not in lines
    everything = audited.api.get(ROLES[0])["rules"]
    assert all("nonResourceURLs" not in rule for rule in everything)


def test_pods_are_patched_only_where_the_prevention_component_allows_it(audited: Sandbox, tmp_path: Path) -> None:
    """Without the component, Respread detects that the permission is missing. With it, Respread patches pods."""
    patch: Right = ("patch", "", "pods")
    enforce(audited, mode="DryRun", **PREVENTS)
    audited.create_namespace("shop")
    prevention_cluster.create(audited, "web", 6)
    with FaultProxy(audited) as proxy, Replica(audited, proxy, tmp_path, "one", "--no-leader-election") as replica:
        wait_for(lambda: patch in used(audited), "an attempt to set a cost")
        time.sleep(4)
        assert used(audited) - granted(audited) == {patch}

        def tried() -> int:
            return sum(each.method == "PATCH" and "/pods/" in each.path for each in proxy.asked)

        wait_for(lambda: len(refused(audited)) == tried(), "the tried requests to be refused")
        assert 1 <= tried() <= AT_ONCE
        (said,) = [line for line in replica.lines() if line["event"].startswith("Not allowed to patch pods")]
        assert "manifests/components/prevention" in said["event"]
        audited.apply(RIGHT)
        wait_for(lambda: len(costs(audited, "web")) == 6, "all pods to have a cost")
        assert replica.stop() == 0
    assert granted(audited, PREVENTION_ROLE) == {patch}
    assert used(audited) <= granted(audited) | {patch}


def test_room_is_requested_with_exactly_the_permissions_of_its_component(audited: Sandbox, tmp_path: Path) -> None:
    """Respread uses a Deployment, and a CapacityBuffer if the API server serves that kind."""
    for name in ("role.yaml", "priority-class.yaml"):
        audited.apply(ROOM / name)
    audited.create_namespace("shop")
    create_deployment(audited, "shop", deployment("web", replicas=9, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(audited, "shop", "web", 9)
    wanted = {"topologyKey": ZONE, "values": ["zone-a", "zone-b", "zone-c", "zone-d"], "provision": "Request"}
    asks = {"expectedDomains": [{**wanted, "priorityClassName": "respread-placeholder"}]}

    def ask_and_give_up(right: Right, gone: Right) -> None:
        enforce(audited, constraints=asks)
        with (
            FaultProxy(audited) as proxy,
            Replica(audited, proxy, tmp_path, right[2], "--no-leader-election") as replica,
        ):
            wait_for(lambda: right in used(audited), f"{right} to be used")
            enforce(audited, mode="DryRun", constraints=asks)
            wait_for(lambda: gone in used(audited), "the room to be given up")
            assert replica.stop() == 0

    ask_and_give_up(("create", "apps", "deployments"), ("delete", "apps", "deployments"))
    with capacity_buffers(audited):
        ask_and_give_up(("create", "", "podtemplates"), ("delete", "autoscaling.x-k8s.io", "capacitybuffers"))
        assert buffers(audited, "respread-system") == []
    assert used(audited) - granted(audited) == granted(audited, ROOM_ROLE)
    assert refused(audited) == []


@pytest.fixture
def with_system_pods(audited: Sandbox) -> Iterator[Sandbox]:
    """A cluster. Objects that a test creates in the namespaces of Kubernetes are deleted afterwards."""
    yield audited
    for namespace in OF_KUBERNETES:
        wait_for(lambda namespace=namespace: is_emptied(audited, namespace), f"{namespace} to be empty")  # type: ignore[misc]  # no types for defaults


def test_by_default_kube_system_and_the_operator_are_not_evicted(with_system_pods: Sandbox, tmp_path: Path) -> None:
    """A policy without a namespace selector selects all namespaces except those of Kubernetes."""
    sandbox = with_system_pods
    with PodWatcher(sandbox) as watcher, FaultProxy(sandbox) as proxy:
        close_zones(sandbox, closed=True)
        for namespace in OF_KUBERNETES:
            constraints = [constraint(ZONE, "system", nodeTaintsPolicy="Honor"), constraint(HOSTNAME, "system")]
            constraints[1]["whenUnsatisfiable"] = "ScheduleAnyway"
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
            sandbox.api.request("POST", path, deployment("system", replicas=4, constraints=constraints))
        enforce(sandbox)
        workloads = [Workload("ordinary", "web", 4, 1)]
        create(sandbox, watcher, workloads, random.Random(1))
        close_zones(sandbox, closed=False)
        with Replica(sandbox, proxy, tmp_path, "one", "--no-leader-election"):
            wait_for(lambda: watcher.evicted()["ordinary", "web"] == 2, "what is ordinary to be spread")
        assert set(watcher.evicted_by_now()) == {("ordinary", "web")}
