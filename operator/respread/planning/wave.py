"""Which moves may be made at the same time.

A plan places each replacement on one node; the scheduler may pick another. So moves go together only if each has a node
that it fits whatever nodes the others' replacements take, with every evicted pod still holding what it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.board import Board
from respread.planning.budgets import BudgetLedger
from respread.planning.effort import Effort
from respread.planning.placement import Placement
from respread.planning.safety import Assessment, assess
from respread.planning.search import Choice
from respread.planning.selection import Selection
from respread.scheduling.node_sets import NodeSet, node_set, slots_of
from respread.scheduling.prepared_pod import PreparedPod

_MOST_COURSES: Final = 1_000
"""How many courses that a step may take are looked at."""


class Member(NamedTuple):
    """One move of a wave."""

    pod: Pod
    replacement: PreparedPod
    nodes: NodeSet
    """All nodes that its replacement may land on."""


class Wave:
    """Moves that are safe together, whichever of their nodes the scheduler picks for each."""

    __slots__ = ("_budgets", "_closed", "_members", "_most", "_of_policy", "_placement", "_places", "_vacated")

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
        self._places: dict[int, int] = {}
        """By member, for those that may be left without a node: one that it fits even if all others take it who may."""
        self._vacated: NodeSet = 0
        """The nodes that pods of the wave leave."""
        self._closed: NodeSet = 0
        """The nodes that would take a replacement of the wave if there were room."""

    def join(self, board: Board, choice: Choice, selection: Selection) -> Assessment | None:
        """Add a step if it is safe beside those in the wave, and return what may come of it then.

        Args:
            board: as it is before the step; no moves have been made on it.
            choice: the step.
            selection: which policy governs which pods.
        """
        policy = selection.policy_of(choice.victims[0].namespace, choice.victims[0].labels)
        if policy is None or self._of_policy[policy.name] + len(choice.step) > self._most.get(policy.name, 0):
            return None
        # Solved with the room gone that other components want, it may land elsewhere as long as they have not taken it.
        assessment = assess(board, choice.step, Effort(_MOST_COURSES))
        if assessment is None or not self._budgets.may_all_go(choice.victims):
            return None
        joining = [
            Member(pod, board.pieces[spot.piece].replacement, assessment.nodes(spot.piece))
            for spot, pod in zip(choice.step, choice.victims, strict=True)
        ]
        if not self._join(joining, node_set([spot.slot for spot in choice.step])):
            return None
        for pod in choice.victims:
            self._budgets.take(pod)
        self._of_policy[policy.name] += len(choice.step)
        return assessment

    def _join(self, joining: Sequence[Member], vacated: NodeSet) -> bool:
        if self._members and any(member.replacement.depends_on_pods for member in (*joining, self._members[0])):
            return False
        closed = 0
        for member in joining:
            closed |= member.replacement.settled & ~member.replacement.admitted(spread=False)
        if self._members and ((closed & self._vacated) | (self._closed & vacated)):
            return False  # a node that one of them leaves would open to another, who has not reckoned with it
        before = len(self._members)
        self._members.extend(joining)
        if (places := self._places_beside(joining, before)) is None:
            del self._members[before:]
            return False
        self._places.update(places)
        self._vacated |= vacated
        self._closed |= closed
        return True

    def _places_beside(self, joining: Sequence[Member], before: int) -> dict[int, int] | None:
        """Return a place for each member that needs another one now, or None if there is none for one of them."""
        new_nodes = 0
        for member in joining:
            new_nodes |= member.nodes
        places: dict[int, int] = {}
        for number, member in enumerate(self._members):
            if member.nodes.bit_count() >= len(self._members):
                continue  # the others are too few to take them all
            if number < before and (place := self._places.get(number)) is not None and not new_nodes >> place & 1:
                continue
            found = self._place_for(number)
            if found is None:
                return None
            places[number] = found
        return places

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
