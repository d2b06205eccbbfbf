"""The last look at real controllers, at rest and in motion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from respread.api.policy import TrustedController, VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.owners import last_look
from respread.eviction.owners.last_look import OtherControllers, Owners
from respread.kube.requests import Requests, Response
from respread.moves.ledger import Ledger
from respread_sandbox import Sandbox
from tests.eviction_moves import group, move
from tests.fake_requests import PassedOn, Send
from tests.integration.definitions import DEFINITIONS, wait_until_served
from tests.integration.eviction.carrying import without_controllers
from tests.integration.eviction_cluster import requests_to, with_requests
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import create_deployment, deployment, pods, scale, wait_for_ready_pods, wait_until
from tests.processes import PATIENCE_SECONDS

Planned: TypeAlias = tuple[ClusterSnapshot, Pod]
"""What a move was planned on, and the pod that it evicts."""
RULES = VictimRules()
EVICTED = Answer(result=EvictionResult.EVICTED)
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{}/statefulsets"
WITHOUT_A_NODE = {"spec": {"template": {"spec": {"nodeSelector": {"there-is": "no-such-node"}}}}}
"""A change of a template after which a rollout stays in the middle."""


def why(
    sandbox: Sandbox, snapshot: ClusterSnapshot, pod: Pod, *, evicted: Pod | None = None, kubeconfig: Path | None = None
) -> Held | None:
    in_flight = Ledger()
    if evicted is not None:
        in_flight = in_flight.sent(move(evicted), snapshot, 0).answered(move(evicted), EVICTED.made, 0)
    return with_requests(
        kubeconfig or sandbox.kubeconfig,
        lambda requests: Owners(requests, lambda: 0.0).why_not_at_rest(move(pod), RULES, snapshot, in_flight),
    )


def reason(held: Held | None) -> Reason | None:
    return None if held is None else held.reason


def pods_of(snapshot: ClusterSnapshot, namespace: str) -> list[Pod]:
    found = [pod for key, pod in snapshot.pods.items() if key.namespace == namespace]
    return sorted(found, key=lambda pod: pod.name)


@pytest.fixture
def web(sandbox: Sandbox, namespace: str) -> Planned:
    """A Deployment with three Ready pods, and one of them."""
    create_deployment(sandbox, namespace, deployment("web", replicas=3))
    wait_for_ready_pods(sandbox, namespace, "web", 3)
    wait_until(lambda: updated(sandbox, namespace) == 3, "the Deployment's status")
    snapshot = take_snapshot(sandbox)
    return snapshot, pods_of(snapshot, namespace)[0]


def updated(sandbox: Sandbox, namespace: str) -> int:
    count: int = sandbox.api.get(f"{DEPLOYMENTS.format(namespace)}/web")["status"].get("updatedReplicas", 0)
    return count


def delete(sandbox: Sandbox, pod: Pod) -> None:
    sandbox.api.request("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}?gracePeriodSeconds=0")


class TestDeployment:
    """A Deployment and its ReplicaSet."""

    def test_a_deployment_at_rest_allows_evictions(self, sandbox: Sandbox, web: Planned) -> None:
        snapshot, pod = web
        assert why(sandbox, snapshot, pod) is None

    def test_a_pod_evicted_by_another_client_has_no_replacement_yet(self, sandbox: Sandbox, web: Planned) -> None:
        before, pod = web
        other = pods_of(before, pod.namespace)[1]
        with without_controllers(sandbox):
            delete(sandbox, other)
            held = why(sandbox, take_snapshot(sandbox), pod)
            assert reason(held) is Reason.IN_MOTION
            assert "has 2 pods and wants 3: a replacement is still to come" in str(held)
            # the last look detects the missing pod also if the watch stalled before
            assert reason(why(sandbox, before, pod)) is Reason.IN_MOTION
            # the operator's own eviction is expected
            assert why(sandbox, before, pod, evicted=other) is None

    def test_a_plan_from_an_outdated_watch_is_held(self, sandbox: Sandbox, web: Planned) -> None:
        before, pod = web
        delete(sandbox, pods_of(before, pod.namespace)[1])
        wait_for_ready_pods(sandbox, pod.namespace, "web", 3)
        held = why(sandbox, before, pod)
        assert reason(held) is Reason.IN_MOTION
        assert "have changed since the plan was made" in str(held)
        assert why(sandbox, take_snapshot(sandbox), pod) is None

    def test_a_scale_down_that_was_just_requested_holds_the_move(self, sandbox: Sandbox, web: Planned) -> None:
        snapshot, pod = web
        with without_controllers(sandbox):
            scale(sandbox, pod.namespace, "web", 2)
            held = why(sandbox, snapshot, pod)
            assert reason(held) is Reason.IN_MOTION
            assert "Deployment web has changed and its controller has not caught up" in str(held)

    def test_a_deployment_with_a_new_template_is_held_until_it_is_rolled_out(
        self, sandbox: Sandbox, web: Planned
    ) -> None:
        snapshot, pod = web
        path = f"{DEPLOYMENTS.format(pod.namespace)}/web"
        template = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        with without_controllers(sandbox):
            sandbox.api.request("PATCH", path, template)
            assert reason(why(sandbox, snapshot, pod)) is Reason.IN_MOTION

        def rolled_out() -> bool:
            found = sandbox.api.get(path)
            status = found["status"]
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            is_updated = status.get("updatedReplicas") == status["replicas"] == status.get("availableReplicas") == 3
            return seen and is_updated and len(pods(sandbox, pod.namespace, "web")) == 3

        wait_until(rolled_out, "the rollout to end")
        assert why(sandbox, take_snapshot(sandbox), pods_of(take_snapshot(sandbox), pod.namespace)[0]) is None
        held = why(sandbox, snapshot, pod)
        assert held is not None

    def test_a_deployment_in_the_middle_of_a_rollout_is_held(self, sandbox: Sandbox, web: Planned) -> None:
        _, pod = web
        sandbox.api.request("PATCH", f"{DEPLOYMENTS.format(pod.namespace)}/web", WITHOUT_A_NODE)
        wait_until(lambda: updated(sandbox, pod.namespace) == 1, "the first new pod, for which there is no node")
        held = why(sandbox, take_snapshot(sandbox), pod)
        assert reason(held) is Reason.IN_MOTION
        assert "Deployment web is being rolled out: 3 of its pods are of an older template" in str(held)

    def test_a_deployment_paused_in_a_rollout_is_protected(self, sandbox: Sandbox, web: Planned) -> None:
        snapshot, pod = web
        path = f"{DEPLOYMENTS.format(pod.namespace)}/web"
        changed = {"spec": {"paused": True, "template": {"metadata": {"annotations": {"version": "2"}}}}}
        sandbox.api.request("PATCH", path, changed)
        wait_until(lambda: updated(sandbox, pod.namespace) == 0, "the controller to see it")
        held = why(sandbox, snapshot, pod)
        assert reason(held) is Reason.PROTECTED_POD
        assert "paused in the middle of a rollout, 3 of its pods" in str(held)

    def test_a_deleted_or_terminating_controller_holds_the_move(self, sandbox: Sandbox, web: Planned) -> None:
        snapshot, pod = web
        path = f"{DEPLOYMENTS.format(pod.namespace)}/web"
        with without_controllers(sandbox):
            sandbox.api.request("DELETE", path, {"propagationPolicy": "Foreground"})
            held = why(sandbox, snapshot, pod)
            assert reason(held) is Reason.UNKNOWN_REPLACEMENT
            assert "Deployment web is being deleted" in str(held)
        wait_until(lambda: not sandbox.api.exists(path), "the Deployment to go")
        held = why(sandbox, snapshot, pod)
        assert reason(held) is Reason.UNKNOWN_REPLACEMENT
        assert "is gone: nothing would replace the pod" in str(held)


def stateful_set(replicas: int, **spec: Any) -> dict[str, Any]:
    template = deployment("db", replicas=replicas)["spec"]["template"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
            **spec,
        },
    }


class TestStatefulSet:
    """A StatefulSet recreates each pod from the revision that its strategy selects."""

    def create(self, sandbox: Sandbox, namespace: str, **spec: Any) -> None:
        sandbox.api.request("POST", STATEFUL_SETS.format(namespace), stateful_set(3, **spec))
        wait_for_ready_pods(sandbox, namespace, "db", 3)

    def change_template(self, sandbox: Sandbox, namespace: str) -> None:
        template = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        sandbox.api.request("PATCH", f"{STATEFUL_SETS.format(namespace)}/db", template)

    def is_updated(self, sandbox: Sandbox, namespace: str, updated: int) -> bool:
        status = sandbox.api.get(f"{STATEFUL_SETS.format(namespace)}/db")["status"]
        seen = status.get("observedGeneration", 0), status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
        return bool(seen == (2, updated, 3))

    def test_a_stateful_set_is_held_during_a_rollout(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace)
        snapshot = take_snapshot(sandbox)
        pod = pods_of(snapshot, namespace)[2]
        assert why(sandbox, snapshot, pod) is None
        with without_controllers(sandbox):
            self.change_template(sandbox, namespace)
            assert reason(why(sandbox, snapshot, pod)) is Reason.IN_MOTION
        wait_until(lambda: self.is_updated(sandbox, namespace, 3), "the rollout to end")
        after = take_snapshot(sandbox)
        assert [reason(why(sandbox, after, each)) for each in pods_of(after, namespace)] == [None] * 3

    def test_a_stateful_set_in_the_middle_of_a_rollout_is_held(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace)
        path = f"{STATEFUL_SETS.format(namespace)}/db"
        sandbox.api.request("PATCH", path, WITHOUT_A_NODE)
        wait_until(
            lambda: sandbox.api.get(path)["status"].get("updatedReplicas") == 1,
            "the first new pod, for which there is no node",
        )
        snapshot = take_snapshot(sandbox)
        held = why(sandbox, snapshot, pods_of(snapshot, namespace)[0])
        assert reason(held) is Reason.IN_MOTION
        assert "StatefulSet db is being rolled out: db-0 is still at revision" in str(held)

    def test_pods_on_both_sides_of_a_partition_may_be_evicted(self, sandbox: Sandbox, namespace: str) -> None:
        partitioned = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        self.create(sandbox, namespace, updateStrategy=partitioned)
        self.change_template(sandbox, namespace)
        wait_until(lambda: self.is_updated(sandbox, namespace, 1), "db-2 to be of the new revision")
        before = take_snapshot(sandbox)
        revisions = {pod.name: pod.labels["controller-revision-hash"] for pod in pods_of(before, namespace)}
        assert revisions["db-0"] == revisions["db-1"] != revisions["db-2"]
        for name in revisions:
            now = take_snapshot(sandbox)
            pod = now.pods[ObjectKey(namespace, name)]
            assert why(sandbox, now, pod) is None
            delete(sandbox, pod)
            wait_for_ready_pods(sandbox, namespace, "db", 3)
        # each replacement has its pod's revision
        after = pods_of(take_snapshot(sandbox), namespace)
        assert {pod.name: pod.labels["controller-revision-hash"] for pod in after} == revisions

    def test_with_on_delete_a_pod_of_an_old_revision_is_protected(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace, updateStrategy={"type": "OnDelete"})
        self.change_template(sandbox, namespace)
        wait_until(lambda: self.is_updated(sandbox, namespace, 0), "the controller to see it")
        before = take_snapshot(sandbox)
        pod = pods_of(before, namespace)[1]
        held = why(sandbox, before, pod)
        assert reason(held) is Reason.PROTECTED_POD
        delete(sandbox, pod)
        wait_for_ready_pods(sandbox, namespace, "db", 3)
        wait_until(lambda: self.is_updated(sandbox, namespace, 1), "the new pod to be counted")
        after = take_snapshot(sandbox)
        new = after.pods[ObjectKey(namespace, "db-1")]
        assert new.labels["controller-revision-hash"] != pod.labels["controller-revision-hash"]
        assert why(sandbox, after, new) is None


def test_a_replication_controller_is_read(sandbox: Sandbox, namespace: str) -> None:
    template = deployment("old", replicas=3)["spec"]["template"]
    manifest = {"metadata": {"name": "old"}, "spec": {"replicas": 3, "selector": {"app": "old"}, "template": template}}
    path = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    sandbox.api.request("POST", path, manifest)
    wait_for_ready_pods(sandbox, namespace, "old", 3)
    snapshot = take_snapshot(sandbox)
    pod = pods_of(snapshot, namespace)[0]
    assert why(sandbox, snapshot, pod) is None
    with without_controllers(sandbox):
        sandbox.api.request("PATCH", f"{path}/old", {"spec": {"replicas": 2}})
        assert reason(why(sandbox, snapshot, pod)) is Reason.IN_MOTION


def test_a_controller_of_an_unknown_kind_is_not_read(sandbox: Sandbox, web: Planned) -> None:
    snapshot, pod = web
    fields = {name: getattr(pod, name) for name in pod.__struct_fields__}
    fields["controller"] = OwnerReference("batch/v1", "Job", "web", "uid")
    assert reason(why(sandbox, snapshot, Pod(**fields))) is Reason.UNKNOWN_REPLACEMENT


def test_a_read_is_reused_for_a_moment_and_includes_respreads_evictions(sandbox: Sandbox, web: Planned) -> None:
    snapshot, pod = web
    one, two, _ = pods_of(snapshot, pod.namespace)
    now = 0.0

    async def scenario(requests: Requests) -> list[Reason | None]:
        nonlocal now
        owners, ours = Owners(requests, lambda: now), Ledger()
        found = [reason(await owners.why_not_at_rest(move(one), RULES, snapshot, ours))]
        delete(sandbox, one)
        ours = ours.sent(move(one), snapshot, 0).answered(move(one), EVICTED.made, 0)
        found.append(reason(await owners.why_not_at_rest(move(two), RULES, snapshot, ours)))
        found.append(reason(await owners.why_not_at_rest(move(two), RULES, snapshot, Ledger())))
        now = 2.0
        found.append(reason(await owners.why_not_at_rest(move(two), RULES, snapshot, Ledger())))
        owners = owners.without_readings()
        found.append(reason(await owners.why_not_at_rest(move(two), RULES, snapshot, ours)))
        return found

    with without_controllers(sandbox):
        assert with_requests(sandbox.kubeconfig, scenario) == [None, None, None, Reason.IN_MOTION, None]


def test_missing_permissions_are_named(sandbox: Sandbox, web: Planned) -> None:
    snapshot, pod = web
    kubeconfig = sandbox.kubeconfig_for_service_account(pod.namespace, "default")
    held = why(sandbox, snapshot, pod, kubeconfig=kubeconfig)
    assert reason(held) is Reason.API_UNAVAILABLE
    assert 'cannot get resource "replicasets"' in str(held)
    assert "ClusterRole" in str(held)


class TestOtherWorkloads:
    """Missing pods of other workloads that a spread group counts may restore it."""

    def test_a_missing_pod_of_another_workload_in_the_group_holds_the_move(
        self, sandbox: Sandbox, namespace: str, web: Planned
    ) -> None:
        _, pod = web
        create_deployment(sandbox, namespace, deployment("other", replicas=2))
        wait_for_ready_pods(sandbox, namespace, "other", 2)
        snapshot = take_snapshot(sandbox)
        assert why(sandbox, snapshot, pod) is None
        with without_controllers(sandbox):
            delete(sandbox, next(each for each in pods_of(snapshot, namespace) if each.labels["app"] == "other"))
            held = why(sandbox, take_snapshot(sandbox), pod)
        assert reason(held) is Reason.IN_MOTION
        assert "pods of another workload are in its spread group, and ReplicaSet other-" in str(held)
        assert "has 1 pods and wants 2" in str(held)


class TestWantedReplacements:
    """Whether an evicted pod will be replaced."""

    def wanted(self, sandbox: Sandbox, pod: Pod, kubeconfig: Path | None = None) -> bool:
        snapshot = take_snapshot(sandbox)
        return with_requests(
            kubeconfig or sandbox.kubeconfig,
            lambda requests: Owners(requests, lambda: 0.0).wants_replacement(pod, snapshot),
        )

    def test_a_replacement_of_a_replica_set_is_wanted_below_its_replicas(self, sandbox: Sandbox, web: Planned) -> None:
        _, pod = web
        with without_controllers(sandbox):
            delete(sandbox, pod)
            assert self.wanted(sandbox, pod)
        wait_for_ready_pods(sandbox, pod.namespace, "web", 3)
        assert not self.wanted(sandbox, pod)
        sandbox.api.request("DELETE", f"{DEPLOYMENTS.format(pod.namespace)}/web")
        wait_until(lambda: pods(sandbox, pod.namespace, "web") == [], "the Deployment to go")
        assert not self.wanted(sandbox, pod)

    def test_a_replacement_of_a_stateful_set_is_wanted_by_its_ordinals(self, sandbox: Sandbox, namespace: str) -> None:
        ordinals = {"ordinals": {"start": 5}}
        sandbox.api.request("POST", STATEFUL_SETS.format(namespace), stateful_set(2, **ordinals))
        wait_for_ready_pods(sandbox, namespace, "db", 2)
        first, last = pods_of(take_snapshot(sandbox), namespace)
        assert (first.name, last.name) == ("db-5", "db-6")
        sandbox.api.request("PATCH", f"{STATEFUL_SETS.format(namespace)}/db", {"spec": {"replicas": 1}})
        assert self.wanted(sandbox, first)
        assert not self.wanted(sandbox, last)

    def test_a_replacement_is_wanted_if_its_owner_can_not_be_read(self, sandbox: Sandbox, web: Planned) -> None:
        _, pod = web
        assert self.wanted(sandbox, pod, sandbox.kubeconfig_for_service_account(pod.namespace, "default"))


class TestOrderedReady:
    """Under OrderedReady a StatefulSet creates one pod after another, in the order of their ordinals."""

    def broken(self, sandbox: Sandbox, namespace: str, name: str) -> None:
        """Make a pod permanently unready. Only KWOK makes pods Ready."""
        status = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        sandbox.api.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    def create(self, sandbox: Sandbox, namespace: str, **spec: Any) -> None:
        sandbox.api.request("POST", STATEFUL_SETS.format(namespace), stateful_set(3, **spec))
        wait_for_ready_pods(sandbox, namespace, "db", 3)

    def reasons(self, sandbox: Sandbox, namespace: str) -> list[Reason | None]:
        snapshot = take_snapshot(sandbox)
        return [reason(why(sandbox, snapshot, pod)) for pod in pods_of(snapshot, namespace)]

    def test_a_lower_ordinal_that_is_broken_holds_the_move(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace)
        assert self.reasons(sandbox, namespace) == [None] * 3
        self.broken(sandbox, namespace, "db-1")
        assert self.reasons(sandbox, namespace) == [None, None, Reason.REPLACEMENT_WOULD_WAIT]
        held = why(sandbox, take_snapshot(sandbox), pods_of(take_snapshot(sandbox), namespace)[2])
        assert "db-1 is not Ready" in str(held)

        # the controller recreates db-2 only when db-1 is Ready again
        delete(sandbox, pods_of(take_snapshot(sandbox), namespace)[2])
        self.touch(sandbox, namespace)
        assert [pod["metadata"]["name"] for pod in pods(sandbox, namespace)] == ["db-0", "db-1"]
        delete(sandbox, pods_of(take_snapshot(sandbox), namespace)[1])
        wait_for_ready_pods(sandbox, namespace, "db", 3)

    def touch(self, sandbox: Sandbox, namespace: str) -> None:
        """Trigger another sync of the set by the controller."""
        path = f"{STATEFUL_SETS.format(namespace)}/db"
        sandbox.api.request("PATCH", path, {"spec": {"revisionHistoryLimit": 5}})

        def seen() -> bool:
            found = sandbox.api.get(path)
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        wait_until(seen, "the controller to see the change")

    def test_a_lower_ordinal_that_is_not_yet_available_holds_the_move(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace, minReadySeconds=1)
        sandbox.api.request("PATCH", f"{STATEFUL_SETS.format(namespace)}/db", {"spec": {"minReadySeconds": 86400}})
        self.touch(sandbox, namespace)
        waits = Reason.REPLACEMENT_WOULD_WAIT
        assert self.reasons(sandbox, namespace) == [None, waits, waits]

    def test_parallel_sets_hold_no_move(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace, podManagementPolicy="Parallel")
        before = take_snapshot(sandbox)
        self.broken(sandbox, namespace, "db-0")
        assert self.reasons(sandbox, namespace) == [None] * 3
        # but a plan from before, which did not count the broken pod for the limits, is held
        held = why(sandbox, before, pods_of(before, namespace)[2])
        assert reason(held) is Reason.IN_MOTION
        assert "no longer Ready since the plan was made (db-0)" in str(held)

    def test_a_pod_whose_ordinal_is_not_wanted_any_more_holds_the_set(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace, podManagementPolicy="Parallel")
        quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "3"}}}
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        sandbox.api.request("POST", path, quota)
        wait_until(lambda: sandbox.api.get(f"{path}/pods")["status"].get("used") == {"pods": "3"}, "the quota to count")
        sandbox.api.request("PATCH", f"{STATEFUL_SETS.format(namespace)}/db", {"spec": {"ordinals": {"start": 1}}})
        self.touch(sandbox, namespace)
        assert [pod["metadata"]["name"] for pod in pods(sandbox, namespace)] == ["db-0", "db-1", "db-2"]
        assert self.reasons(sandbox, namespace) == [Reason.IN_MOTION] * 3
        held = why(sandbox, take_snapshot(sandbox), pods_of(take_snapshot(sandbox), namespace)[0])
        assert "db-0 is none of its 3 pods any more" in str(held)

    def test_moves_in_flight_at_other_ordinals_hold_the_move(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace)
        snapshot = take_snapshot(sandbox)
        one, two, three = pods_of(snapshot, namespace)
        with without_controllers(sandbox):
            delete(sandbox, two)
            after = take_snapshot(sandbox)
            held = why(sandbox, after, three, evicted=two)
            assert reason(held) is Reason.IN_MOTION
            assert "db-1 is missing" in str(held)
            held = why(sandbox, after, one, evicted=two)
            assert reason(held) is Reason.IN_MOTION
            assert "would create db-1" in str(held)


ROLLOUTS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rollouts.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"kind": "Rollout", "plural": "rollouts", "singular": "rollout"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class TestCustomOwners:
    """A ReplicaSet whose owner is a custom resource."""

    @pytest.fixture
    def owned(self, sandbox: Sandbox, namespace: str) -> Planned:
        if not sandbox.api.exists(f"{DEFINITIONS}/rollouts.example.org"):
            sandbox.api.request("POST", DEFINITIONS, ROLLOUTS)
        path = f"/apis/example.org/v1/namespaces/{namespace}/rollouts"
        wait_until_served(sandbox, "example.org/v1", "rollouts")
        manifest = {"apiVersion": "example.org/v1", "kind": "Rollout", "metadata": {"name": "web"}}
        rollout = sandbox.api.request("POST", path, manifest)
        replica_set = deployment("web", replicas=2) | {"kind": "ReplicaSet"}
        replica_set["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "example.org/v1",
                "kind": "Rollout",
                "name": "web",
                "uid": rollout["metadata"]["uid"],
                "controller": True,
            }
        ]
        sandbox.api.request("POST", f"/apis/apps/v1/namespaces/{namespace}/replicasets", replica_set)
        wait_for_ready_pods(sandbox, namespace, "web", 2)
        snapshot = take_snapshot(sandbox)
        return snapshot, pods_of(snapshot, namespace)[0]

    def look(self, sandbox: Sandbox, snapshot: ClusterSnapshot, pod: Pod, rules: VictimRules) -> Held | None:
        return with_requests(
            sandbox.kubeconfig,
            lambda requests: Owners(requests, lambda: 0.0).why_not_at_rest(move(pod), rules, snapshot, Ledger()),
        )

    def test_an_owner_of_an_unknown_kind_holds_the_move(self, sandbox: Sandbox, owned: Planned) -> None:
        snapshot, pod = owned
        held = why(sandbox, snapshot, pod)
        assert reason(held) is Reason.UNKNOWN_OWNER
        assert "ReplicaSet web belongs to Rollout web (example.org/v1)" in str(held)
        assert "victims.trustedControllers" in str(held)

    def test_an_owner_that_is_not_the_controller_holds_the_move_too(
        self, sandbox: Sandbox, namespace: str, owned: Planned
    ) -> None:
        """Some operators own what they create without `controller: true`."""
        snapshot, pod = owned
        path = f"/apis/apps/v1/namespaces/{namespace}/replicasets/web"
        (owner,) = sandbox.api.get(path)["metadata"]["ownerReferences"]
        owners = [{**owner, "controller": False}]
        sandbox.api.request("PATCH", path, {"metadata": {"ownerReferences": owners}})
        held = why(sandbox, snapshot, pod)
        assert reason(held) is Reason.UNKNOWN_OWNER
        assert "Rollout web (example.org/v1)" in str(held)
        rules = VictimRules(trusted_controllers=(TrustedController(group="example.org", kind="Rollout"),))
        assert self.look(sandbox, snapshot, pod, rules) is None

    @pytest.mark.parametrize(("group", "kind", "may"), [("example.org", "Rollout", True), ("", "Rollout", False)])
    def test_an_owner_that_the_policy_trusts_allows_the_move(
        self, sandbox: Sandbox, owned: Planned, group: str, kind: str, *, may: bool
    ) -> None:
        snapshot, pod = owned
        rules = VictimRules(trusted_controllers=(TrustedController(group=group, kind=kind),))
        assert (self.look(sandbox, snapshot, pod, rules) is None) is may


class Watched(PassedOn):
    """Requests that count reads and concurrent reads."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests)
        self.paths: Counter[tuple[str, str]] = Counter()
        self.most = self._now = 0

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **_: Any) -> Response:
        self.paths[path, names.get("name", "")] += 1
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            return await send()
        finally:
            self._now -= 1


class TestManyControllers:
    """A selector over 100 controllers."""

    NUMBER = 100

    async def test_each_controller_is_read_once_per_wave_and_several_concurrently(
        self, sandbox: Sandbox, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        patient = partial(OtherControllers, reading_seconds=PATIENCE_SECONDS)  # on a slow machine
        monkeypatch.setattr(last_look, "OtherControllers", patient)
        path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
        for number in range(self.NUMBER):
            manifest = deployment(f"web-{number}", replicas=1, cpu="1m") | {"kind": "ReplicaSet"}
            sandbox.api.request("POST", path, manifest)

        def all_scheduled() -> bool:
            found = pods(sandbox, namespace)
            return len(found) == self.NUMBER and all("nodeName" in pod["spec"] for pod in found)

        wait_until(all_scheduled, "all pods to have a node")
        snapshot = take_snapshot(sandbox)
        one, two, *_ = pods_of(snapshot, namespace)
        everything = group(namespace)
        async with requests_to(sandbox.kubeconfig) as requests:
            watched = Watched(requests)
            owners, rules = Owners(watched, lambda: 0.0), VictimRules(min_replicas=1)
            for pod in (one, two, one):
                one_of_all = move(pod, groups=(everything,))
                assert await owners.why_not_at_rest(one_of_all, rules, snapshot, Ledger()) is None
        read = {name: count for (path, name), count in watched.paths.items() if path.endswith("replicasets/{name}")}
        assert len(read) == self.NUMBER
        # the controllers of the two moves are read again, with their pods
        assert {name for name, count in read.items() if count > 1} <= {one.controller.name, two.controller.name}  # type: ignore[union-attr]  # they have one
        assert watched.most > 4
