"""Which moves may be made at the same time.

A plan places each replacement on one node; the scheduler may pick another. So moves go together only if each has a node
that it fits whatever nodes the others' replacements take, with every evicted pod still holding what it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.scheduling.node_sets import NodeSet, slots_of
from respread.scheduling.prepared_pod import PreparedPod


class Member(NamedTuple):
    """One move of a wave."""

    pod: Pod
    replacement: PreparedPod
    nodes: NodeSet
    """All nodes that its replacement may land on."""


class Wave:
    """Moves that are safe together, whichever of their nodes the scheduler picks for each."""

    __slots__ = ("_members", "_most", "_of_policy", "_placement", "_places")

    def __init__(self, placement: Placement, most: dict[str, int]) -> None:
        """Start an empty wave.

        Args:
            placement: the cluster, with all pods that are to be evicted still there.
            most: by policy, how many moves it has room for: more than its limits allow at once would be in vain.
        """
        self._placement = placement
        self._most = most
        self._of_policy: Counter[str] = Counter()
        self._members: list[Member] = []
        self._places: dict[int, int] = {}
        """By member, for those that may be left without a node: one that it fits even if all others take it who may."""

    def join(self, policy: str, joining: Sequence[Member]) -> bool:
        """Add the moves of a step if they are safe beside those in the wave, and return whether they were."""
        if self._of_policy[policy] + len(joining) > self._most.get(policy, 0):
            return False
        if self._members and any(member.replacement.depends_on_pods for member in (*joining, self._members[0])):
            return False
        before = len(self._members)
        self._members.extend(joining)
        new_nodes = 0
        for member in joining:
            new_nodes |= member.nodes
        found: dict[int, int] = {}
        for number, member in enumerate(self._members):
            if member.nodes.bit_count() >= len(self._members):
                continue  # the others are too few to take them all
            if number < before and (place := self._places.get(number)) is not None and not new_nodes >> place & 1:
                continue
            place = self._place_for(number)
            if place is None:
                del self._members[before:]
                return False
            found[number] = place
        self._places.update(found)
        self._of_policy[policy] += len(joining)
        return True

    def _place_for(self, number: int) -> int | None:
        """Return a node that a member fits even if all others who may land there do; the least contested come first."""
        member = self._members[number]
        others = [each for at, each in enumerate(self._members) if at != number and each.nodes & member.nodes]
        contenders = {slot: [each.pod for each in others if each.nodes >> slot & 1] for slot in slots_of(member.nodes)}
        for slot in sorted(contenders, key=lambda slot: (len(contenders[slot]), slot)):
            if self._fits_beside(member, slot, contenders[slot]):
                return slot
        return None

    def _fits_beside(self, member: Member, slot: int, others: Sequence[Pod]) -> bool:
        view = self._placement.view
        mark = view.mark()
        name = self._placement.table.names[slot]
        for pod in others:
            view.place(pod, name)
        fits = member.replacement.admitted(spread=False) >> slot & 1
        view.revert(mark)
        return bool(fits)
