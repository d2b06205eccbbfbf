"""In-tree volumes in the form of their CSI drivers: cases from csi-translation-lib."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.cluster.decode.csi_migration import migrated_node_affinity
from respread.cluster.decode.decoder import Decoder
from respread.cluster.objects import PersistentVolume
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def volume(labels: dict[str, str], **spec: Any) -> PersistentVolume:
    decoded = Decoder().decode_object("persistentvolumes", {"metadata": {"name": "pv", "labels": labels}, "spec": spec})
    assert isinstance(decoded, PersistentVolume)
    return decoded


@pytest.mark.parametrize(
    ("source", "handle"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-2"}}, "vol-2"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-3"}}, "vol-3"),
        ({"azureDisk": {"diskURI": "/d", "diskName": "d"}}, "/d"),
        ({"azureDisk": {"diskURI": "/d", "diskName": "d", "kind": "managed"}}, "/d"),
        ({"cinder": {"volumeID": "c-1"}}, "c-1"),
        ({"portworxVolume": {"volumeID": "p-1"}}, "p-1"),
    ],
)
def test_a_migrated_volume_has_the_csi_handle_of_kube_scheduler(source: dict[str, Any], handle: str) -> None:
    migrated = volume({}, **source).migrated
    assert migrated is not None
    assert (migrated.csi_volume_handle, migrated.error) == (handle, "")


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        ({}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        ({ZONE: "europe-west1-b"}, "projects/UNSPECIFIED/zones/europe-west1-b/disks/d"),
        ({BETA_ZONE: "europe-west1-c", ZONE: "x"}, "projects/UNSPECIFIED/zones/europe-west1-c/disks/d"),
        ({ZONE: "europe-west1-b__europe-west1-c"}, "projects/UNSPECIFIED/regions/europe-west1/disks/d"),
    ],
)
def test_the_handle_of_a_gce_disk_contains_its_zone_or_region(labels: dict[str, str], handle: str) -> None:
    migrated = volume(labels, gcePersistentDisk={"pdName": "d"}).migrated
    assert migrated is not None
    assert migrated.csi_volume_handle == handle


@pytest.mark.parametrize(
    ("labels", "source"),
    [
        ({}, {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/x"}}),
        ({}, {"awsElasticBlockStore": {"volumeID": "aws://vol-1"}}),
        ({}, {"awsElasticBlockStore": {"volumeID": "aws://[/vol-1"}}),
        ({}, {"azureDisk": {"diskURI": "/d", "kind": "Dedicated"}}),
        ({ZONE: "a__b"}, {"gcePersistentDisk": {"pdName": "d"}}),
        ({ZONE: "europe-west1-b__europe-west2-b"}, {"gcePersistentDisk": {"pdName": "d"}}),
    ],
)
def test_a_volume_that_cannot_be_translated_has_an_error(labels: dict[str, str], source: dict[str, Any]) -> None:
    migrated = volume(labels, **source).migrated
    assert migrated is not None
    assert migrated.csi_volume_handle == ""
    assert migrated.error


@pytest.mark.parametrize("source", [{}, {"nfs": {"server": "s", "path": "/"}}, {"vsphereVolume": {"volumePath": "v"}}])
def test_other_volumes_are_not_migrated(source: dict[str, Any]) -> None:
    """The scheduler does not check the migration of vSphere and Azure File volumes."""
    assert volume({}, **source).migrated is None


def affinity(*terms: dict[str, str]) -> NodeSelector:
    return NodeSelector(
        tuple(
            NodeSelectorTerm(tuple(NodeSelectorRequirement(key, "In", (value,)) for key, value in term.items()))
            for term in terms
        )
    )


@pytest.mark.parametrize(
    ("before", "labels", "after"),
    [
        (None, {}, None),
        (None, {ZONE: "a"}, affinity({EBS_ZONE: "a"})),
        (None, {BETA_ZONE: "a"}, affinity({EBS_ZONE: "a"})),
        (None, {ZONE: ""}, None),
        (affinity({ZONE: "a"}, {"rack": "r", ZONE: "b"}), {}, affinity({EBS_ZONE: "a"}, {"rack": "r", EBS_ZONE: "b"})),
        (affinity({ZONE: "a"}), {ZONE: "b"}, affinity({EBS_ZONE: "a"})),
        (affinity({"rack": "r"}, {}), {ZONE: "b"}, affinity({"rack": "r", EBS_ZONE: "b"}, {EBS_ZONE: "b"})),
        (affinity({BETA_ZONE: "a", BETA_REGION: "r"}), {}, affinity({EBS_ZONE: "a", REGION: "r"})),
        (affinity({ZONE: "a", BETA_ZONE: "b"}), {}, affinity({EBS_ZONE: "a", BETA_ZONE: "b"})),
        (affinity({ZONE: "a", BETA_REGION: "r"}), {}, affinity({EBS_ZONE: "a", BETA_REGION: "r"})),
    ],
)
def test_the_node_affinity_of_a_volume_uses_the_topology_keys_of_the_csi_driver(
    before: NodeSelector | None, labels: dict[str, str], after: NodeSelector | None
) -> None:
    assert migrated_node_affinity("kubernetes.io/aws-ebs", before, Map(labels)) == after


def test_drivers_without_own_topology_keys_keep_the_affinity() -> None:
    before = affinity({ZONE: "a"})
    assert migrated_node_affinity("kubernetes.io/azure-disk", before, Map({ZONE: "b"})) == before
