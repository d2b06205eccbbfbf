"""Unreadable objects are not treated as absent: they use room, may be counted, and may hold a pod."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.reasons import Reason
from respread.cluster.meta import ObjectKey
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from tests.informer_parts import Parts, page
from tests.spreads import spread_of
from tests.worlds import NOW, ZONE

NAMESPACE = "shop"
_MIB = 1 << 20


def metadata(name: str, *, namespace: str = NAMESPACE, **fields: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1", **fields}


def node(name: str, zone: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {ZONE: zone}},
        "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, on: str, **fields: Any) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    return {
        "metadata": metadata(name, labels={"app": "web"}, ownerReferences=[owner]),
        "spec": {
            "nodeName": on,
            "containers": [{"name": "web", "resources": {"requests": {"cpu": "100m"}}}],
            "topologySpreadConstraints": [constraint],
            **fields,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def other(name: str, on: Any, *, cpu: str = "1", labels: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a pod that no policy selects."""
    requests = {"containers": [{"name": "db", "resources": {"requests": {"cpu": cpu}}}]}
    return {
        "metadata": metadata(name, namespace="other", labels=labels or {"app": "db"}),
        "spec": {"nodeName": on, **requests, **spec},
        "status": {"phase": "Running"},
    }


class World:
    """Two zones with one node each. The second should take a pod."""

    def __init__(self, *more: dict[str, Any], nodes: tuple[dict[str, Any], ...] | None = None) -> None:
        self.parts = Parts()
        self.planner = Planner()
        for informer in self.parts.informers.all:
            informer.take_page(page())
        self.list("namespaces", *({"metadata": {"name": name}} for name in (NAMESPACE, "other")))
        self.list("nodes", *(nodes or (node("a1", "a"), node("b1", "b"))))
        self.list("pods", *(pod(f"web-{number}", "a1") for number in range(3)), pod("web-b", "b1"), *more)

    def list(self, resource: str, *items: dict[str, Any]) -> None:
        self.parts.informer(resource).take_page(page(*items, version=200))

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.parts.informers.state.snapshot

    def plan(self) -> Plan:
        policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
        snapshot = self.snapshot
        return self.planner.plan(snapshot, spread_of(snapshot), PolicySetting((policy,)), now=NOW)

    def why(self) -> tuple[Reason, str]:
        plan = self.plan()
        assert plan.moves == ()
        (blocked,) = plan.blocked
        return blocked.reason, blocked.message


def event(name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["resourceVersion"] = str(version)
    assert body["metadata"]["name"] == name
    return body


@pytest.mark.parametrize("zeros", [0, 1_001, 100_000])
def test_a_quantity_with_leading_zeros_is_read(zeros: int) -> None:
    assert len(World(other("db", "b1", cpu="0" * zeros + "3")).plan().moves) == 1
    reason, message = World(other("db", "b1", cpu="0" * zeros + "4")).why()
    assert reason is Reason.NO_FEASIBLE_NODE
    assert "cpu" in message


@pytest.mark.parametrize(
    "ends",
    [
        lambda world: world.parts.event("pods", event("db", 300, other("db", "b1"))),
        lambda world: world.parts.event("pods", event("db", 300, other("db", "b1", cpu="much")), deleted=True),
        lambda world: world.list("pods", *(pod(f"web-{n}", "a1") for n in range(3)), pod("web-b", "b1")),
        lambda world: world.parts.event(
            "pods", event("db", 300, {**other("db", "b1", cpu="much"), "status": {"phase": "Succeeded"}})
        ),
    ],
    ids=["read", "deleted", "not listed", "finished"],
)
def test_the_node_takes_pods_again_once_the_pod_is_readable_or_deleted(ends: Callable[[World], None]) -> None:
    world = World(other("db", "b1", cpu="much"))
    assert world.plan().moves == ()
    ends(world)
    assert len(world.plan().moves) == 1


def test_a_pod_that_becomes_unreadable_closes_its_node() -> None:
    world = World(other("db", "b1"))
    world.parts.event("pods", event("db", 300, other("db", "b1", cpu="much")))
    assert world.why()[0] is Reason.NO_FEASIBLE_NODE
    assert world.snapshot.pods[ObjectKey("other", "db")].spec.requests["cpu"] == 1000


@pytest.mark.parametrize(
    "strange",
    [other("db", "b1", cpu="much"), other("db", 7), other("db", "a1", cpu="much", affinity={"podAntiAffinity": {}})],
    ids=["it may take room", "its node can't be read", "it may keep others off wherever they are"],
)
def test_an_unreadable_pod_closes_its_node_or_every_one_if_it_may_matter_everywhere(strange: dict[str, Any]) -> None:
    reason, message = World(strange).why()
    assert reason is Reason.NO_FEASIBLE_NODE
    assert "pods other/db" in message
    assert strange["spec"]["nodeName"] == 7 or "much" in message


def test_an_unreadable_pod_is_counted_in_its_domain() -> None:
    strange = pod("web-strange", "b1")
    strange["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    (group,) = spread_of(World(strange).snapshot).groups.values()
    assert group.counts == {"a": 3, "b": 2}


def test_a_pod_with_unreadable_labels_holds_only_the_groups_of_its_namespace() -> None:
    strange = {**other("db", "b1"), "metadata": metadata("db", labels={"app": 7})}
    reason, message = World(strange).why()
    assert reason is Reason.UNREAD_OBJECT
    assert "pods shop/db: metadata.labels" in message
    elsewhere = {**other("db", "b1"), "metadata": metadata("db", namespace="other", labels={"app": 7})}
    assert len(World(elsewhere).plan().moves) == 1


def test_an_unreadable_node_is_a_domain_and_takes_no_pod() -> None:
    strange = node("b1", "b")
    strange["status"]["allocatable"]["cpu"] = "much"
    another = {**node("a0", "a"), "status": strange["status"]}
    reason, message = World(nodes=(node("a1", "a"), strange, another)).why()
    assert reason is Reason.NO_FEASIBLE_NODE
    assert "nodes b1" in message
    third = {**strange, "metadata": {**strange["metadata"], "name": "c1", "labels": {ZONE: 7}}}
    assert World(nodes=(node("a1", "a"), node("b1", "b"), third)).why()[0] is Reason.UNREAD_OBJECT


def test_an_unreadable_budget_holds_the_pods_of_its_namespace() -> None:
    world = World()
    strange = {"metadata": metadata("pdb"), "spec": {"selector": {"matchLabels": 7}}}
    world.list("poddisruptionbudgets", strange)
    reason, message = world.why()
    assert reason is Reason.UNREAD_OBJECT
    assert "poddisruptionbudgets shop/pdb" in message
    world.list("poddisruptionbudgets", {**strange, "metadata": metadata("pdb", namespace="other")})
    assert len(world.plan().moves) == 1


def test_pods_with_twenty_thousand_labels_use_little_memory_and_still_count_for_room() -> None:
    """Each pod has 1.2 MiB, which is about the maximum that an API server stores."""
    labels = [{f"label-{number}-{each:06}": "x" * 40 for each in range(20_000)} for number in range(20)]
    bodies = [
        json.dumps(other(f"db-{number}", "b1", cpu="150m", labels=each)).encode() for number, each in enumerate(labels)
    ]
    assert min(map(len, bodies)) > _MIB
    parts = Parts()
    tracemalloc.start()
    try:
        for number, body in enumerate(bodies):
            rest = b'"continue":"more",' if number < 19 else b""
            parts.informer("pods").take_page(b'{"metadata":{%b"resourceVersion":"5"},"items":[%b]}' % (rest, body))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < _MIB
    snapshot = parts.informers.state.snapshot
    assert sum(each.requests_on_node["cpu"] for each in snapshot.pods_by_node["b1"].values()) == 3000
    assert not any(each.labels_read for each in snapshot.unread["pods"].values())
