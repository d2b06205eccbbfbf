"""What the scheduler says of a pod and a node, with the detail a person needs to do something about it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Plugin = Literal[
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
]

PLUGINS: Final[tuple[Plugin, ...]] = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""The filters of the default profile that are reproduced, in the order in which the scheduler asks them."""


class Rejection(msgspec.Struct, frozen=True):
    """One filter's no to a pod on a node."""

    plugin: Plugin
    message: str
    """Why, as `needs cpu 2, has 1500m free of 4`."""
    internal_error: bool = False
    """Whether the scheduler fails there, instead of saying no: it then gives the pod up for this time."""

    def __str__(self) -> str:
        """Return plugin and message in a line."""
        return f"{self.plugin}: {self.message}"


class Unknown(msgspec.Struct, frozen=True):
    """Why nothing can be said of where a pod may go: what Respread doesn't know the scheduler may still decide by."""

    subject: str
    """What is not known, as `DynamicResources`, `SchedulingGates`, `schedulerName` or `PersistentVolumeClaim`."""
    message: str

    def __str__(self) -> str:
        """Return subject and message in a line."""
        return f"{self.subject}: {self.message}"
