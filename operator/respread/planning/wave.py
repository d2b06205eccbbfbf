"""Which moves may be made at the same time, and beside moves in flight.

A plan places each replacement on one node, but the scheduler may pick another. So moves go together only if each
replacement fits a node whatever nodes the other replacements take, with every evicted pod still holding its resources.
The other pods that need a node are the replacements of moves in flight, and pods that others created. If one of these
has a feasible node now, it keeps one, whatever nodes the wave's replacements take. So no move leaves a pod Pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.planning.held import Held
from respread.planning.placement import is_replaced_when_gone
from respread.planning.room.contention import Contention
from respread.planning.room.demand import Conflict, Current, Demand, Leaving, held_by, wanted_by
from respread.planning.room.preemption import Preemptor, Priorities, enabled_by
from respread.planning.solution import FirstStep
from respread.planning.victims.budgets import BudgetBook
from respread.scheduling.view.node_sets import NodeSet, slots_of

_NODES_NAMED: Final = 3
NO_MORE: Final = Held(Reason.LIMIT_REACHED, "limits.inFlight of its policy allows no more evictions at once")
NO_BUDGET_LEFT: Final = Held(Reason.IN_MOTION, "it waits until its budgets have room for it beside other moves")
_UNTIL_GONE: Final = Held(
    Reason.IN_MOTION,
    "it waits until terminating pods are gone: replacements may land on the nodes that they leave, for which the step "
    "was not assessed",
)
UNTIL_READY: Final = (NO_MORE, NO_BUDGET_LEFT)
"""What ends when replacements are Ready. What else a step waits for may end when they have a node."""


class Wave:
    """Moves that are safe together, whichever of their nodes the scheduler picks for each."""

    def __init__(
        self,
        current: Current,
        budgets: BudgetBook,
        most: Mapping[str, int],
        contention: Contention,
        leaving: Leaving,
        preemptors: Iterable[Preemptor],
        without_node: Iterable[Demand],
        priorities: Priorities,
    ) -> None:
        """Start an empty wave.

        Args:
            current: completes demands on the current cluster.
            budgets: what they still allow. The wave takes its evictions from it.
            most: by policy, how many moves it has room for. More than its limits allow at once would be useless.
            contention: the pods that need a node already. The wave's replacements join them.
            leaving: the room that terminating pods leave. `contention` adds that of the wave.
            preemptors: the pods for which the scheduler may preempt others, whose replacements then need nodes too.
            without_node: the pods that no node accepts now.
            priorities: of the pods on the nodes.
        """
        self._placement = current.placement
        self._current = current
        self._budgets = budgets
        self._most = most
        self._contention = contention
        self._leaving = leaving
        self._preemptors = tuple(preemptors)
        self._without_node = tuple(without_node)
        self._priorities = priorities
        self._of_policy: Counter[str] = Counter()
        self._joined: dict[str, Demand] = {}
        """By the UIDs of the pods."""
        self._reserved: dict[str, Demand] = {}
        """What holds room for moves that may join later, by the same."""
        self._left: NodeSet = 0
        self._closed: NodeSet = 0
        self._least: Mapping[str, int] | None = None

    def join(self, step: FirstStep, component: int) -> Held | None:
        """Join a step if it is safe beside everything in flight, and return None, or else return what it waits for.

        Args:
            step: the step.
            component: the number of its solution.
        """
        joining = step.members
        pods = [member.pod for member in joining]
        if not self.may_go(step):
            return NO_BUDGET_LEFT
        left = self._slots_left(pods)
        if (held := self._preempting(joining, left)) is not None:
            return held
        if self._opens_another(joining, left):
            return _UNTIL_GONE
        demands = [self._current.of(member, component=component) for member in joining]
        if (held := self._take_room(demands, left)) is not None:
            return held
        self._joined[joining[0].pod.uid] = demands[0]
        for pod in pods:
            self._budgets.take(pod)
        self._of_policy[step.policy] += len(joining)
        for slot in left:
            self._left |= 1 << slot
        for member in joining:
            self._closed |= member.may_open
            wanted = wanted_by(member.pod)
            least = wanted if self._least is None else self._least
            self._least = {name: min(amount, wanted[name]) for name, amount in least.items() if name in wanted}
        return None

    def may_go(self, step: FirstStep) -> bool:
        """Return whether budgets have room for a step beside those that have joined."""
        return self._budgets.may_all_go([member.pod for member in step.members])

    def expect(self, step: FirstStep, component: int) -> Held | None:
        """Count the replacements of a step that waits for its budgets, so that later steps of its solution may join.

        These are safe together with it, in any order. Return what that waits for, or None.
        """
        return self._take_room([self._current.of(member, component=component) for member in step.members], {})

    def _take_room(self, demands: Sequence[Demand], left: Mapping[int, Sequence[Pod]]) -> Held | None:
        """Let the replacements of a step take room, which may be reserved for them; return what they wait for."""
        reserved = self._reserved.pop(demands[0].pod.uid, None)
        if reserved is None:
            conflict = self._contention.join(demands, left)
        else:
            conflict = self._contention.replace(reserved, demands, left)
        return None if conflict is None else self._waits_for(conflict)

    def why_full(self, step: FirstStep) -> Held | None:
        """Return that the wave has enough moves of the step's policy; None if it has not."""
        taken = self._of_policy[step.policy] + len(step.members)
        return NO_MORE if taken > self._most.get(step.policy, 0) else None

    def widen(self, step: FirstStep, component: int) -> Held | None:
        """Allow the replacement of a step that has joined more nodes; return what that waits for, or None."""
        (member,) = step.members
        wider = self._current.of(member, component=component)
        conflict = self._contention.replace(self._joined[member.pod.uid], [wider], {})
        return None if conflict is None else self._waits_for(conflict)

    def reserve(self, later: Iterable[Demand]) -> None:
        """Reserve room for the moves that follow a step that has joined, as far as there is room for them now.

        So a group is finished before others that could take the room are begun.
        """
        alike: dict[tuple[int, NodeSet, str], list[Demand]] = {}
        for member in later:
            own = member.pod.uid if is_replaced_when_gone(member.pod) else ""
            alike.setdefault((id(member.prepared), member.nodes, own), []).append(member)
        for members in alike.values():
            demand = self._current.of(members[0], number=len(members))
            if demand.sure:
                # They only take room: none of them is evicted before it has joined.
                reserved = demand._replace(nodes=demand.sure, closing=0, takes=None)
                if self._contention.reserve(reserved):
                    self._reserved.update((member.pod.uid, reserved) for member in members)

    def _slots_left(self, pods: Iterable[Pod]) -> dict[int, list[Pod]]:
        left: dict[int, list[Pod]] = {}
        for pod in pods:
            left.setdefault(self._placement.table.slot_of[pod.node_name], []).append(pod)
        return left

    def _preempting(self, joining: Iterable[Demand], left: Mapping[int, Iterable[Pod]]) -> Held | None:
        """Return that the scheduler may preempt pods, whose replacements need room, now or on the nodes left."""
        for preemptor in self._preemptors:
            if any(preemptor.nodes & member.nodes for member in joining):
                return Held(
                    Reason.IN_MOTION,
                    f"it waits for pod {preemptor.demand.pod.key}, for which the kube-scheduler may delete pods of "
                    "lower priority that need room elsewhere then",
                )
        demand = enabled_by(left, self._without_node, self._placement, self._priorities, self._leaving)
        if demand is None:
            return None
        return Held(
            Reason.IN_MOTION,
            f"it waits until pod {demand.pod.key} has a node: on the node that it leaves, the kube-scheduler could "
            "delete pods of lower priority for that one",
        )

    def _opens_another(self, joining: Iterable[Demand], left: Mapping[int, Iterable[Pod]]) -> bool:
        """Return whether a left node would open to a replacement whose step was not assessed for it."""
        for slot, pods in left.items():
            if self._closed >> slot & 1 and self._has_room_for(slot, pods, self._least or {}):
                return True
        for member in joining:
            others = self._left | self._leaving.slots
            for slot in slots_of(member.may_open & others):
                if self._has_room_for(slot, left.get(slot, ()), wanted_by(member.pod)):
                    return True
        return False

    def _has_room_for(self, slot: int, more: Iterable[Pod], wanted: Mapping[str, int]) -> bool:
        """Return whether a node has room after pods are gone, by resource amounts only."""
        free, leaving = self._placement.view.free, self._leaving.of(slot)
        gone: Counter[str] = Counter(leaving)
        for pod in more:
            gone.update(held_by(pod))
        return all(free.of(name).free[slot] + gone[name] >= amount for name, amount in wanted.items())

    def _waits_for(self, conflict: Conflict) -> Held:
        who = conflict.who
        if who is None:
            return _UNTIL_GONE
        shown = self._placement.names(conflict.nodes)
        where = ", ".join(shown[:_NODES_NAMED]) + (" …" if len(shown) > _NODES_NAMED else "")
        more = f" and {who.number - 1} more like it" if who.number > 1 else ""
        return Held(
            Reason.IN_MOTION,
            f"it waits until {who}{more} has a node: there may not be room for all of them on {where}",
        )
