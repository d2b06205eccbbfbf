"""Nodes, workloads, budgets and storage as the API sends them, and the decoded values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.decode.decoder import Decoder
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import (
    ClaimReference,
    CSINode,
    DecodeError,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    Service,
    StorageClass,
    Taint,
    Workload,
)
from respread.cluster.pod import MigratedVolume, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d-1", "controller": True}


def decode(resource: str, metadata: dict[str, Any], **members: Any) -> Any:
    return Decoder().decode_object(resource, {"metadata": {"name": "x", "uid": "u", **metadata}, **members})


def test_a_node_is_decoded() -> None:
    decoded = decode(
        "nodes",
        {"labels": {"zone": "a"}},
        spec={
            "unschedulable": True,
            "taints": [{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-03-01T00:00:00Z"}],
        },
        status={
            "allocatable": {"cpu": "3920m", "memory": "8145836Ki", "pods": "110", "hugepages-2Mi": "0"},
            "capacity": {"cpu": "4"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "images": [{"names": ["x"], "sizeBytes": 1}],
        },
    )
    assert decoded == Node(
        name="x",
        uid="u",
        labels=Map(zone="a"),
        taints=(Taint("k", "NoExecute", "v"),),
        unschedulable=True,
        ready=True,
        allocatable=Map({"cpu": 3920, "memory": 8145836 << 10, "pods": 110, "hugepages-2Mi": 0}),
    )


def test_a_heartbeat_does_not_change_a_node() -> None:
    """Kubelets write a node's status every few minutes, which must not count as a change."""
    before, after = (
        decode(
            "nodes",
            {"resourceVersion": version},
            status={"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]},
        )
        for version, time in (("1", "2026-03-01T00:00:00Z"), ("2", "2026-03-01T00:05:00Z"))
    )
    assert before == after


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Ready", "status": "Unknown"}]])
def test_a_node_without_a_ready_condition_is_not_ready(conditions: Any) -> None:
    assert not decode("nodes", {}, status={"conditions": conditions}).ready


def test_a_node_with_a_malformed_quantity_is_an_error() -> None:
    with pytest.raises(DecodeError, match=r"^nodes x: status.allocatable\[cpu\]: 'four' is not a quantity: "):
        decode("nodes", {}, status={"allocatable": {"cpu": "four"}})


def test_namespaces_are_decoded() -> None:
    assert decode("namespaces", {"labels": {"a": "b"}}, status={"phase": "Active"}) == Namespace(
        name="x", uid="u", labels=Map(a="b")
    )
    assert decode("namespaces", {}, status={"phase": "Terminating"}).terminating
    assert decode("namespaces", {"deletionTimestamp": "2026-03-01T00:00:00Z"}).terminating


def test_a_budget_is_decoded() -> None:
    decoded = decode(
        "poddisruptionbudgets",
        {"namespace": "shop", "generation": 3},
        spec={
            "selector": {"matchLabels": {"app": "web"}},
            "maxUnavailable": "25%",
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
        status={
            "observedGeneration": 2,
            "disruptionsAllowed": 1,
            "currentHealthy": 4,
            "desiredHealthy": 3,
            "expectedPods": 5,
            "disruptedPods": {"web-1": "2026-03-01T00:00:00Z"},
            "conditions": [{"type": "DisruptionAllowed"}],
        },
    )
    assert decoded == PodDisruptionBudget(
        namespace="shop",
        name="x",
        uid="u",
        selector=LabelSelector(Map(app="web")),
        max_unavailable="25%",
        unhealthy_pod_eviction_policy="AlwaysAllow",
        generation=3,
        observed_generation=2,
        disruptions_allowed=1,
        current_healthy=4,
        desired_healthy=3,
        expected_pods=5,
        disrupted_pods=Map({"web-1": datetime(2026, 3, 1, tzinfo=UTC)}),
    )


def test_a_budget_without_selector_differs_from_one_with_an_empty_one() -> None:
    assert decode("poddisruptionbudgets", {"namespace": "shop"}, spec={"minAvailable": 1}).selector is None
    everything = decode("poddisruptionbudgets", {"namespace": "shop"}, spec={"minAvailable": 1, "selector": {}})
    assert everything.selector == LabelSelector()
    assert everything.min_available == 1
    assert everything.unhealthy_pod_eviction_policy == "IfHealthyBudget"


@pytest.mark.parametrize("resource", ["poddisruptionbudgets", "replicasets", "statefulsets", "persistentvolumeclaims"])
def test_a_malformed_selector_is_an_error_with_its_field(resource: str) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}
    with pytest.raises(DecodeError) as raised:
        decode(resource, {"namespace": "shop"}, spec={"selector": selector})
    assert str(raised.value) == (
        f"{resource} shop/x: spec.selector: matchExpressions[0]: operator In of key 'app' needs at least one value"
    )


def test_a_replica_set_is_decoded() -> None:
    decoded = decode(
        "replicasets",
        {"namespace": "shop", "generation": 2, "ownerReferences": [OWNER]},
        spec={"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {}}},
        status={"replicas": 4, "readyReplicas": 3, "observedGeneration": 1},
    )
    assert decoded == Workload(
        namespace="shop",
        name="x",
        uid="u",
        controller=OwnerReference("apps/v1", "Deployment", "web", "d-1"),
        selector=LabelSelector(Map(app="web")),
        replicas=0,
        current_replicas=4,
        ready_replicas=3,
        generation=2,
        observed_generation=1,
    )


def test_a_stateful_set_is_decoded() -> None:
    decoded = decode(
        "statefulsets",
        {"namespace": "shop", "deletionTimestamp": "2026-03-01T00:00:00Z"},
        spec={
            "selector": {"matchLabels": {"app": "db"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
            "podManagementPolicy": "OrderedReady",
        },
        status={"replicas": 3, "currentRevision": "db-1", "updateRevision": "db-2"},
    )
    assert (decoded.replicas, decoded.current_revision, decoded.update_revision) == (1, "db-1", "db-2")
    assert decoded.partition == 2
    assert decoded.is_ordered
    assert not decode("statefulsets", {"namespace": "shop"}, spec={"podManagementPolicy": "Parallel"}).is_ordered
    assert decoded.terminating


def test_a_replication_controller_has_a_selector_like_the_others() -> None:
    decoded = decode("replicationcontrollers", {"namespace": "shop"}, spec={"replicas": 2, "selector": {"app": "web"}})
    assert decoded.selector == LabelSelector(Map(app="web"))
    assert decoded.replicas == 2


def test_a_service_is_decoded() -> None:
    assert decode("services", {"namespace": "shop"}, spec={"selector": {"app": "web"}, "ports": []}) == Service(
        namespace="shop", name="x", uid="u", selector=Map(app="web")
    )
    assert decode("services", {"namespace": "shop"}, spec={"type": "ExternalName"}).selector == Map()


def test_a_claim_is_decoded() -> None:
    decoded = decode(
        "persistentvolumeclaims",
        {
            "namespace": "shop",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "node-1"},
            "deletionTimestamp": "2026-03-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-1", "controller": True}],
        },
        spec={
            "volumeName": "pv-1",
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "8Gi"}},
            "volumeMode": "Block",
            "volumeAttributesClassName": "gold",
            "selector": {"matchLabels": {"a": "b"}},
        },
        status={"phase": "Bound", "accessModes": ["ReadWriteOncePod"]},
    )
    assert decoded == PersistentVolumeClaim(
        namespace="shop",
        name="x",
        uid="u",
        controller=OwnerReference("v1", "Pod", "p", "p-1"),
        volume_name="pv-1",
        bind_completed=True,
        selected_node="node-1",
        storage_class_name="fast",
        access_modes=("ReadWriteOncePod",),
        requested_bytes=8 << 30,
        volume_mode="Block",
        volume_attributes_class_name="gold",
        selector=LabelSelector(Map(a="b")),
        phase="Bound",
        terminating=True,
    )
    assert decoded.bound


def test_a_claim_is_bound_if_claim_and_volume_refer_to_each_other() -> None:
    assert not decode("persistentvolumeclaims", {"namespace": "shop"}, spec={"volumeName": "pv-1"}).bound
    assert not decode(
        "persistentvolumeclaims", {"namespace": "shop", "annotations": {"pv.kubernetes.io/bind-completed": ""}}
    ).bound


@pytest.mark.parametrize(
    ("annotation", "field", "expected"),
    [("old", "new", "old"), (None, "new", "new"), (None, "", ""), (None, None, None)],
)
def test_the_storage_class_of_a_claim_may_be_in_its_annotation(
    annotation: str | None, field: str | None, expected: str | None
) -> None:
    annotations = {} if annotation is None else {"volume.beta.kubernetes.io/storage-class": annotation}
    spec = {} if field is None else {"storageClassName": field}
    decoded = decode("persistentvolumeclaims", {"namespace": "shop", "annotations": annotations}, spec=spec)
    assert decoded.storage_class_name == expected


def test_a_volume_of_a_csi_driver_is_decoded() -> None:
    zone = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    decoded = decode(
        "persistentvolumes",
        {"labels": {"topology.kubernetes.io/zone": "a"}},
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "storageClassName": "fast",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "c-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": zone}},
        },
        status={"phase": "Bound"},
    )
    assert decoded == PersistentVolume(
        name="x",
        uid="u",
        labels=Map({"topology.kubernetes.io/zone": "a"}),
        node_affinity=NodeSelector((NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),)),)),
        storage_class_name="fast",
        access_modes=("ReadWriteOnce", "ReadOnlyMany"),
        capacity_bytes=10 << 30,
        claim=ClaimReference("shop", "data", "c-1"),
        phase="Bound",
        csi_driver="ebs.csi.aws.com",
        csi_volume_handle="vol-1",
    )


def test_a_volume_of_an_in_tree_plugin_has_a_migrated_csi_source() -> None:
    decoded = decode(
        "persistentvolumes",
        {"labels": {"topology.kubernetes.io/zone": "us-east-1b__us-east-1a"}},
        spec={"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1", "fsType": "ext4"}},
    )
    assert decoded.migrated == MigratedVolume("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "vol-1")
    assert decoded.node_affinity is None
    zones = NodeSelectorRequirement("topology.ebs.csi.aws.com/zone", "In", ("us-east-1a", "us-east-1b"))
    assert decoded.migrated_node_affinity == NodeSelector((NodeSelectorTerm((zones,)),))


def test_a_storage_class_is_decoded() -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}, {}]
    decoded = decode(
        "storageclasses",
        {},
        provisioner="ebs.csi.aws.com",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=terms,
        parameters={"type": "gp3"},
    )
    assert decoded == StorageClass(
        name="x",
        uid="u",
        provisioner="ebs.csi.aws.com",
        volume_binding_mode="WaitForFirstConsumer",
        allowed_topologies=(NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a", "b")),)), NodeSelectorTerm()),
    )


def test_a_csi_node_is_decoded() -> None:
    decoded = decode(
        "csinodes",
        {"annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}},
        spec={
            "drivers": [
                {"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}},
                {"name": "none.example.com", "nodeID": "i-1", "allocatable": {"count": 0}},
                {"name": "free.example.com", "nodeID": "i-1", "allocatable": {}},
                {"name": "nfs.example.com", "nodeID": "i-1", "topologyKeys": None},
            ]
        },
    )
    assert decoded == CSINode(
        name="x",
        uid="u",
        drivers=frozenset({"ebs.csi.aws.com", "none.example.com", "free.example.com", "nfs.example.com"}),
        volume_limits=Map({"ebs.csi.aws.com": 25, "none.example.com": 0}),
        migrated_plugins=frozenset({"kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"}),
    )
    assert decode("csinodes", {}, spec={"drivers": None}).migrated_plugins == frozenset()
