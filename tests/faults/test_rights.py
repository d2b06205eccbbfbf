"""The permissions in the manifests are exactly those that the operator uses, compared in both directions."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from respread.controller.permissions import TRY_AGAIN_SECONDS
from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import Asked, Fault, FaultProxy
from tests.faults.rounds import POLICY, Workload, close_zones, create, enforce, wait_for
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
from tests.policy_specs import NAMESPACED, policy_manifest

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


def condition(sandbox: Sandbox) -> dict[str, str]:
    """Return the policy's condition PermissionMissing; one without a status if it has none."""
    found = sandbox.api.get(f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}")
    conditions: list[dict[str, str]] = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "PermissionMissing"), {"status": "", "message": ""})


def events_on_policy(sandbox: Sandbox) -> set[str]:
    """Return the reasons of the Events on the policy."""
    events = sandbox.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return {event["reason"] for event in events if event["regarding"]["name"] == POLICY}


def reviews(sandbox: Sandbox) -> int:
    """Return how often the operator asked for its own permissions."""
    return len(requests(sandbox, "selfsubjectaccessreviews"))


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
    """Refuses to evict any pod until one is refused twice, so that an Event occurs again and a patch counts it."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Fault | None:
        if not asked.is_eviction or max(self._refused.values(), default=0) > 1:
            return None
        self._refused[asked.path] += 1
        return Fault("429")


def namespaced_policy(namespace: str) -> dict[str, Any]:
    spec = {"mode": "Enforce", "quietPeriod": "1s", "victims": {"minAge": "0s"}, "limits": {"inFlightPerWorkload": 1}}
    return policy_manifest("own", spec, NAMESPACED, namespace=namespace)


READ_IF_OWNING: set[Right] = {("get", "argoproj.io", "rollouts"), ("get", "apps.kruise.io", "clonesets")}
CHANGE_RECORD: Right = ("patch", "respread.dev", "clusterrebalancepolicyrecords")
LIST_EVENTS: Right = ("list", "events.k8s.io", "events")
OF_EVERYBODY: set[Right] = {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}
"""Kubernetes grants this to every user, by the ClusterRole system:basic-user."""
ASKED_SECONDS = 4
EACH_TIME = 2
"""Reviews of a permission each time: in all namespaces, and in one."""
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
    assert used(audited) - OF_EVERYBODY | {READ_LATE} == granted(audited)
    assert refused(audited) == []
    assert not any(right[0] == "delete" for right in granted(audited))
    assert not any("secret" in right[2] or "*" in right for right in granted(audited))
    token = (tmp_path / "one.kubeconfig").read_text().rpartition("token:")[2].split()[0]
    assert token not in lines
    assert "Bearer" not in lines
    everything = audited.api.get(ROLES[0])["rules"]
    assert all("nonResourceURLs" not in rule for rule in everything)


def test_a_missing_permission_is_asked_for_at_an_interval_and_reported_until_it_is_granted(
    audited: Sandbox, tmp_path: Path
) -> None:
    """Without the prevention component, no pod is patched, however many there are. With it, all are soon."""
    patch: Right = ("patch", "", "pods")
    enforce(audited, mode="DryRun", **PREVENTS)
    audited.create_namespace("shop")
    names = [f"web-{number}" for number in range(12)]
    for name in names:
        prevention_cluster.create(audited, name, 3)
    wait_for(lambda: prevention_cluster.all_ready(audited, dict.fromkeys(names, 3), ranked=False), "the pods")
    options = ("--no-leader-election", "--permissions-seconds", str(ASKED_SECONDS))
    with FaultProxy(audited) as proxy, Replica(audited, proxy, tmp_path, "one", *options) as replica:
        wait_for(lambda: condition(audited)["status"] == "True", "the condition")
        wait_for(lambda: "PermissionMissing" in events_on_policy(audited), "the Event")
        began, asked = time.monotonic(), reviews(audited)
        wait_for(lambda: reviews(audited) >= asked + 3 * EACH_TIME, "more reviews")
        assert time.monotonic() - began > ASKED_SECONDS
        assert refused(audited) == []
        assert patch not in used(audited)
        (said,) = [line for line in replica.lines() if line["level"] == "error"]
        assert said["permission"] == "patch pods"
        assert "manifests/components/prevention" in said["action"]
        message = condition(audited)["message"]
        assert message.startswith("Not allowed to patch pods in shop")
        assert "manifests/components/prevention" in message
        audited.apply(RIGHT)
        wait_for(lambda: all(len(costs(audited, name)) == 3 for name in names), "all pods to have a cost")
        wait_for(lambda: condition(audited)["status"] == "False", "the condition to end")
        assert replica.stop() == 0
    assert events_on_policy(audited) >= {"PermissionMissing", "PermissionGranted"}
    assert granted(audited, PREVENTION_ROLE) == {patch}
    assert used(audited) <= granted(audited) | {patch} | OF_EVERYBODY


@pytest.fixture
def withdraw(audited: Sandbox) -> Iterator[Callable[[Collection[Right]], None]]:
    """A function that takes rights out of the ClusterRole. They return after the test."""
    path, rules, everything = ROLES[0], audited.api.get(ROLES[0])["rules"], granted(audited, ROLES[0])

    def without(rights: Collection[Right]) -> None:
        left = [
            {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
            for verb, group, resource in sorted(everything - set(rights))
        ]
        audited.api.request("PATCH", path, {"rules": left})

    yield without
    audited.api.request("PATCH", path, {"rules": rules})


OPTIONAL_IN_BASE: set[Right] = {
    *(("create", "events.k8s.io", "events"), ("patch", "events.k8s.io", "events"), ("list", "events.k8s.io", "events")),
    *(("get", "argoproj.io", "rollouts"), ("get", "apps.kruise.io", "clonesets")),
    *(("list", "", "limitranges"), ("list", "", "resourcequotas")),
}


LATE: set[Right] = {("patch", "events.k8s.io", "events"), ("list", "events.k8s.io", "events")}
"""Needed only after an Event was created, or after somebody else has evicted a pod."""


def test_without_optional_permissions_nothing_is_forbidden_and_the_rest_continues(
    audited: Sandbox, withdraw: Callable[[Collection[Right]], None], tmp_path: Path
) -> None:
    withdraw(OPTIONAL_IN_BASE)
    options = ("--no-leader-election", "--permissions-seconds", str(ASKED_SECONDS))
    with PodWatcher(audited) as watcher, FaultProxy(audited) as proxy:
        close_zones(audited, closed=True)
        create(audited, watcher, [Workload("rights", "web", 6, 1)], random.Random(1))
        custom_workloads(audited)
        enforce(audited)
        for app in ("rolled", "cloned"):
            wait_for(lambda app=app: watcher.ready("rights", app) == 3, f"{app} to be Ready")  # type: ignore[misc]  # no types for defaults
        close_zones(audited, closed=False)
        with Replica(audited, proxy, tmp_path, "one", *options) as replica:
            wait_for(lambda: watcher.evicted()["rights", "web"] == 4, "web to be spread")
            needed = [f"{verb} {'.'.join(filter(None, (of, group)))}" for verb, group, of in OPTIONAL_IN_BASE - LATE]
            wait_for(lambda: all(each in condition(audited)["message"] for each in needed), "the condition")
            assert "apply manifests/base" in condition(audited)["message"]
            assert refused(audited) == []
            assert events_on_policy(audited) == set()
            said = [line["permission"] for line in replica.lines() if line["level"] == "error"]
            assert len(said) == len(set(said))
            withdraw(())
            wait_for(lambda: condition(audited)["status"] == "False", "the permissions to be found")
            wait_for(lambda: "PermissionGranted" in events_on_policy(audited), "an Event")
            assert refused(audited) == []
            assert replica.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "right",
    [
        ("create", "", "pods/eviction"),
        ("get", "apps", "replicasets"),
        ("create", "respread.dev", "clusterrebalancepolicyrecords"),
        ("list", "respread.dev", "clusterrebalancepolicyrecords"),
        ("patch", "respread.dev", "clusterrebalancepolicies/status"),
    ],
)
def test_requests_that_are_forbidden_and_needed_are_repeated_slowly_and_end_when_granted(
    audited: Sandbox, withdraw: Callable[[Collection[Right]], None], right: Right, tmp_path: Path
) -> None:
    withdraw([right])
    workloads = [Workload("rights", f"web-{number}", 6, 1) for number in range(5)]
    with PodWatcher(audited) as watcher, FaultProxy(audited) as proxy:
        close_zones(audited, closed=True)
        create(audited, watcher, workloads, random.Random(1))
        enforce(audited)
        close_zones(audited, closed=False)
        with Replica(audited, proxy, tmp_path, "one", "--no-leader-election") as replica:
            wait_for(lambda: bool(refused(audited)), "a refusal")
            began = time.monotonic()
            wait_for(
                lambda: bool(missing_since(replica)) and time.monotonic() - began > 2 * TRY_AGAIN_SECONDS, "a minute"
            )
            together = len(workloads)  # sent before the first of them was answered
            assert len(refused(audited)) <= together + (time.monotonic() - began) / TRY_AGAIN_SECONDS + 1
            assert len([line for line in replica.lines() if line["level"] in {"warning", "error"}]) < 100
            withdraw(())
            for each in workloads:
                wait_for(lambda each=each: watcher.evicted()["rights", each.name] == 4, f"{each.name} to be spread")  # type: ignore[misc]  # no types for defaults
            assert replica.stop() == 0


def missing_since(replica: Replica) -> list[str]:
    """Return the permissions that the log says are missing."""
    return [line["permission"] for line in replica.lines() if line["event"] == "A permission is missing"]


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
    assert used(audited) - granted(audited) - OF_EVERYBODY == granted(audited, ROOM_ROLE)
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
