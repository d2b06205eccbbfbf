"""The scheduler's answers about a pod and a node, with the details that a user needs to act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol, get_args

import msgspec

from respread.scheduling.view.node_table import NodeSet

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


class Filter(Protocol):
    """One of the scheduler's filters, prepared for one pod on one view.

    It reads the view whenever it is called, so pods may be evicted, placed and restored in between. The two methods
    agree: `admit` excludes a node exactly if `reject` returns a reason for it.
    """

    @property
    def plugin(self) -> Plugin:
        """The plugin that it predicts."""
        ...

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that the filter accepts for the pod."""
        ...

    def reject(self, slot: int) -> Rejection | None:
        """Return why the filter rejects the node in a slot, or None if it does not."""
        ...


class FixedFilter:
    """A filter whose answer depends on nothing but nodes and volumes, so that no step of a plan changes it."""

    __slots__ = ("_nodes", "_why", "plugin")

    def __init__(self, plugin: Plugin, nodes: NodeSet, why: Callable[[int], str]) -> None:
        """Accept some nodes. `why` returns why another one is rejected, by its slot."""
        self.plugin: Plugin = plugin
        self._nodes = nodes
        self._why = why

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these that are accepted."""
        return nodes & self._nodes

    def reject(self, slot: int) -> Rejection | None:
        """Return why the node is rejected, if it is."""
        if self._nodes >> slot & 1:
            return None
        return Rejection(self.plugin, self._why(slot))


def rejects_everywhere(plugin: Plugin, message: str) -> FixedFilter:
    """Return a filter that rejects the pod before it considers any node (the scheduler's PreFilter)."""
    return FixedFilter(plugin, 0, lambda _slot: message)
