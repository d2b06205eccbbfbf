"""Nodes, with the fields that scheduling and spreading need."""

from __future__ import annotations

import msgspec
from immutables import Map

from respread.cluster.meta import Labels, ObjectKey
from respread.cluster.pod import Resources, TaintEffect


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: str
    effect: TaintEffect
    value: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A node."""

    name: str
    uid: str = ""
    labels: Labels = Map()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Resources = Map()
    """`pods` is the number of pods that the node accepts."""

    @property
    def key(self) -> ObjectKey:
        """The node's name, with an empty namespace."""
        return ObjectKey("", self.name)
