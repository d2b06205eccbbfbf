"""The interface of a filter that is prepared for a pod."""

from __future__ import annotations

from typing import Protocol

from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_sets import NodeSet


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


class RejectsEverywhere:
    """A filter that rejects the pod before it considers any node (the scheduler's PreFilter)."""

    __slots__ = ("_rejection",)

    def __init__(self, rejection: Rejection) -> None:
        self._rejection = rejection

    @property
    def plugin(self) -> Plugin:
        """The plugin that it predicts."""
        return self._rejection.plugin

    def admit(self, nodes: NodeSet) -> NodeSet:  # noqa: ARG002 - a filter is given nodes to choose from
        """Return no node."""
        return 0

    def reject(self, slot: int) -> Rejection | None:  # noqa: ARG002 - a filter is asked about a node
        """Return the reason, for any node."""
        return self._rejection
