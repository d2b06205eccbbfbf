"""Workloads that are not plain Deployments, and namespaces with their own rules, with a policy that evicts.

In each scenario, two pods or more start in one zone, and another zone with room for them is added later.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from respread_sandbox import Sandbox
from respread_sandbox.nodes import READY_AFTER_ANNOTATION
from respread_sandbox.pod_watch import PodWatch
from tests.integration.operator_process import operated
from tests.integration.pools import POOL, Pool
from tests.integration.reused_sandbox import ReusedSandbox
from tests.integration.workloads import ZONE, constraint, deployment, wait_for_ready_pods, wait_until

QUIET_SECONDS = 3


@pytest.fixture(scope="module")
def cluster(reused_sandbox: ReusedSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with operated(reused_sandbox.reset(), tmp_path_factory.mktemp("operator")) as sandbox:
        # The limits of this policy bound all evictions of the pods that it selects.
        path = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
        sandbox.api.request("PATCH", path, {"spec": {"limits": {"inFlightPerWorkload": "100%", "inFlightPerNode": 10}}})
        yield sandbox


def one_zone(cluster: Sandbox) -> Pool:
    """A namespace with one zone."""
    pool = Pool(cluster, f"other-{secrets.token_hex(3)}")
    pool.add_zone("zone-a")
    return pool


@pytest.fixture
def pool(cluster: Sandbox) -> Pool:
    """A namespace with one zone."""
    return one_zone(cluster)


def template(pool: Pool, **fields: Any) -> dict[str, Any]:
    """Return the template of pods of `web` that are spread over zones."""
    manifest = deployment("web", replicas=2, constraints=[constraint(ZONE, "web")], nodeSelector={POOL: pool.name})
    found: dict[str, Any] = manifest["spec"]["template"]
    found["spec"] |= fields
    return found


def create(pool: Pool, path: str, kind: str, spec: dict[str, Any], name: str = "web", **metadata: Any) -> None:
    body = {"kind": kind, "metadata": {"name": name, "labels": {"app": "web"}, **metadata}, "spec": spec}
    pool.sandbox.api.request("POST", f"/{path.format(namespace=f'namespaces/{pool.name}')}", body)


def replica_set(pool: Pool, replicas: int, name: str = "web", **metadata: Any) -> None:
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": replicas, "selector": selector, "template": template(pool)}
    create(pool, "apis/apps/v1/{namespace}/replicasets", "ReplicaSet", spec, name, **metadata)


def assert_left_alone(pool: Pool, *reasons: str) -> str:
    """Assert that nothing is evicted, for one of these reasons; return the message."""

    def reported() -> str:
        return str(pool.status()["violations"][0].get("reason", "")) if pool.status().get("violations") else ""

    before = pool.uids()
    wait_until(lambda: reported() in reasons, lambda: f"one of the reasons {reasons}; it is {reported()!r}")
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    assert before <= pool.uids()
    (violation,) = pool.status()["violations"]
    return str(violation["message"])


def test_jobs_and_bare_pods_are_counted_and_not_evicted(pool: Pool) -> None:
    bare = template(pool)
    for name in ("bare-1", "bare-2"):
        create(pool, "api/v1/{namespace}/pods", "Pod", bare["spec"], name)
    job = {"completions": 2, "parallelism": 2, "template": template(pool, restartPolicy="Never")}
    create(pool, "apis/batch/v1/{namespace}/jobs", "Job", job)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 4)
    pool.add_zone("zone-b")
    pool.rebalance()
    assert_left_alone(pool, "BarePod", "UnknownReplacement")
    # The two pods of a ReplicaSet beside them suffice to restore the spread: from [4 + 1, 1] to [4, 2].
    pool.remove_zone("zone-b")
    replicas = template(pool)
    replicas["metadata"]["labels"]["set"] = "yes"
    spec = {"replicas": 2, "selector": {"matchLabels": {"set": "yes"}}, "template": replicas}
    create(pool, "apis/apps/v1/{namespace}/replicasets", "ReplicaSet", spec)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 6)
    pool.add_zone("zone-b")
    wait_until(lambda: pool.counts() == {"zone-a": 4, "zone-b": 2}, "the ReplicaSet's pods to move")
    pool.wait_for(6)
    assert len(pool.evicted()) == 2
    assert all(name.startswith("web-") for name in pool.evicted())


@pytest.mark.parametrize(("policy", "at_once"), [("Parallel", 3), ("OrderedReady", 1)])
def test_pods_of_a_stateful_set_are_moved_at_once_or_one_by_one(pool: Pool, policy: str, at_once: int) -> None:
    """With OrderedReady as in rolling updates: a replacement that is lost would wait for those of lower ordinals."""
    selector = {"matchLabels": {"app": "web"}}
    spec: dict[str, Any] = {"replicas": 7, "serviceName": "web", "podManagementPolicy": policy, "selector": selector}
    spec |= {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}, "template": template(pool)}
    spec["template"]["metadata"]["annotations"][READY_AFTER_ANNOTATION] = "2"
    create(pool, "apis/apps/v1/{namespace}/statefulsets", "StatefulSet", spec)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 7)
    pool.add_zone("zone-b")
    watch = PodWatch(pool.sandbox.api, namespace=pool.name)
    pool.rebalance(limits={"inFlightPerWorkload": "100%", "inFlightPerNode": 10})
    pool.wait_until_balanced(7, 3)
    wait_until(lambda: sum(each.ready_at is not None for each in watch.lives()) == 10, "all to be Ready")
    watch.close()
    lives = watch.lives()
    evicted = sorted(each.evicted_at for each in lives if each.evicted_at is not None)
    ready = sorted(each.ready_at for each in lives if each.evicted_at is None and each.ready_at is not None)[-3:]
    assert len(evicted) == len(pool.evicted()) == 3
    most = max(sum(at <= then for at in evicted) - sum(at <= then for at in ready) for then in evicted)
    assert most == at_once


def test_an_ordered_stateful_set_with_a_broken_first_pod_is_not_evicted(pool: Pool) -> None:
    """Its controller would recreate no other pod before the first is Ready."""
    spec = {
        "replicas": 3,
        "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(pool),
    }
    create(pool, "apis/apps/v1/{namespace}/statefulsets", "StatefulSet", spec)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 3)
    path = f"/api/v1/namespaces/{pool.name}/pods/web-0"
    pool.sandbox.api.request("PATCH", path, {"metadata": {"annotations": {"respread.dev/evict": "never"}}})
    broken = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Broken"}]}}
    pool.sandbox.api.request("PATCH", f"{path}/status", broken, patch_type="strategic-merge")
    pool.add_zone("zone-b")
    pool.rebalance(limits={"inFlightPerWorkload": "100%"})
    assert "web-0" in assert_left_alone(pool, "ReplacementWouldWait", "PodsNotReady")
    healed = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    pool.sandbox.api.request("PATCH", f"{path}/status", healed, patch_type="strategic-merge")
    wait_until(lambda: len(pool.evicted()) == 1, "another pod to move")
    pool.wait_for(3)
    assert pool.counts() == {"zone-a": 2, "zone-b": 1}


def test_pods_that_a_replica_set_adopted_are_not_evicted(pool: Pool) -> None:
    """The adopted pods are small, and there is no room for pods of the template."""
    small = template(pool)
    for name in ("adopted-1", "adopted-2"):
        create(pool, "api/v1/{namespace}/pods", "Pod", small["spec"], name)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 2)
    large = template(pool)
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": large}
    create(pool, "apis/apps/v1/{namespace}/replicasets", "ReplicaSet", spec)
    wait_until(lambda: all("ownerReferences" in pod["metadata"] for pod in pool.pods()), "the pods to be adopted")
    pool.add_zone("zone-b", cpu="1")
    pool.rebalance()
    assert "cpu" in assert_left_alone(pool, "TemplateDiffers")
    pool.wait_for(2)


def pods_of_an_unknown_owner_stay_until_the_policy_trusts_it(pool: Pool) -> Iterator[None]:
    owner = {"apiVersion": "example.org/v1", "kind": "Fleet", "name": "web", "uid": secrets.token_hex(8)}
    # The garbage collector ignores the owner, because the API server does not know its kind.
    replica_set(pool, 4, ownerReferences=[{**owner, "controller": True}])
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 4)
    pool.add_zone("zone-b")
    pool.rebalance()
    assert "Fleet web" in assert_left_alone(pool, "UnknownOwner")
    trusted = [{"group": "example.org", "kind": "Fleet"}]
    pool.rebalance(victims={"minAge": "0s", "trustedControllers": trusted})
    yield
    pool.wait_until_balanced(4, 2)
    assert len(pool.evicted()) == 2


def defaults_of_a_limit_range_count_and_a_change_of_them_holds_moves(pool: Pool) -> Iterator[None]:
    def limit(cpu: str) -> dict[str, Any]:
        return {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}, "default": {"cpu": "2"}}]}

    create(pool, "api/v1/{namespace}/limitranges", "LimitRange", limit("500m"), "defaults")
    manifest = deployment("web", replicas=4, constraints=[constraint(ZONE, "web")], nodeSelector={POOL: pool.name})
    del manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
    pool.sandbox.api.request("POST", f"/apis/apps/v1/namespaces/{pool.name}/deployments", manifest)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 4)
    pool.add_zone("zone-b", cpu="600m")  # room for one
    path = f"/api/v1/namespaces/{pool.name}/limitranges/defaults"
    pool.sandbox.api.request("PATCH", path, {"spec": limit("400m")})
    pool.rebalance()
    assert "cpu" in assert_left_alone(pool, "TemplateDiffers")
    pool.sandbox.api.request("PATCH", path, {"spec": limit("500m")})
    yield
    wait_until(lambda: pool.counts() == {"zone-a": 3, "zone-b": 1}, "one to move")
    pool.wait_for(4)
    pool.wait_until_blocked(4, "NoFeasibleNode")
    assert len(pool.evicted()) == 1


def a_full_quota_holds_moves_until_it_is_raised(pool: Pool) -> Iterator[None]:
    create(pool, "api/v1/{namespace}/resourcequotas", "ResourceQuota", {"hard": {"requests.cpu": "450m"}}, "small")
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")])
    pool.add_zone("zone-b")
    pool.rebalance()
    assert_left_alone(pool, "ReplacementRefused")
    path = f"/api/v1/namespaces/{pool.name}/resourcequotas/small"
    pool.sandbox.api.request("PATCH", path, {"spec": {"hard": {"requests.cpu": "500m"}}})
    yield
    wait_until(lambda: len(pool.evicted()) == 2, "it to go on one by one")
    pool.wait_for(4)
    assert pool.counts() == {"zone-a": 2, "zone-b": 2}


def test_held_moves_are_made_once_nothing_holds_them(cluster: Sandbox) -> None:
    """Each scenario ends when nothing holds its pods any more. All wait for up to a minute at the same time."""
    scenarios = [
        pods_of_an_unknown_owner_stay_until_the_policy_trusts_it(one_zone(cluster)),
        defaults_of_a_limit_range_count_and_a_change_of_them_holds_moves(one_zone(cluster)),
        a_full_quota_holds_moves_until_it_is_raised(one_zone(cluster)),
    ]
    for each in scenarios:
        next(each)
    for each in scenarios:
        assert next(each, "over") == "over"
