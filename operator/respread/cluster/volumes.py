"""Volumes as the scheduler distinguishes them: disks that only one node may use, and volumes that CSI drivers count."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class GCEPersistentDisk(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A disk that pods on one node can share only if all of them only read."""

    pd_name: str
    read_only: bool = False


class AWSElasticBlockStore(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A disk that two pods on a node can't share, even if they only read."""

    volume_id: str
    read_only: bool = False


class ISCSIVolume(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A target that pods on one node can share only if all of them only read. Portal and LUN are not compared."""

    iqn: str
    read_only: bool = False


class RBDVolume(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An image (of a pool, under any common monitor) that pods on one node can share only if all of them only read."""

    monitors: tuple[str, ...]
    pool: str
    image: str
    read_only: bool = False


Disk: TypeAlias = GCEPersistentDisk | AWSElasticBlockStore | ISCSIVolume | RBDVolume
"""What VolumeRestrictions compares: a volume in the pod spec, not a claim."""


class MigratedVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume of an in-tree plugin with its identity for the CSI driver that replaced the plugin.

    Mirrors csi-translation-lib for the five plugins whose migration the scheduler supports: AWS EBS, GCE PD, Azure
    Disk, Cinder and Portworx.
    """

    plugin: str
    """As in a CSINode's `migrated_plugins`: `kubernetes.io/aws-ebs`."""
    csi_driver: str
    csi_volume_handle: str = ""
    error: str = ""
    """Why there is no handle. The scheduler does not count such a volume of a claim, and rejects a pod that contains
    it."""
