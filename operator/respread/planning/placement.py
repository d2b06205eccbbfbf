"""Where the replacement of an evicted pod may be placed, as planning asks for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from respread.cluster.pod import Pod


class Placement(Protocol):
    """The cluster under change, seen through every scheduling rule but PodTopologySpread.

    Moves are made and taken back in the order of a stack.
    """

    def open_nodes(self, pod: Pod) -> Collection[str]:
        """Return the nodes that a replacement of the pod fits, the pod itself still holding what it holds."""
        ...

    def is_open(self, pod: Pod, node: str) -> bool:
        """Whether a replacement of the pod fits a node now."""
        ...

    def depends_on_pods(self, pod: Pod) -> bool:
        """Whether other pods' moves can open or close nodes for this one otherwise than by what they take of a node."""
        ...

    def fits_beside(self, pod: Pod, node: str, others: Sequence[Pod]) -> bool:
        """Whether a replacement of the pod fits a node even after replacements of all the others were placed there."""
        ...

    def move(self, pod: Pod, node: str) -> None:
        """Evict a pod, place its replacement on a node, and let the evicted pod be gone."""
        ...

    def undo(self) -> None:
        """Take the last move back."""
        ...

    def reserve(self, pod: Pod, node: str) -> None:
        """Place a replacement of the pod on a node for good, the pod itself staying."""
        ...
