"""The scheduler's answers about a pod and a node, with the details that a user needs to act."""

from __future__ import annotations

from typing import Final, Literal, get_args

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

PLUGINS: Final[tuple[Plugin, ...]] = get_args(Plugin)
"""The reproduced filters of the default profile, in the scheduler's order."""


class Rejection(msgspec.Struct, frozen=True):
    """The answer of a filter that rejects a node for a pod."""

    plugin: Plugin
    message: str
    """The reason, such as `needs cpu 2, has 1500m free of 4`."""
    internal_error: bool = False
    """Whether the scheduler fails there instead of rejecting the node. It then gives up the pod for now."""

    def __str__(self) -> str:
        """Return plugin and message in one line."""
        return f"{self.plugin}: {self.message}"


class Unknown(msgspec.Struct, frozen=True):
    """Why no prediction is possible: the scheduler may decide by something that Respread does not know."""

    subject: str
    """What is unknown, such as `DynamicResources`, `SchedulingGates`, `schedulerName` or `PersistentVolumeClaim`."""
    message: str
    filters_answer: bool = False
    """Whether the scheduler's filters answer for each node all the same, although a node that passes may still fail: a
    volume may not be made there."""

    def __str__(self) -> str:
        """Return subject and message in one line."""
        return f"{self.subject}: {self.message}"
