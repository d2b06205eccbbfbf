"""The last look compares a pod with its template, on a real API server, which adds fields to every pod."""

from __future__ import annotations

from typing import Any

import pytest

from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.owners.last_look import Owners
from respread.kube.requests import Requests
from respread.moves.ledger import Ledger
from respread_sandbox import Sandbox
from tests.eviction_moves import move
from tests.integration.eviction_cluster import with_requests
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    deployment,
    pods,
    resize,
    wait_for_ready_pods,
    wait_until,
)

EVICTED = Answer(result=EvictionResult.EVICTED)
APPS = "/apis/apps/v1/namespaces/{}/{}"
CORE = "/api/v1/namespaces/{}/{}"


def created(sandbox: Sandbox, namespace: str, kind: str, manifest: dict[str, Any]) -> None:
    """Create a workload and wait until its pods are Ready and its status shows it."""
    plural = f"{kind.lower()}s"
    path = (CORE if kind == "ReplicationController" else APPS).format(namespace, plural)
    sandbox.api.request("POST", path, manifest)
    name, replicas = manifest["metadata"]["name"], manifest["spec"]["replicas"]
    wait_for_ready_pods(sandbox, namespace, name, replicas)

    def is_reported() -> bool:
        found = sandbox.api.get(f"{path}/{name}")
        status = found["status"]
        counts = {status.get("readyReplicas"), status.get("updatedReplicas", replicas)}
        return bool(status.get("observedGeneration") == found["metadata"]["generation"] and counts == {replicas})

    wait_until(is_reported, f"the status of {kind} {name}")


def of_kind(kind: str, name: str, replicas: int = 2, **pod_spec: Any) -> dict[str, Any]:
    """Return a workload of any kind whose pods have the label app=name."""
    manifest = deployment(name, replicas=replicas, **pod_spec)
    manifest["kind"] = kind
    if kind == "StatefulSet":
        manifest["spec"]["serviceName"] = name
    if kind == "ReplicationController":
        manifest |= {"apiVersion": "v1"}
        manifest["spec"]["selector"] = {"app": name}
    return manifest


def looked_at(
    sandbox: Sandbox,
    snapshot: ClusterSnapshot,
    *victims: Pod,
    rules: VictimRules | None = None,
    in_flight: Ledger | None = None,
) -> list[Held | None]:
    """Return the results of the last look for some pods, in one wave."""

    async def look(requests: Requests) -> list[Held | None]:
        owners, given = Owners(requests, lambda: 0.0), rules or VictimRules()
        ledger = (Ledger() if in_flight is None else in_flight).with_chosen(map(move, victims), snapshot, 0)
        moves = map(move, victims)
        return [await owners.why_not_at_rest(each, given, snapshot, ledger.without(each)) for each in moves]

    return with_requests(sandbox.kubeconfig, look)


def why(sandbox: Sandbox, namespace: str, name: str | None = None, rules: VictimRules | None = None) -> Held | None:
    snapshot = take_snapshot(sandbox)
    pod = of(snapshot, namespace)[0] if name is None else snapshot.pods[ObjectKey(namespace, name)]
    return looked_at(sandbox, snapshot, pod, rules=rules)[0]


def of(snapshot: ClusterSnapshot, namespace: str) -> list[Pod]:
    found = [pod for key, pod in snapshot.pods.items() if key.namespace == namespace]
    return sorted(found, key=lambda pod: pod.name)


LIMIT_RANGE = {
    "metadata": {"name": "defaults"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "defaultRequest": {"cpu": "50m"},
                "default": {"cpu": "1", "memory": "1Gi"},
                "max": {"cpu": "4"},
            }
        ]
    },
}
TEMPLATE: dict[str, Any] = {
    "constraints": [
        constraint(ZONE, "web", matchLabelKeys=["pod-template-hash", "controller-revision-hash"]),
        constraint(HOSTNAME, "web", when_unsatisfiable="ScheduleAnyway"),
    ],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": HOSTNAME,
                    "labelSelector": {"matchLabels": {"app": "other"}},
                    "matchLabelKeys": ["pod-template-hash"],
                    "mismatchLabelKeys": ["controller-revision-hash"],
                }
            ]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]
            }
        },
    },
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "volumes": [{"name": "scratch", "emptyDir": {}}],
    "containers": [
        {
            "name": "main",
            "image": "simulated",
            "ports": [{"containerPort": 80}, {"containerPort": 8443, "hostPort": 18443}],
            "resources": {"limits": {"memory": "64Mi"}},
        },
        {"name": "second", "image": "simulated", "resources": {"requests": {"cpu": "0.1"}, "limits": {"cpu": "200m"}}},
    ],
    "initContainers": [{"name": "first", "image": "simulated"}],
}


class TestOrdinaryPods:
    """Fields that the API server and admission add to every pod hold no move."""

    @pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"])
    def test_a_pod_equal_to_its_template_may_be_evicted(self, sandbox: Sandbox, namespace: str, kind: str) -> None:
        sandbox.api.request("POST", CORE.format(namespace, "limitranges"), LIMIT_RANGE)
        created(sandbox, namespace, kind, of_kind(kind, "web", **TEMPLATE))
        snapshot = take_snapshot(sandbox)
        pod = of(snapshot, namespace)[0]
        requests = pods(sandbox, namespace)[0]["spec"]["containers"][0]["resources"]["requests"]
        assert requests == {"cpu": "50m", "memory": "64Mi"}
        assert looked_at(sandbox, snapshot, pod) == [None]

    def test_claims_of_a_stateful_set_are_no_difference(self, sandbox: Sandbox, namespace: str) -> None:
        claim = {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        manifest = of_kind("StatefulSet", "db")
        manifest["spec"] |= {"volumeClaimTemplates": [claim], "podManagementPolicy": "Parallel"}
        sandbox.api.request("POST", APPS.format(namespace, "statefulsets"), manifest)
        path = f"{APPS.format(namespace, 'statefulsets')}/db"
        wait_until(lambda: sandbox.api.get(path)["status"].get("replicas") == 2, "the pods, which wait for volumes")
        snapshot = take_snapshot(sandbox)
        pod, _ = of(snapshot, namespace)
        assert pod.spec.stateful_claims == ("data",)
        assert looked_at(sandbox, snapshot, pod) == [None]

    def test_priority_and_runtime_classes_are_no_difference(self, sandbox: Sandbox, namespace: str) -> None:
        high, kata = f"{namespace}-high"[-60:].strip("-"), f"{namespace}-kata"[-60:].strip("-")
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        sandbox.api.request("POST", classes, {"metadata": {"name": high}, "value": 1000})
        runtime_class = {
            "metadata": {"name": kata},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "30m"}},
            "scheduling": {
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [{"key": "sandboxed", "operator": "Exists", "effect": "NoSchedule"}],
            },
        }
        sandbox.api.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
        spec: dict[str, Any] = {"priorityClassName": high, "runtimeClassName": kata}
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web", **spec))
        assert why(sandbox, namespace) is None
        (pod, *_) = of(take_snapshot(sandbox), namespace)
        assert (pod.spec.priority, pod.spec.requests["cpu"]) == (1000, 130)

    def test_the_default_priority_class_is_no_difference(self, sandbox: Sandbox, namespace: str) -> None:
        classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", f"{namespace}-default"[-60:].strip("-")
        sandbox.api.request("POST", classes, {"metadata": {"name": name}, "value": 7, "globalDefault": True})
        try:

            def given() -> bool:
                probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
                path = f"{CORE.format(namespace, 'pods')}?dryRun=All"
                return bool(sandbox.api.request("POST", path, probe)["spec"].get("priority") == 7)

            wait_until(given, "the class to count")
            created(sandbox, namespace, "Deployment", of_kind("Deployment", "web"))
            assert why(sandbox, namespace) is None
        finally:
            sandbox.api.request("DELETE", f"{classes}/{name}")

    def test_host_ports_of_the_host_network_are_no_difference(self, sandbox: Sandbox, namespace: str) -> None:
        container = {"name": "main", "image": "simulated", "ports": [{"containerPort": 9123}]}
        spec: dict[str, Any] = {"hostNetwork": True, "containers": [container]}
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web", **spec))
        (pod, *_) = of(take_snapshot(sandbox), namespace)
        assert [each.port for each in pod.spec.host_ports] == [9123]
        assert why(sandbox, namespace) is None

    def test_labels_that_no_selector_uses_are_no_difference(self, sandbox: Sandbox, namespace: str) -> None:
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web", constraints=[constraint(ZONE, "web")]))
        name = pods(sandbox, namespace)[0]["metadata"]["name"]
        path = f"{CORE.format(namespace, 'pods')}/{name}"
        sandbox.api.request("PATCH", path, {"metadata": {"labels": {"role": "leader"}}})
        assert why(sandbox, namespace, name) is None

    def test_a_stateful_set_pod_is_compared_with_its_own_revision(self, sandbox: Sandbox, namespace: str) -> None:
        """Respread reads the revision from which the pods are made, not the newest template."""
        manifest = of_kind("StatefulSet", "db")
        manifest["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        created(sandbox, namespace, "StatefulSet", manifest)
        template = {"spec": {"template": {"spec": {"nodeSelector": {ZONE: "zone-a"}}}}}
        path = f"{APPS.format(namespace, 'statefulsets')}/db"
        sandbox.api.request("PATCH", path, template)
        wait_until(lambda: sandbox.api.get(path)["status"].get("updatedReplicas") == 1, "db-1 to be recreated")
        wait_for_ready_pods(sandbox, namespace, "db", 2)
        assert [why(sandbox, namespace, name) for name in ("db-0", "db-1")] == [None, None]


class TestOtherPods:
    """Pods whose replacement would differ are held, with a message that names the difference."""

    @pytest.fixture
    def web(self, sandbox: Sandbox, namespace: str) -> list[str]:
        created(sandbox, namespace, "ReplicaSet", of_kind("ReplicaSet", "web", constraints=[constraint(ZONE, "web")]))
        return sorted(pod["metadata"]["name"] for pod in pods(sandbox, namespace))

    def test_a_pod_resized_in_place_is_held(self, sandbox: Sandbox, namespace: str, web: list[str]) -> None:
        one, two = web
        resize(sandbox, namespace, one, "10m")
        held = why(sandbox, namespace, one)
        assert held is not None
        assert held.reason is Reason.TEMPLATE_DIFFERS
        assert "the request for cpu is 10m, in the template 100m" in held.message
        assert "victims.changedPods: Evict" in held.message
        assert why(sandbox, namespace, two) is None
        assert why(sandbox, namespace, one, VictimRules(changed_pods="Evict")) is None

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"spec": {"nodeSelector": {"disk": "ssd"}}}, "nodeSelector"),
            ({"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}, "tolerations"),
            ({"spec": {"schedulerName": "other"}}, "schedulerName"),
            ({"spec": {"topologySpreadConstraints": [constraint(HOSTNAME, "web")]}}, "topologySpreadConstraints"),
            ({"spec": {"schedulingGates": [{"name": "example.org/wait"}]}}, "schedulingGates"),
            ({"spec": {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}]}}, "volumes"),
            ({"spec": {"priorityClassName": "system-cluster-critical"}}, "priorityClassName"),
            ({"metadata": {"labels": {"tier": "front"}}}, "the label tier"),
        ],
        ids=lambda each: each if isinstance(each, str) else "",
    )
    def test_a_pod_of_an_older_template_is_held(
        self, sandbox: Sandbox, namespace: str, web: list[str], change: dict[str, Any], field: str
    ) -> None:
        """Changing the template of a ReplicaSet does not change its pods."""
        path = f"{APPS.format(namespace, 'replicasets')}/web"
        sandbox.api.request("PATCH", path, {"spec": {"template": change}})

        def seen() -> bool:
            found = sandbox.api.get(path)
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        wait_until(seen, "the controller to see it")
        held = why(sandbox, namespace, web[0])
        assert held is not None
        assert held.reason is Reason.TEMPLATE_DIFFERS
        assert f"{field} is " in held.message

    def test_a_pod_with_additions_to_its_template_is_held(
        self, sandbox: Sandbox, namespace: str, web: list[str]
    ) -> None:
        """The replacement lacks a toleration that was added to the pod, and a label that a constraint selects."""
        path = f"{CORE.format(namespace, 'pods')}/{web[0]}"
        tolerations = [*sandbox.api.get(path)["spec"]["tolerations"], {"key": "dedicated", "operator": "Exists"}]
        sandbox.api.request("PATCH", path, {"spec": {"tolerations": tolerations}})
        held = why(sandbox, namespace, web[0])
        assert held is not None
        assert "tolerations is " in held.message

    def test_a_pod_is_held_if_a_limit_range_has_changed(self, sandbox: Sandbox, namespace: str) -> None:
        containers = [{"name": "main", "image": "simulated"}]
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web", containers=containers))
        assert why(sandbox, namespace) is None
        sandbox.api.request("POST", CORE.format(namespace, "limitranges"), LIMIT_RANGE)
        held = why(sandbox, namespace)
        assert held is not None
        assert held.reason is Reason.TEMPLATE_DIFFERS
        assert "the request for cpu is absent" in held.message or "the request for cpu is 0m" in held.message


class TestRefused:
    """Replacements that admission would reject."""

    def quota(self, sandbox: Sandbox, namespace: str, **spec: Any) -> None:
        path = CORE.format(namespace, "resourcequotas")
        sandbox.api.request("POST", path, {"metadata": {"name": "most"}, "spec": spec})

        def counted() -> bool:
            status = sandbox.api.get(f"{path}/most").get("status", {})
            return bool(status.get("hard") == spec["hard"] and set(status.get("used", {})) == set(spec["hard"]))

        wait_until(counted, "the quota's status")

    def reasons(self, sandbox: Sandbox, namespace: str, *, both: bool = False) -> list[Reason | None]:
        snapshot = take_snapshot(sandbox)
        victims = of(snapshot, namespace)[: 2 if both else 1]
        return [None if held is None else held.reason for held in looked_at(sandbox, snapshot, *victims)]

    @pytest.mark.parametrize(
        ("spec", "refused"),
        [
            ({"hard": {"pods": "2"}}, True),
            ({"hard": {"pods": "3"}}, False),
            ({"hard": {"requests.cpu": "299m"}}, True),
            ({"hard": {"requests.cpu": "300m"}}, False),
            ({"hard": {"count/pods": "2"}}, True),
            ({"hard": {"pods": "2"}, "scopes": ["BestEffort"]}, False),
            ({"hard": {"pods": "2"}, "scopes": ["NotBestEffort"]}, True),
            ({"hard": {"pods": "2"}, "scopes": ["NotTerminating"]}, True),
            ({"hard": {"pods": "2"}, "scopes": ["Terminating"]}, False),
            ({"hard": {"limits.cpu": "100"}}, True),
            ({"hard": {"configmaps": "1"}}, False),
        ],
        ids=str,
    )
    def test_a_quota_counts_the_evicted_pod_until_it_is_deleted(
        self, sandbox: Sandbox, namespace: str, spec: dict[str, Any], *, refused: bool
    ) -> None:
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web"))
        self.quota(sandbox, namespace, **spec)
        assert self.reasons(sandbox, namespace) == [Reason.REPLACEMENT_REFUSED if refused else None]
        # the API server also rejects an equal pod
        pod = pods(sandbox, namespace)[0]
        container = {key: pod["spec"]["containers"][0][key] for key in ("name", "image", "resources")}
        like = {"metadata": {"name": "like"}, "spec": {"containers": [container]}}
        answer = sandbox.api.client.session.post(
            f"{sandbox.api.client.url}{CORE.format(namespace, 'pods')}?dryRun=All", json=like, timeout=30
        )
        assert (answer.status_code == 403) is refused, answer.text

    def test_a_stateful_set_creates_its_replacement_after_the_deletion(self, sandbox: Sandbox, namespace: str) -> None:
        created(sandbox, namespace, "StatefulSet", of_kind("StatefulSet", "db"))
        self.quota(sandbox, namespace, hard={"pods": "2", "requests.cpu": "200m"})
        assert self.reasons(sandbox, namespace) == [None]

    def test_a_lowered_quota_holds_the_move(self, sandbox: Sandbox, namespace: str) -> None:
        created(sandbox, namespace, "StatefulSet", of_kind("StatefulSet", "db"))
        self.quota(sandbox, namespace, hard={"pods": "1"})
        assert self.reasons(sandbox, namespace) == [Reason.REPLACEMENT_REFUSED]

    def test_two_moves_of_one_wave_share_what_is_left(self, sandbox: Sandbox, namespace: str) -> None:
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web"))
        self.quota(sandbox, namespace, hard={"pods": "3"})
        assert self.reasons(sandbox, namespace, both=True) == [None, Reason.IN_MOTION]

    def test_a_quota_counts_the_replacement_of_a_move_in_flight(self, sandbox: Sandbox, namespace: str) -> None:
        created(sandbox, namespace, "StatefulSet", of_kind("StatefulSet", "db"))
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web"))
        self.quota(sandbox, namespace, hard={"pods": "5"})
        snapshot = take_snapshot(sandbox)
        leaving, _, victim, _ = of(snapshot, namespace)
        under_way = Ledger().sent(move(leaving), snapshot, 0).answered(move(leaving), EVICTED.made, 0)
        (held,) = looked_at(sandbox, snapshot, victim, in_flight=under_way)
        assert held is not None
        assert held.reason is Reason.IN_MOTION
        assert f"do not show the replacement of {leaving.name} yet" in held.message

    def test_a_limit_range_that_forbids_the_template_holds_the_move(self, sandbox: Sandbox, namespace: str) -> None:
        created(sandbox, namespace, "Deployment", of_kind("Deployment", "web"))
        limits = {"limits": [{"type": "Container", "min": {"cpu": "500m"}}]}
        path = CORE.format(namespace, "limitranges")
        sandbox.api.request("POST", path, {"metadata": {"name": "least"}, "spec": limits})
        held = why(sandbox, namespace)
        assert held is not None
        assert held.reason is Reason.REPLACEMENT_REFUSED
        assert "LimitRange least would refuse the replacement: container main" in held.message
