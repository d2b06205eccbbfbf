"""Translates volumes of in-tree plugins to those of the CSI drivers that replaced them (csi-translation-lib).

It only covers the plugins whose migration the scheduler supports. Each node's CSINode says whether a plugin is
migrated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from respread.cluster.pod import MigratedVolume, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_ZONES_DELIMITER: Final = "__"

_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")

DRIVER_OF_PLUGIN: Final[Mapping[str, str]] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""The CSI driver that replaced each in-tree plugin (also as the provisioner of a StorageClass)."""

_ZONE_KEY_OF_PLUGIN: Final[Mapping[str, str]] = {
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}


class _AWSElasticBlockStore(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool | None = False


class _GCEPersistentDisk(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    pd_name: str = ""
    read_only: bool | None = False


class _AzureDisk(msgspec.Struct, gc=False, rename="camel"):
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class _Cinder(msgspec.Struct, gc=False, rename="camel"):
    volume_id: str = msgspec.field(default="", name="volumeID")


class _Portworx(msgspec.Struct, gc=False, rename="camel"):
    volume_id: str = msgspec.field(default="", name="volumeID")


class InTreeSources(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The fields of a volume or PersistentVolume for in-tree plugins. At most one is set."""

    aws_elastic_block_store: _AWSElasticBlockStore | None = None
    gce_persistent_disk: _GCEPersistentDisk | None = None
    azure_disk: _AzureDisk | None = None
    cinder: _Cinder | None = None
    portworx_volume: _Portworx | None = None


def migrated(sources: InTreeSources, labels: Mapping[str, str] | None = None) -> MigratedVolume | None:
    """Return the volume as the CSI driver names it; None if it is not a volume of an in-tree plugin.

    The labels are those of the PersistentVolume, which contain the zones of a GCE disk; None for a volume in a pod
    spec.
    """
    if sources.aws_elastic_block_store is not None:
        return _migrated_ebs(sources.aws_elastic_block_store.volume_id)
    if sources.gce_persistent_disk is not None:
        return _migrated_gce(sources.gce_persistent_disk.pd_name, labels or {})
    if sources.azure_disk is not None:
        return _migrated_azure_disk(sources.azure_disk.disk_uri, sources.azure_disk.kind)
    if sources.cinder is not None:
        return _volume("kubernetes.io/cinder", sources.cinder.volume_id)
    if sources.portworx_volume is not None:
        return _volume("kubernetes.io/portworx-volume", sources.portworx_volume.volume_id)
    return None


def migrated_node_affinity(
    plugin: str, affinity: NodeSelector | None, labels: Mapping[str, str]
) -> NodeSelector | None:
    """Return a PersistentVolume's node affinity with the topology keys of the CSI driver.

    The zone key is renamed. Without one, the zones in the volume's label are used (`a__b` means two). A beta region key
    is replaced by the stable one.
    """
    csi_key = _ZONE_KEY_OF_PLUGIN.get(plugin)
    if csi_key is None:
        return affinity
    keys = {each.key for each in _expressions(affinity)}
    beta = _ZONE not in keys and (_BETA_ZONE in keys or (_ZONE not in labels and _BETA_ZONE in labels))
    zone_key = _BETA_ZONE if beta else _ZONE
    if any(each.key == zone_key and each.values for each in _expressions(affinity)):
        affinity = _renamed(affinity, zone_key, csi_key)
    elif zones := sorted({zone.strip() for zone in labels.get(zone_key, "").split(_ZONES_DELIMITER)} - {""}):
        affinity = _with_expression(affinity, NodeSelectorRequirement(csi_key, "In", tuple(zones)))
    if beta and any(each.key == _BETA_REGION and each.values for each in _expressions(affinity)):
        affinity = _renamed(affinity, _BETA_REGION, _REGION)
    return affinity


def _migrated_ebs(volume_id: str) -> MigratedVolume:
    plugin = "kubernetes.io/aws-ebs"
    if not volume_id.startswith("aws://"):
        return _volume(plugin, volume_id)
    try:
        handle = urlsplit(volume_id).path.strip("/")
    except ValueError as error:
        return _failed(plugin, f"{volume_id!r} is not the id of an EBS volume: {error}")
    if _EBS_VOLUME.fullmatch(handle) is None:
        return _failed(plugin, f"{volume_id!r} is not the id of an EBS volume")
    return _volume(plugin, handle)


def _migrated_gce(pd_name: str, labels: Mapping[str, str]) -> MigratedVolume:
    plugin = "kubernetes.io/gce-pd"
    zones = (labels.get(_BETA_ZONE) or labels.get(_ZONE, "")).split(_ZONES_DELIMITER)
    if len(zones) == 1:
        return _volume(plugin, f"projects/UNSPECIFIED/zones/{zones[0] or 'UNSPECIFIED'}/disks/{pd_name}")
    regions = {zone.rpartition("-")[0] for zone in zones}
    region = regions.pop()
    if regions or not all(zone.count("-") == 2 for zone in zones):  # noqa: PLR2004 - as in europe-west1-b
        return _failed(plugin, f"zones {', '.join(zones)} are not those of one region of GCE")
    return _volume(plugin, f"projects/UNSPECIFIED/regions/{region}/disks/{pd_name}")


def _migrated_azure_disk(uri: str, kind: str | None) -> MigratedVolume:
    plugin = "kubernetes.io/azure-disk"
    if kind is not None and kind.lower() != "managed":
        return _failed(plugin, f"an Azure disk of kind {kind} cannot be migrated to CSI")
    return _volume(plugin, uri)


def _volume(plugin: str, handle: str) -> MigratedVolume:
    return MigratedVolume(plugin, DRIVER_OF_PLUGIN[plugin], handle)


def _failed(plugin: str, error: str) -> MigratedVolume:
    return MigratedVolume(plugin, DRIVER_OF_PLUGIN[plugin], "", error)


def _expressions(affinity: NodeSelector | None) -> Iterator[NodeSelectorRequirement]:
    if affinity is not None:
        for term in affinity.node_selector_terms:
            yield from term.match_expressions


def _renamed(affinity: NodeSelector | None, old_key: str, new_key: str) -> NodeSelector | None:
    if affinity is None:
        return None
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                tuple(
                    NodeSelectorRequirement(new_key if each.key == old_key else each.key, each.operator, each.values)
                    for each in term.match_expressions
                ),
                term.match_fields,
            )
            for term in affinity.node_selector_terms
        )
    )


def _with_expression(affinity: NodeSelector | None, added: NodeSelectorRequirement) -> NodeSelector:
    terms = (NodeSelectorTerm(),) if affinity is None else affinity.node_selector_terms or (NodeSelectorTerm(),)
    return NodeSelector(tuple(NodeSelectorTerm((*term.match_expressions, added), term.match_fields) for term in terms))
