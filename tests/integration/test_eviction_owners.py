"""Real controllers, at rest and not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from respread.api.reasons import Reason
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.in_flight import InFlight
from respread.eviction.owners import Owners
from respread.eviction.requests import Requests
from respread.planning.held import Held
from respread.sandbox import Sandbox
from respread.sandbox.components import CONTROLLER_MANAGER
from tests.integration.eviction_cluster import with_requests
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import create_deployment, deployment, pods, scale, wait_for_ready_pods, wait_until
from tests.unit.eviction_moves import move

EVICTED = Answer(result=EvictionResult.EVICTED)
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{}/statefulsets"


def why(
    sandbox: Sandbox, snapshot: ClusterSnapshot, pod: Pod, *, evicted: Pod | None = None, kubeconfig: Path | None = None
) -> Held | None:
    in_flight = InFlight()
    if evicted is not None:
        in_flight = in_flight.sent(move(evicted), snapshot, 0).answered(move(evicted), EVICTED, 0)
    return with_requests(
        kubeconfig or sandbox.kubeconfig,
        lambda requests: Owners(requests, lambda: 0.0).why_not_at_rest(move(pod), snapshot, in_flight),
    )


def reason(held: Held | None) -> Reason | None:
    return None if held is None else held.reason


def pods_of(snapshot: ClusterSnapshot, namespace: str) -> list[Pod]:
    found = [pod for key, pod in snapshot.pods.items() if key.namespace == namespace]
    return sorted(found, key=lambda pod: pod.name)


@contextmanager
def without_controllers(sandbox: Sandbox) -> Iterator[None]:
    """No controller does anything meanwhile."""
    sandbox.freeze_component(CONTROLLER_MANAGER)
    try:
        yield
    finally:
        sandbox.thaw_component(CONTROLLER_MANAGER)


@pytest.fixture
def web(sandbox: Sandbox, namespace: str) -> tuple[ClusterSnapshot, Pod]:
    """A Deployment of three Ready pods, and one of them."""
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

    def test_at_rest(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
        snapshot, pod = web
        assert why(sandbox, snapshot, pod) is None

    def test_a_pod_that_somebody_evicted_has_no_replacement_yet(
        self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]
    ) -> None:
        before, pod = web
        other = pods_of(before, pod.namespace)[1]
        with without_controllers(sandbox):
            delete(sandbox, other)
            held = why(sandbox, take_snapshot(sandbox), pod)
            assert reason(held) is Reason.IN_MOTION
            assert "has 2 pods and wants 3: a replacement is still to come" in str(held)
            # a watch that stalled before that is found out just so
            assert reason(why(sandbox, before, pod)) is Reason.IN_MOTION
            # and if it was us, it is expected
            assert why(sandbox, before, pod, evicted=other) is None

    def test_what_we_watched_is_behind(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
        before, pod = web
        delete(sandbox, pods_of(before, pod.namespace)[1])
        wait_for_ready_pods(sandbox, pod.namespace, "web", 3)
        held = why(sandbox, before, pod)
        assert reason(held) is Reason.IN_MOTION
        assert "have changed since the plan was made" in str(held)
        assert why(sandbox, take_snapshot(sandbox), pod) is None

    def test_a_scale_down_just_asked_for(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
        snapshot, pod = web
        with without_controllers(sandbox):
            scale(sandbox, pod.namespace, "web", 1)
            held = why(sandbox, snapshot, pod)
            assert reason(held) is Reason.IN_MOTION
            assert "Deployment web has changed and its controller has not caught up" in str(held)

    def test_a_new_template_just_asked_for_and_rolled_out(
        self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]
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
            settled = status.get("updatedReplicas") == status["replicas"] == status.get("availableReplicas") == 3
            return seen and settled and len(pods(sandbox, pod.namespace, "web")) == 3

        wait_until(rolled_out, "the rollout to end")
        assert why(sandbox, take_snapshot(sandbox), pods_of(take_snapshot(sandbox), pod.namespace)[0]) is None
        held = why(sandbox, snapshot, pod)
        assert held is not None

    def test_paused_with_another_template(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
        snapshot, pod = web
        path = f"{DEPLOYMENTS.format(pod.namespace)}/web"
        changed = {"spec": {"paused": True, "template": {"metadata": {"annotations": {"version": "2"}}}}}
        sandbox.api.request("PATCH", path, changed)
        wait_until(lambda: updated(sandbox, pod.namespace) == 0, "the controller to see it")
        held = why(sandbox, snapshot, pod)
        assert reason(held) is Reason.PROTECTED_POD
        assert "paused in the middle of a rollout, 3 of its pods" in str(held)

    def test_its_controller_is_gone_or_going(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
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
    """A StatefulSet makes each pod anew from the revision that its strategy says."""

    def create(self, sandbox: Sandbox, namespace: str, **spec: Any) -> None:
        sandbox.api.request("POST", STATEFUL_SETS.format(namespace), stateful_set(3, **spec))
        wait_for_ready_pods(sandbox, namespace, "db", 3)

    def change_template(self, sandbox: Sandbox, namespace: str) -> None:
        template = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        sandbox.api.request("PATCH", f"{STATEFUL_SETS.format(namespace)}/db", template)

    def settled(self, sandbox: Sandbox, namespace: str, updated: int) -> bool:
        status = sandbox.api.get(f"{STATEFUL_SETS.format(namespace)}/db")["status"]
        seen = status["observedGeneration"], status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
        return bool(seen == (2, updated, 3))

    def test_from_the_first_revision_to_the_second(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace)
        snapshot = take_snapshot(sandbox)
        pod = pods_of(snapshot, namespace)[2]
        assert why(sandbox, snapshot, pod) is None
        with without_controllers(sandbox):
            self.change_template(sandbox, namespace)
            assert reason(why(sandbox, snapshot, pod)) is Reason.IN_MOTION
        wait_until(lambda: self.settled(sandbox, namespace, 3), "the rollout to end")
        after = take_snapshot(sandbox)
        assert [reason(why(sandbox, after, each)) for each in pods_of(after, namespace)] == [None] * 3

    def test_a_partition_that_stays(self, sandbox: Sandbox, namespace: str) -> None:
        partitioned = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        self.create(sandbox, namespace, updateStrategy=partitioned)
        self.change_template(sandbox, namespace)
        wait_until(lambda: self.settled(sandbox, namespace, 1), "db-2 to be of the new revision")
        before = take_snapshot(sandbox)
        revisions = {pod.name: pod.labels["controller-revision-hash"] for pod in pods_of(before, namespace)}
        assert revisions["db-0"] == revisions["db-1"] != revisions["db-2"]
        for name in revisions:
            now = take_snapshot(sandbox)
            pod = now.pods[ObjectKey(namespace, name)]
            assert why(sandbox, now, pod) is None
            delete(sandbox, pod)
            wait_for_ready_pods(sandbox, namespace, "db", 3)
        # and it was right: each has come back as it was
        after = pods_of(take_snapshot(sandbox), namespace)
        assert {pod.name: pod.labels["controller-revision-hash"] for pod in after} == revisions

    def test_on_delete_brings_back_something_else(self, sandbox: Sandbox, namespace: str) -> None:
        self.create(sandbox, namespace, updateStrategy={"type": "OnDelete"})
        self.change_template(sandbox, namespace)
        wait_until(lambda: self.settled(sandbox, namespace, 0), "the controller to see it")
        before = take_snapshot(sandbox)
        pod = pods_of(before, namespace)[1]
        held = why(sandbox, before, pod)
        assert reason(held) is Reason.PROTECTED_POD
        delete(sandbox, pod)
        wait_for_ready_pods(sandbox, namespace, "db", 3)
        wait_until(lambda: self.settled(sandbox, namespace, 1), "the new pod to be counted")
        after = take_snapshot(sandbox)
        new = after.pods[ObjectKey(namespace, "db-1")]
        assert new.labels["controller-revision-hash"] != pod.labels["controller-revision-hash"]
        assert why(sandbox, after, new) is None


def test_a_replication_controller(sandbox: Sandbox, namespace: str) -> None:
    template = deployment("old", replicas=2)["spec"]["template"]
    manifest = {"metadata": {"name": "old"}, "spec": {"replicas": 2, "selector": {"app": "old"}, "template": template}}
    path = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    sandbox.api.request("POST", path, manifest)
    wait_for_ready_pods(sandbox, namespace, "old", 2)
    snapshot = take_snapshot(sandbox)
    pod = pods_of(snapshot, namespace)[0]
    assert why(sandbox, snapshot, pod) is None
    with without_controllers(sandbox):
        sandbox.api.request("PATCH", f"{path}/old", {"spec": {"replicas": 1}})
        assert reason(why(sandbox, snapshot, pod)) is Reason.IN_MOTION


def test_a_controller_of_a_kind_we_do_not_know_is_not_even_asked_for(
    sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]
) -> None:
    snapshot, pod = web
    fields = {name: getattr(pod, name) for name in pod.__struct_fields__}
    fields["controller"] = OwnerReference("batch/v1", "Job", "web", "uid")
    assert reason(why(sandbox, snapshot, Pod(**fields))) is Reason.UNKNOWN_REPLACEMENT


def test_one_reading_serves_for_a_moment_and_knows_what_we_did_meanwhile(
    sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]
) -> None:
    snapshot, pod = web
    one, two, _ = pods_of(snapshot, pod.namespace)
    now = 0.0

    async def scenario(requests: Requests) -> list[Reason | None]:
        nonlocal now
        owners, ours = Owners(requests, lambda: now), InFlight()
        found = [reason(await owners.why_not_at_rest(move(one), snapshot, ours))]
        delete(sandbox, one)
        ours = ours.sent(move(one), snapshot, 0).answered(move(one), EVICTED, 0)
        found.append(reason(await owners.why_not_at_rest(move(two), snapshot, ours)))
        found.append(reason(await owners.why_not_at_rest(move(two), snapshot, InFlight())))
        now = 2.0
        found.append(reason(await owners.why_not_at_rest(move(two), snapshot, InFlight())))
        owners.forget()
        found.append(reason(await owners.why_not_at_rest(move(two), snapshot, ours)))
        return found

    with without_controllers(sandbox):
        assert with_requests(sandbox.kubeconfig, scenario) == [None, None, None, Reason.IN_MOTION, None]


def test_rights_that_are_missing_are_named(sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
    snapshot, pod = web
    kubeconfig = sandbox.kubeconfig_for_service_account(pod.namespace, "default")
    held = why(sandbox, snapshot, pod, kubeconfig=kubeconfig)
    assert reason(held) is Reason.API_UNAVAILABLE
    assert 'cannot get resource "replicasets"' in str(held)
    assert "ClusterRole" in str(held)


class TestGroup:
    """Other workloads whose pods a spread group counts: what they miss may cure it."""

    def test_a_replacement_that_another_workload_waits_for(
        self, sandbox: Sandbox, namespace: str, web: tuple[ClusterSnapshot, Pod]
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


class TestWanted:
    """Whether a pod that has left is to be replaced at all."""

    def wanted(self, sandbox: Sandbox, pod: Pod, kubeconfig: Path | None = None) -> bool:
        snapshot = take_snapshot(sandbox)
        return with_requests(
            kubeconfig or sandbox.kubeconfig,
            lambda requests: Owners(requests, lambda: 0.0).wants_replacement(pod, snapshot),
        )

    def test_of_a_replica_set(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
        _, pod = web
        with without_controllers(sandbox):
            delete(sandbox, pod)
            assert self.wanted(sandbox, pod)
        wait_for_ready_pods(sandbox, pod.namespace, "web", 3)
        assert not self.wanted(sandbox, pod)
        sandbox.api.request("DELETE", f"{DEPLOYMENTS.format(pod.namespace)}/web")
        wait_until(lambda: pods(sandbox, pod.namespace, "web") == [], "the Deployment to go")
        assert not self.wanted(sandbox, pod)

    def test_of_a_stateful_set_by_its_ordinals(self, sandbox: Sandbox, namespace: str) -> None:
        ordinals = {"ordinals": {"start": 5}}
        sandbox.api.request("POST", STATEFUL_SETS.format(namespace), stateful_set(2, **ordinals))
        wait_for_ready_pods(sandbox, namespace, "db", 2)
        first, last = pods_of(take_snapshot(sandbox), namespace)
        assert (first.name, last.name) == ("db-5", "db-6")
        sandbox.api.request("PATCH", f"{STATEFUL_SETS.format(namespace)}/db", {"spec": {"replicas": 1}})
        assert self.wanted(sandbox, first)
        assert not self.wanted(sandbox, last)

    def test_what_cannot_be_told_is_wanted(self, sandbox: Sandbox, web: tuple[ClusterSnapshot, Pod]) -> None:
        _, pod = web
        assert self.wanted(sandbox, pod, sandbox.kubeconfig_for_service_account(pod.namespace, "default"))
