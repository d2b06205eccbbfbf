"""With unreadable objects on a real control plane, no pod is evicted that would stay Pending or be lost.

Objects of a later version of Kubernetes are written directly into etcd. The API server serves them, the scheduler and
the controllers use them, and this version of Respread can't read them completely. Other objects are valid but extreme.
In each scenario, one eviction can restore the spread once the object is deleted.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.integration.etcd import Etcd
from tests.integration.operator_process import operated
from tests.integration.pools import POOL, Pool
from tests.integration.reused_sandbox import ReusedSandbox
from tests.integration.workloads import (
    ZONE,
    constraint,
    deployment,
    leave_in_zone,
    scale,
    wait_for_ready_pods,
    wait_until,
)

QUIET_SECONDS = 3
DEEP = 5_000
"""Levels of JSON: half of what the API server reads."""
LATER_CONSTRAINT = constraint(ZONE, "x", when_unsatisfiable="Negotiate")
LATER_SELECTOR = {"matchExpressions": [{"key": "app", "operator": "Resembles", "values": ["web"]}]}


@pytest.fixture(scope="module")
def cluster(reused_sandbox: ReusedSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with operated(reused_sandbox.reset(), tmp_path_factory.mktemp("operator")) as sandbox:
        yield sandbox


@pytest.fixture
def pool(cluster: Sandbox) -> Pool:
    return Pool(cluster, f"unread-{secrets.token_hex(3)}")


def store(sandbox: Sandbox, resource: str, body: dict[str, Any]) -> None:
    """Write an object into etcd unchanged, without the API server."""
    metadata = body["metadata"]
    metadata.setdefault("uid", f"3f2b1e9a-0000-4000-8000-{secrets.token_hex(6)}")
    metadata.pop("resourceVersion", None)
    path = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))

    async def put() -> None:
        await Etcd(sandbox).put(f"/registry/{resource}/{path}", body)

    asyncio.run(put())


def scaled_down_to_one_zone(pool: Pool) -> str:
    """Leave two pods of `web` in zone-a and none in zone-b by a scale-down; return zone-b's node, which has one CPU."""
    pool.add_zone("zone-a")
    (small,) = pool.add_zone("zone-b", cpu="1")
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")])
    assert leave_in_zone(pool.sandbox, pool.name, "web", "zone-a") == 2
    pool.wait_for(2)
    assert pool.counts() == {"zone-a": 2, "zone-b": 0}
    return small


def path_of(pool: Pool, pod: str = "") -> str:
    return f"/api/v1/namespaces/{pool.name}/pods/{pod}".rstrip("/")


def filler(pool: Pool, node: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """Return a pod without an owner that fills a small node."""
    requests = {"requests": {"cpu": cpu}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "filler", "namespace": pool.name, "labels": {"app": "filler"}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "simulated", "resources": requests}],
            **spec,
        },
    }


def assert_blocked(pool: Pool, reason: str, word: str) -> None:
    """Assert that nothing is evicted for this reason, with a word in its message."""
    wait_until(lambda: pool.is_blocked(reason, word), lambda: f"{reason} {word}; it says {pool.status()}")
    assert len(pool.status()["violations"]) == 1
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []


@pytest.mark.parametrize("shape", ["leading zeros", "digits after the point", "a constraint of a later version"])
def test_a_pod_with_unusual_fields_still_uses_its_resources(pool: Pool, shape: str) -> None:
    node = scaled_down_to_one_zone(pool)
    before = pool.uids()
    word = "cpu"
    if shape == "a constraint of a later version":
        store(pool.sandbox, "pods", filler(pool, node, topologySpreadConstraints=[LATER_CONSTRAINT]))
        word = f"pods {pool.name}/filler"
    else:
        cpu = "0" * 1_500 + "1" if shape == "leading zeros" else "0.9" + "9" * 1_500
        pool.sandbox.api.request("POST", path_of(pool), filler(pool, node, cpu))
    wait_until(lambda: len(pool.pods()) == 3, "the node to be full")
    pool.rebalance()
    assert_blocked(pool, "NoFeasibleNode", word)
    pool.sandbox.api.request("DELETE", f"{path_of(pool, 'filler')}?gracePeriodSeconds=0")
    pool.wait_until_balanced(2, 1)
    assert len(before - pool.uids()) == 1


def test_a_pod_with_deeply_nested_managed_fields_uses_its_resources_and_stops_no_watch(
    pool: Pool, tmp_path: Path
) -> None:
    """It is in a namespace of its own, because Python's json can't read it either."""
    node = scaled_down_to_one_zone(pool)
    namespace = pool.sandbox.create_namespace(f"{pool.name}-deep")
    body = filler(pool, node)
    body["metadata"] |= {"namespace": namespace, "managedFields": "DEEP"}
    fields = '{"f:a":' * DEEP + "{}" + "}" * DEEP
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}
    entries = json.dumps([entry]).replace('"DEEP"', fields)
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(body).replace('"DEEP"', entries))
    pool.sandbox.kubectl("create", "--raw", f"/api/v1/namespaces/{namespace}/pods", "-f", str(file))
    stored = pool.sandbox.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/filler")
    assert stored.count('{"f:a":') == DEEP
    pool.rebalance()
    assert_blocked(pool, "NoFeasibleNode", "cpu")
    pool.sandbox.kubectl("delete", "pod", "filler", "-n", namespace, "--grace-period=0", "--force")
    pool.wait_until_balanced(2, 1)


def test_an_owner_reference_that_nobody_checks_does_not_keep_the_status_from_being_written(pool: Pool) -> None:
    """Kind and name of an owner may have any length, and those in a status may not."""
    pool.add_zone("zone-a")
    owner = {"apiVersion": "example.org/v1", "kind": "K" * 100, "name": "n" * 1_000, "uid": "u" * 100}
    metadata = {"labels": {"app": "web"}, "ownerReferences": [{**owner, "controller": True}]}
    containers = [{"name": "main", "image": "simulated"}]
    spec = {
        "containers": containers,
        "nodeSelector": {POOL: pool.name},
        "topologySpreadConstraints": [constraint(ZONE, "web")],
    }
    for number in range(2):
        named = {"name": f"web-{number}", "namespace": pool.name, **metadata}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}
        pool.sandbox.api.request("POST", path_of(pool), body)
        pool.wait_for(number + 1)
    pool.add_zone("zone-b")
    pool.rebalance()
    wait_until(lambda: bool(pool.status().get("violations")), lambda: f"a violation in the status: {pool.status()}")
    (violation,) = pool.status()["violations"]
    assert violation["workloads"] == [{"kind": "K" * 63, "name": "n" * 253}]


def test_a_pod_with_too_many_labels_may_match_any_selector(pool: Pool) -> None:
    node = scaled_down_to_one_zone(pool)
    more = filler(pool, node, cpu="100m")
    more["metadata"]["labels"] = {"app": "web"} | {f"label-{number:04}": "x" * 40 for number in range(400)}
    pool.sandbox.api.request("POST", path_of(pool), more)
    pool.wait_for(3)
    pool.rebalance()
    assert_blocked(pool, "UnreadObject", f"pods {pool.name}/filler")
    pool.sandbox.api.request("DELETE", f"{path_of(pool, 'filler')}?gracePeriodSeconds=0")
    pool.wait_until_balanced(2, 1)


def test_a_node_of_a_later_version_is_an_eligible_domain(pool: Pool) -> None:
    """Without the node, an eviction would restore the spread of [3, 1]; with it, the replacement would stay Pending."""
    pool.add_zone("zone-a")
    pool.deploy("web", 3, constraints=[constraint(ZONE, "web")])
    (later,) = pool.add_zone("zone-c")
    body = pool.sandbox.api.get(f"/api/v1/nodes/{later}")
    body["spec"] |= {"unschedulable": True, "taints": [{"key": "later", "effect": "NoPreemption"}]}
    store(pool.sandbox, "minions", {"apiVersion": "v1", "kind": "Node", **body})
    pool.add_zone("zone-b")
    scale(pool.sandbox, pool.name, "web", 4)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 4)
    assert pool.counts() == {"zone-a": 3, "zone-b": 1, "zone-c": 0}
    pool.rebalance()
    assert_blocked(pool, "NoFeasibleNode", f"nodes {later}")
    pool.remove_zone("zone-c")
    pool.wait_until_balanced(4, 1)
    assert pool.counts() == {"zone-a": 2, "zone-b": 2}


def test_an_unreadable_budget_protects_its_pods(pool: Pool) -> None:
    scaled_down_to_one_zone(pool)
    path = f"/apis/policy/v1/namespaces/{pool.name}/poddisruptionbudgets/later"
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "later", "namespace": pool.name},
        "spec": {"maxUnavailable": 0, "selector": LATER_SELECTOR},
    }
    store(pool.sandbox, "poddisruptionbudgets", budget)
    wait_until(lambda: pool.sandbox.api.exists(path), "the budget to be there")
    pool.rebalance()
    assert_blocked(pool, "UnreadObject", f"poddisruptionbudgets {pool.name}/later")
    pool.sandbox.api.request("DELETE", path)
    pool.wait_until_balanced(2, 1)


def test_pods_of_an_unreadable_template_are_not_evicted(pool: Pool) -> None:
    """The API server rejects the replacement that the ReplicaSet would create: a pod would be lost."""
    pool.add_zone("zone-a")
    manifest = deployment("web", replicas=2, constraints=[constraint(ZONE, "web")], nodeSelector={POOL: pool.name})
    path = f"/apis/apps/v1/namespaces/{pool.name}/replicasets"
    pool.sandbox.api.request("POST", path, {**manifest, "kind": "ReplicaSet"})
    wait_for_ready_pods(pool.sandbox, pool.name, "web", 2)
    body = pool.sandbox.api.get(f"{path}/web")
    readable = body["spec"]["template"]["spec"]["topologySpreadConstraints"]
    body["spec"]["template"]["spec"]["topologySpreadConstraints"] = [*readable, LATER_CONSTRAINT]
    store(pool.sandbox, "replicasets", {"apiVersion": "apps/v1", "kind": "ReplicaSet", **body})
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance()
    wait_until(lambda: bool(pool.status().get("violations")), "the skew to be seen")
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    assert pool.uids() == before
    restored = {"spec": {"template": {"spec": {"topologySpreadConstraints": readable}}}}
    pool.sandbox.api.request("PATCH", f"{path}/web", restored)
    pool.wait_until_balanced(2, 1)
