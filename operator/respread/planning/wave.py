"""Which moves may be made at the same time.

A plan places each replacement on one node; the scheduler may pick another. So moves go together only if each has a node
that it fits whatever nodes the others' replacements take, with every evicted pod still holding what it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.budgets import BudgetLedger
from respread.planning.placement import Placement
from respread.scheduling.node_sets import NodeSet, slots_of
from respread.scheduling.prepared_pod import PreparedPod


class Member(NamedTuple):
    """One move of a wave."""

    pod: Pod
    replacement: PreparedPod
    nodes: NodeSet
    """All nodes that its replacement may land on."""


class FirstStep(NamedTuple):
    """A step that could be made now, if it went alone."""

    policy: str
    members: tuple[Member, ...]
    left: NodeSet
    """The nodes that its pods leave."""
    closed: NodeSet
    """The nodes that would take one of its replacements if there were room."""


class Wave:
    """Moves that are safe together, whichever of their nodes the scheduler picks for each."""

    __slots__ = ("_budgets", "_closed", "_left", "_members", "_most", "_of_policy", "_placement")

    def __init__(self, placement: Placement, budgets: BudgetLedger, most: Mapping[str, int]) -> None:
        """Start an empty wave.

        Args:
            placement: the cluster as it is.
            budgets: what they still allow; what the wave takes of it is taken here.
            most: by policy, how many moves it has room for: more than its limits allow at once would be in vain.
        """
        self._placement = placement
        self._budgets = budgets
        self._most = most
        self._of_policy: Counter[str] = Counter()
        self._members: list[Member] = []
        self._left: NodeSet = 0
        self._closed: NodeSet = 0

    def join(self, step: FirstStep) -> bool:
        """Add a step if it is safe beside those in the wave, and return whether it is."""
        joining = step.members
        pods = [member.pod for member in joining]
        if self._of_policy[step.policy] + len(joining) > self._most.get(step.policy, 0):
            return False
        if self._members and any(member.replacement.depends_on_pods for member in (*joining, self._members[0])):
            return False
        if self._members and ((step.closed & self._left) | (self._closed & step.left)):
            return False  # a node that one of them leaves would open to another, who has not reckoned with it
        if not self._budgets.may_all_go(pods):
            return False
        self._members.extend(joining)
        if not self._all_have_places():
            del self._members[-len(joining) :]
            return False
        for pod in pods:
            self._budgets.take(pod)
        self._of_policy[step.policy] += len(joining)
        self._left |= step.left
        self._closed |= step.closed
        return True

    def _all_have_places(self) -> bool:
        """Whether every member has a node that it fits whatever nodes the others take."""
        return all(
            member.nodes.bit_count() >= len(self._members)  # the others are too few to take them all
            or self._has_place(member)
            for member in self._members
        )

    def _has_place(self, member: Member) -> bool:
        """Whether a member fits some node even if all others land there who may; the least contested come first."""
        others = [each for each in self._members if each is not member and each.nodes & member.nodes]
        contenders = {slot: [each.pod for each in others if each.nodes >> slot & 1] for slot in slots_of(member.nodes)}
        return any(
            self._fits_beside(member, slot, contenders[slot])
            for slot in sorted(contenders, key=lambda slot: (len(contenders[slot]), slot))
        )

    def _fits_beside(self, member: Member, slot: int, others: Sequence[Pod]) -> bool:
        view = self._placement.view
        mark = view.mark()
        name = self._placement.table.names[slot]
        for pod in others:
            view.place(pod, name)
        fits = member.replacement.admitted(spread=False) >> slot & 1
        view.revert(mark)
        return bool(fits)
