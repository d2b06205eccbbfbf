"""Pods as the API sends them, and the decoded values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.decode.decoder import Decoder
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import DecodeError
from respread.cluster.pod import (
    AWSElasticBlockStore,
    GCEPersistentDisk,
    HostPort,
    ISCSIVolume,
    MigratedVolume,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    RBDVolume,
    Toleration,
    TopologySpreadConstraint,
)


def decode(obj: dict[str, Any]) -> Pod:
    pod = Decoder().decode_object("pods", obj)
    assert isinstance(pod, Pod)
    return pod


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    return decode(
        {
            "metadata": {"namespace": "shop", "name": "web-1", "uid": "u-1", **metadata},
            "spec": {"containers": [], **(spec or {})},
            "status": status or {},
        }
    )


_ONE = 10**9
NOTHING_ASKED = PodSpec(
    quota_scopes=("NotTerminating", "BestEffort"), quota_usage=Map({"pods": _ONE, "count/pods": _ONE})
)


def test_metadata_and_status_are_decoded() -> None:
    decoded = pod(
        {"nodeName": "node-1"},
        {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastProbeTime": None},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T00:00:10Z"},
            ],
            "nominatedNodeName": "node-2",
        },
        labels={"app": "web"},
        creationTimestamp="2026-03-01T00:00:00Z",
        deletionTimestamp="2026-03-02T00:00:00Z",
        managedFields=[{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        ownerReferences=[
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "o-0"},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o-1", "controller": True},
        ],
    )
    assert decoded == Pod(
        namespace="shop",
        name="web-1",
        uid="u-1",
        spec=NOTHING_ASKED,
        labels=Map(app="web"),
        controller=OwnerReference("apps/v1", "ReplicaSet", "web", "o-1"),
        node_name="node-1",
        nominated_node_name="node-2",
        phase="Running",
        ready=True,
        ready_seconds=10,
        creation_timestamp=datetime(2026, 3, 1, tzinfo=UTC),
        deletion_timestamp=datetime(2026, 3, 2, tzinfo=UTC),
    )
    assert decoded.terminating


def test_a_new_pod_without_a_status_is_decoded() -> None:
    assert pod(status={"phase": "Pending"}) == Pod(namespace="shop", name="web-1", uid="u-1", spec=NOTHING_ASKED)


def test_a_null_field_equals_an_absent_one() -> None:
    spec = dict.fromkeys(
        [
            "initContainers",
            "resources",
            "overhead",
            "volumes",
            "nodeSelector",
            "affinity",
            "tolerations",
            "topologySpreadConstraints",
            "priority",
            "resourceClaims",
            "schedulingGates",
        ]
    )
    status = dict.fromkeys(["conditions", "containerStatuses", "initContainerStatuses"])
    metadata = dict.fromkeys(["labels", "annotations", "ownerReferences", "creationTimestamp", "deletionTimestamp"])
    assert pod(dict(spec), dict(status), **metadata) == pod()


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_pod_is_ready_if_its_ready_condition_is_true(status: str, *, ready: bool) -> None:
    assert pod(status={"conditions": [{"type": "Ready", "status": status}]}).ready is ready


@pytest.mark.parametrize(
    ("created", "became_ready", "seconds"),
    [
        ("2026-03-01T00:00:00Z", "2026-03-01T00:01:30Z", 90),
        ("2026-03-01T00:00:00Z", "2026-03-01T01:00:10+01:00", 10),
        ("2026-03-01T00:00:00Z", "2026-02-28T00:00:00Z", None),
        ("2026-03-01T00:00:00Z", None, None),
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00", None),
        ("2026-03-01T00:00:00Z", "soon", None),
        (None, "2026-03-01T00:01:30Z", None),
    ],
)
def test_how_long_a_pod_took_to_become_ready(
    created: str | None, became_ready: str | None, seconds: int | None
) -> None:
    """Whatever is no time says nothing; the pod counts all the same."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": became_ready}
    decoded = pod(status={"conditions": [ready]}, creationTimestamp=created)
    assert decoded.ready
    assert decoded.ready_seconds == seconds
    not_ready = pod(status={"conditions": [{**ready, "status": "False"}]}, creationTimestamp=created)
    assert not_ready.ready_seconds is None


def test_the_reason_of_the_disruption_target_condition_is_decoded() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert pod(status={"conditions": [condition]}).disruption == "EvictionByEvictionAPI"
    assert pod(status={"conditions": [{**condition, "status": "False"}]}).disruption == ""
    assert pod(status={"conditions": [{**condition, "reason": None}]}).disruption == ""


@pytest.mark.parametrize(
    ("owners", "ours", "writer"),
    [
        ([("respread", "Apply")], True, ""),
        ([("respread", "Apply"), ("karpenter", "Update")], False, "karpenter"),
        ([("karpenter", "Update")], False, "karpenter"),
        ([("respread", "Update")], False, "respread"),
        ([], False, ""),
    ],
)
def test_the_field_manager_of_a_deletion_cost_is_decoded(
    owners: list[tuple[str, str]], *, ours: bool, writer: str
) -> None:
    cost = "controller.kubernetes.io/pod-deletion-cost"
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{cost}": {}}}}
    entries = [{"manager": name, "operation": operation, "fieldsV1": fields} for name, operation in owners]
    decoded = pod(annotations={cost: "-3"}, managedFields=entries)
    assert (decoded.deletion_cost_is_ours, decoded.deletion_cost_writer) == (ours, writer)


def test_only_annotations_that_respread_uses_are_kept() -> None:
    kept = {
        "respread.dev/evict": "never",
        "respread.dev/anything": "x",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction": "",
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "scratch",
        "controller.kubernetes.io/pod-deletion-cost": "-3",
    }
    decoded = pod(
        annotations={**kept, "kubectl.kubernetes.io/last-applied-configuration": "{}", "x-respread.dev/y": "z"}
    )
    assert decoded.annotations == Map(kept)
    assert not decoded.is_mirror


def test_mirror_pods_are_recognized_by_their_annotation() -> None:
    decoded = pod(annotations={"kubernetes.io/config.mirror": "abc"})
    assert decoded.is_mirror
    assert decoded.annotations == Map()


def test_spread_constraints_are_decoded() -> None:
    decoded = pod(
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 2,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "minDomains": 3,
                    "nodeAffinityPolicy": "Ignore",
                    "nodeTaintsPolicy": "Honor",
                    "matchLabelKeys": ["pod-template-hash"],
                    "labelSelector": {
                        "matchLabels": {"app": "web"},
                        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b", "a"]}],
                    },
                },
                {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}},
                {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
            ]
        }
    )
    selector = LabelSelector(Map(app="web"), (LabelSelectorRequirement("tier", "NotIn", ("b", "a")),))
    assert decoded.spec.topology_spread_constraints == (
        TopologySpreadConstraint(2, "zone", "DoNotSchedule", selector, 3, "Ignore", "Honor", ("pod-template-hash",)),
        TopologySpreadConstraint(1, "host", "ScheduleAnyway", LabelSelector()),
        TopologySpreadConstraint(1, "rack", "ScheduleAnyway", None),
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("maxSkew", 0, "it is 0, and has to be greater than zero"),
        ("minDomains", 0, "it is 0, and has to be greater than zero"),
        ("topologyKey", "", "it is empty"),
        ("whenUnsatisfiable", "Perhaps", "Invalid enum value 'Perhaps'"),
        ("nodeTaintsPolicy", "Perhaps", "Invalid enum value 'Perhaps'"),
        ("labelSelector.matchLabels", {"app": 1}, "Expected a string for 'app', got 1"),
        ("labelSelector.matchLabels", ["app"], "Expected an object of strings, got ['app']"),
        ("labelSelector", {"matchLabels": {"app": "?"}}, "matchLabels[app]: '?', wanted for key 'app', is not a label"),
    ],
)
def test_an_invalid_spread_constraint_is_an_error(field: str, value: Any, message: str) -> None:
    constraint: dict[str, Any] = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    name, _, within = field.partition(".")
    constraint[name] = {within: value} if within else value
    with pytest.raises(DecodeError) as raised:
        pod({"topologySpreadConstraints": [constraint]})
    assert str(raised.value).startswith(f"pods shop/web-1: spec.topologySpreadConstraints[0].{field}: {message}")


def test_only_required_affinity_is_decoded() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    decoded = pod(
        {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {
                    required: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["4"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
                            {},
                        ]
                    },
                    preferred: [{"weight": 1, "preference": {}}],
                },
                "podAffinity": {
                    required: [
                        {
                            "topologyKey": "zone",
                            "labelSelector": {"matchLabels": {"app": "db"}},
                            "namespaces": ["data"],
                            "namespaceSelector": {},
                            "matchLabelKeys": ["a"],
                            "mismatchLabelKeys": ["b"],
                        }
                    ]
                },
                "podAntiAffinity": {preferred: [{"weight": 1}], required: [{"topologyKey": "host"}]},
            },
        }
    ).spec
    assert decoded.node_selector == Map(disk="ssd")
    assert decoded.node_affinity == NodeSelector(
        (
            NodeSelectorTerm((NodeSelectorRequirement("cpus", "Gt", ("4",)),)),
            NodeSelectorTerm((), (NodeSelectorRequirement("metadata.name", "In", ("node-1",)),)),
            NodeSelectorTerm(),
        )
    )
    assert decoded.pod_affinity == (
        PodAffinityTerm("zone", LabelSelector(Map(app="db")), ("data",), LabelSelector(), ("a",), ("b",)),
    )
    assert decoded.pod_anti_affinity == (PodAffinityTerm("host"),)


def test_tolerations_are_decoded() -> None:
    decoded = pod(
        {
            "tolerations": [
                {"operator": "Exists"},
                {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 300},
            ]
        }
    )
    assert decoded.spec.tolerations == (Toleration(operator="Exists"), Toleration("k", "Equal", "v", "NoExecute", 300))


def test_host_ports_of_containers_and_sidecars_are_decoded() -> None:
    decoded = pod(
        {
            "initContainers": [
                {"name": "init", "ports": [{"containerPort": 1, "hostPort": 1}]},
                {"name": "side", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 2}]},
            ],
            "containers": [
                {
                    "ports": [
                        {"containerPort": 80},
                        {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"},
                        {"containerPort": 81, "hostPort": 8080, "protocol": "TCP", "hostIP": "0.0.0.0"},  # noqa: S104 - the API's word
                        {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
                    ]
                }
            ],
        }
    )
    assert decoded.spec.host_ports == (HostPort("TCP", 2), HostPort("TCP", 8080), HostPort("UDP", 53, "10.0.0.1"))


def test_volumes_are_decoded() -> None:
    decoded = pod(
        {
            "volumes": [
                {"name": "kube-api-access-x7k2p", "projected": {"sources": []}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
                {"name": "shared", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
                {"name": "gce", "gcePersistentDisk": {"pdName": "disk-1", "readOnly": True}},
                {"name": "ebs", "awsElasticBlockStore": {"volumeID": "aws://zone-a/vol-1"}},
                {"name": "iscsi", "iscsi": {"iqn": "iqn.2026-01.example:a", "targetPortal": "10.0.0.1", "lun": 1}},
                {"name": "rbd", "rbd": {"monitors": ["m1", "m2"], "pool": "kube", "image": "i", "readOnly": True}},
                {"name": "azure", "azureDisk": {"diskName": "d", "diskURI": "/disks/d", "kind": "Managed"}},
            ]
        }
    )
    assert decoded.persistent_volume_claims == ("shared", "data-web-1")
    assert decoded.ephemeral_claims == ("web-1-scratch",)
    assert decoded.spec.disks == (
        GCEPersistentDisk("disk-1", read_only=True),
        AWSElasticBlockStore("aws://zone-a/vol-1"),
        ISCSIVolume("iqn.2026-01.example:a"),
        RBDVolume(("m1", "m2"), "kube", "i", read_only=True),
    )
    assert decoded.spec.migrated_volumes == (
        MigratedVolume(
            "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1"
        ),
        MigratedVolume("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "vol-1"),
        MigratedVolume("kubernetes.io/azure-disk", "disk.csi.azure.com", "/disks/d"),
    )
    assert not decoded.spec.has_local_storage


@pytest.mark.parametrize(
    ("volume", "local"),
    [
        ({"hostPath": {"path": "/var"}}, True),
        ({"emptyDir": {}}, True),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, True),
        ({"emptyDir": {"medium": "Memory"}}, False),
        ({"emptyDir": {"medium": "HugePages-2Mi"}}, False),
        ({"configMap": {"name": "x"}}, False),
    ],
)
def test_empty_dir_and_host_path_volumes_are_local_storage(volume: dict[str, Any], *, local: bool) -> None:
    assert pod({"volumes": [{"name": "v", **volume}]}).spec.has_local_storage is local


def test_the_other_fields_of_a_spec_are_decoded() -> None:
    decoded = pod(
        {
            "schedulerName": "mine",
            "priority": -5,
            "resourceClaims": [{"name": "gpu"}],
            "schedulingGates": [{"name": "wait"}],
        }
    ).spec
    assert (decoded.scheduler_name, decoded.priority) == ("mine", -5)
    assert decoded.has_resource_claims
    assert decoded.has_scheduling_gates
    assert not decoded.is_in_scheduling_group


@pytest.mark.parametrize(
    "said", [{"schedulingGroup": {"podGroupName": "all"}}, {"workloadRef": {"name": "all", "podGroup": "workers"}}]
)
def test_a_pod_of_a_scheduling_group_is_recognized(said: dict[str, Any]) -> None:
    assert pod(said).spec.is_in_scheduling_group


RESTART_ALL = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"containers": [{"name": "a", "restartPolicyRules": RESTART_ALL}]}, True),
        ({"containers": [{"name": "a"}], "initContainers": [{"name": "b", "restartPolicyRules": RESTART_ALL}]}, True),
        ({"containers": [{"name": "a", "restartPolicyRules": [{"action": "Restart"}]}]}, False),
        ({"hostNetwork": True, "hostUsers": False}, True),
        ({"hostNetwork": True}, False),
        ({"hostNetwork": True, "hostUsers": True}, False),
        ({"hostUsers": False}, False),
    ],
)
def test_features_that_nodes_must_declare_are_decoded(spec: dict[str, Any], *, needed: bool) -> None:
    assert pod(spec).spec.needs_declared_features is needed


def test_requests_of_containers_and_pod_are_decoded() -> None:
    decoded = pod(
        {
            "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "3"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "9"}}},
                {"name": "b", "resources": {"requests": {"cpu": 0.5, "example.com/gpu": 1}}},
            ],
            "resources": {"requests": {"memory": "4Gi"}},
            "overhead": {"cpu": "100m"},
        }
    )
    assert decoded.spec.requests == Map({"cpu": 3100, "memory": 4 << 30, "example.com/gpu": 1})
    assert decoded.requests_on_node is decoded.spec.requests


class TestResizedInPlace:
    SPEC: dict[str, Any] = {  # noqa: RUF012 - only read
        "nodeName": "node-1",
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
    }

    def held(self, status: dict[str, Any], **spec: Any) -> Any:
        return pod({**self.SPEC, **spec}, status).held_requests

    def test_without_a_resize_the_allocated_requests_are_not_kept(self) -> None:
        """Kubelets report this for every container since 1.33, resized or not."""
        requests = {"cpu": "1000m", "memory": "1Gi"}
        status = {"name": "a", "resources": {"requests": requests}, "allocatedResources": requests}
        assert self.held({"containerStatuses": [status]}) is None

    def test_allocated_resources_above_the_requests_are_kept(self) -> None:
        status = {"name": "a", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"memory": "2Gi"}}
        assert self.held({"containerStatuses": [status]}) == Map(cpu=2000, memory=2 << 30)

    def test_allocated_resources_without_resources_are_ignored(self) -> None:
        assert self.held({"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"}}]}) is None

    def test_an_infeasible_resize_is_decoded(self) -> None:
        status: dict[str, Any] = {
            "containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        }
        assert self.held(status) == Map(cpu=500, memory=1 << 30)
        status["conditions"][0]["reason"] = "Deferred"
        assert self.held(status) is None

    def test_a_resize_of_pod_level_resources_is_decoded(self) -> None:
        status = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}
        assert self.held(status, resources={"requests": {"cpu": "2"}}) == Map(cpu=4000, memory=1 << 30)

    def test_a_resize_of_a_sidecar_is_decoded(self) -> None:
        sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        status = {"initContainerStatuses": [{"name": "s", "resources": {"requests": {"cpu": "2"}}}]}
        assert self.held(status, initContainers=[sidecar]) == Map(cpu=3000, memory=1 << 30)

    def test_a_pod_without_a_node_has_no_allocated_resources(self) -> None:
        status = {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}
        assert self.held(status, nodeName="") is None

    def test_a_malformed_quantity_in_the_status_is_an_error_with_its_field(self) -> None:
        status = {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2x"}}}]}
        with pytest.raises(DecodeError, match=r"status.containerStatuses\[a\].resources.requests\[cpu\]: '2x' is not"):
            self.held(status)

    def test_a_malformed_status_is_an_error_with_its_field(self) -> None:
        status = {"containerStatuses": [{"name": "a", "resources": {"requests": ["cpu"]}}]}
        with pytest.raises(DecodeError, match=r"status.containerStatuses\[0\].resources.requests: Expected `object"):
            self.held(status)
