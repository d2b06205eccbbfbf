"""Nodes."""

from __future__ import annotations

import sys

import msgspec

from respread.cluster.decode.metadata import WireAmounts, WireCondition, WireMetadata, nano_amounts
from respread.cluster.interning import Interning
from respread.cluster.objects import Node, Taint
from respread.cluster.quantity import allocatable


class _WireNodeSpec(msgspec.Struct):
    unschedulable: bool | None = False
    taints: tuple[Taint, ...] | None = None


class WireNodeStatus(msgspec.Struct):
    """`status` of a node, without images, addresses and capacity, which Respread does not use."""

    allocatable: WireAmounts | None = None
    conditions: list[WireCondition] | None = None


class WireNode(msgspec.Struct):
    """A node as the API sends it."""

    metadata: WireMetadata
    spec: _WireNodeSpec = msgspec.field(default_factory=_WireNodeSpec)
    status: WireNodeStatus = msgspec.field(default_factory=WireNodeStatus)


def decode_node(wire: WireNode, interning: Interning) -> Node:
    """Return the node. Without a Ready condition it is not Ready.

    Raises:
        FieldError: the API would reject the content of a field.
    """
    return Node(
        name=sys.intern(wire.metadata.name),
        uid=wire.metadata.uid,
        labels=interning.labels(wire.metadata.labels),
        taints=wire.spec.taints or (),
        unschedulable=bool(wire.spec.unschedulable),
        ready=any(each.type == "Ready" and each.status == "True" for each in wire.status.conditions or ()),
        allocatable=allocatable(nano_amounts(wire.status.allocatable, "status.allocatable")),
    )
