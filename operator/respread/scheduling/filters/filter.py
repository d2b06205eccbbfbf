"""What every filter answers, once it is prepared for a pod."""

from __future__ import annotations

from typing import Protocol

from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_sets import NodeSet


class Filter(Protocol):
    """One of the scheduler's filters, prepared for one pod on one view.

    It reads the view as it is whenever it is asked, so pods may be evicted, placed and taken back in between. The two
    answers are the same: `admit` leaves a node out exactly where `reject` has something to say of it.
    """

    @property
    def plugin(self) -> Plugin:
        """Whose answer it is."""
        ...

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return those of the nodes that the filter lets the pod onto."""
        ...

    def reject(self, slot: int) -> Rejection | None:
        """Return why the filter keeps the pod off the node in a slot, or None if it doesn't."""
        ...


class RejectsEverywhere:
    """A filter that has refused the pod before it looked at any node (the scheduler's PreFilter)."""

    __slots__ = ("_rejection",)

    def __init__(self, rejection: Rejection) -> None:
        self._rejection = rejection

    @property
    def plugin(self) -> Plugin:
        """Whose answer it is."""
        return self._rejection.plugin

    def admit(self, nodes: NodeSet) -> NodeSet:  # noqa: ARG002 - a filter is given nodes to choose from
        """Return no node at all."""
        return 0

    def reject(self, slot: int) -> Rejection | None:  # noqa: ARG002 - a filter is asked about a node
        """Say why, wherever it is."""
        return self._rejection
