"""Which moves may be made at the same time.

A plan places each replacement on one node; the scheduler may pick another. So two moves go together only if each has a
node that it fits whatever nodes the others' replacements take, with every evicted pod still holding what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from respread.cluster.pod import Pod
from respread.planning.placement import Placement


class _Member:
    __slots__ = ("nodes", "place", "pod")

    def __init__(self, pod: Pod, nodes: frozenset[str], place: str) -> None:
        self.pod = pod
        self.nodes = nodes
        self.place = place
        """A node that the replacement fits even if everyone else who may takes it."""


class Wave:
    """Moves that are safe together, whichever of their nodes the scheduler picks for each."""

    __slots__ = ("_claims", "_members", "_placement", "_size")

    def __init__(self, placement: Placement, size: int) -> None:
        """Start an empty wave of at most `size` moves."""
        self._placement = placement
        self._size = size
        self._claims: dict[str, list[Pod]] = {}
        """By node, the pods whose replacements may land there."""
        self._members: list[_Member] = []

    def join(self, pod: Pod, nodes: Iterable[str]) -> bool:
        """Add a move if it is safe beside those in the wave, and return whether it was.

        Args:
            pod: the pod to be evicted.
            nodes: all nodes that its replacement may land on.
        """
        if len(self._members) >= self._size or (self._members and self._depends_on_others(pod)):
            return False
        may_take = frozenset(nodes)
        place = self._place_for(pod, may_take)
        if place is None:
            return False
        for node in may_take:
            self._claims.setdefault(node, []).append(pod)
        moved: list[tuple[_Member, str]] = []
        for member in self._members:
            if member.place in may_take:
                other_place = self._place_for(member.pod, member.nodes)
                if other_place is None:
                    for node in may_take:
                        self._claims[node].remove(pod)
                    return False
                moved.append((member, other_place))
        for member, other_place in moved:
            member.place = other_place
        self._members.append(_Member(pod, may_take, place))
        return True

    def _depends_on_others(self, pod: Pod) -> bool:
        return self._placement.depends_on_pods(pod) or self._placement.depends_on_pods(self._members[0].pod)

    def _place_for(self, pod: Pod, nodes: frozenset[str]) -> str | None:
        """Return a node that the pod fits even if all others who may land there do; the least contested come first."""
        for node in sorted(nodes, key=lambda node: (len(self._claims.get(node, ())), node)):
            others = [each for each in self._claims.get(node, ()) if each is not pod]
            if self._placement.fits_beside(pod, node, others):
                return node
        return None
