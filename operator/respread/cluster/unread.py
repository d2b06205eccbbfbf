"""Objects that exist but could not be decoded in full: what is known about them."""

from __future__ import annotations

import msgspec

from respread.cluster.node import Node
from respread.cluster.pod import Pod


class Unread(msgspec.Struct, frozen=True):
    """An object that could not be decoded in full."""

    fault: str
    """The object and what is wrong with it, in one line."""
    node_name: str | None = ""
    """For a pod: the node on which it uses more than is known. Empty: none. None: any node, because its node can't be
    decoded, or because it may have an anti-affinity that can't be decoded."""
    labels_read: bool = True
    """Whether its labels are known."""


class Outline(msgspec.Struct, frozen=True):
    """The parts that could be decoded."""

    unread: Unread
    known: Pod | Node | None = None
    """The object with the known parts; None if there are too few."""
