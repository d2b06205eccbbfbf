"""Volumes as the scheduler tells them apart: disks that only one node may have, and what CSI drivers count."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class GCEPersistentDisk(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A disk that pods of one node share only if all of them read only."""

    pd_name: str
    read_only: bool = False


class AWSElasticBlockStore(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A disk that no two pods of a node share, even reading only."""

    volume_id: str
    read_only: bool = False


class ISCSIVolume(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A target that pods of one node share only if all of them read only; portal and LUN are not compared."""

    iqn: str
    read_only: bool = False


class RBDVolume(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An image (of a pool, under any common monitor) that pods of one node share only if all of them read only."""

    monitors: tuple[str, ...]
    pool: str
    image: str
    read_only: bool = False


Disk: TypeAlias = GCEPersistentDisk | AWSElasticBlockStore | ISCSIVolume | RBDVolume
"""What VolumeRestrictions compares: a volume written into the pod itself, not a claim."""


class MigratedVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume of an in-tree plugin, as the CSI driver that took the plugin over knows it.

    Mirrors csi-translation-lib for the five plugins whose migration the scheduler knows: AWS EBS, GCE PD, Azure Disk,
    Cinder and Portworx.
    """

    plugin: str
    """As in a CSINode's `migrated_plugins`: `kubernetes.io/aws-ebs`."""
    csi_driver: str
    csi_volume_handle: str = ""
    error: str = ""
    """Why there is no handle: the scheduler doesn't count such a volume of a claim, and refuses a pod that names it."""
