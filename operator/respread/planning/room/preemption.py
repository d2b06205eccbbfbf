"""Which pods may be preempted soon, for a pod without a feasible node.

The scheduler deletes pods of lower priority from one node. Their replacements take room elsewhere, and it is not known
yet where. This module does not predict which node the scheduler chooses, only whether it can choose one, now or when
others have left a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from respread.cluster.incremental import Incremental
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import Demand, Leaving, held_by, is_recent
from respread.scheduling.view.node_table import NodeSet, node_set, slots_of

_MOST_PREEMPTORS: Final = 32
"""If there are more, the nodes that they may affect are not computed."""


class Preemptor(NamedTuple):
    """A pod for which the scheduler may preempt pods."""

    demand: Demand
    nodes: NodeSet
    """The nodes that may be chosen, and those on which replacements of the preempted pods may land."""


class Priorities:
    """What pods of each priority hold on each node, kept while the node's pods stay the same."""

    __slots__ = ("_of_node",)

    def __init__(self) -> None:
        self._of_node: Incremental[str, Mapping[int, Counter[str]]] = Incremental()

    def begin(self) -> None:
        """Begin another plan, and forget nodes that the last one did not look at."""
        self._of_node.begin()

    def held_below(self, node: str, pods: Map[ObjectKey, Pod], priority: int) -> Counter[str]:
        """Return what the pods of lower priority on a node hold."""
        held: Counter[str] = Counter()
        for each, amounts in self._known(node, pods).items():
            if each < priority:
                held.update(amounts)
        return held

    def any_below(self, node: str, pods: Map[ObjectKey, Pod], priority: int) -> bool:
        """Return whether a pod on a node has a lower priority."""
        return any(each < priority for each in self._known(node, pods))

    def _known(self, node: str, pods: Map[ObjectKey, Pod]) -> Mapping[int, Counter[str]]:
        return self._of_node.of(node, (pods,), lambda: _held_by_priority(pods.values()))


def _held_by_priority(pods: Iterable[Pod]) -> Mapping[int, Counter[str]]:
    by_priority: dict[int, Counter[str]] = {}
    for pod in pods:
        by_priority.setdefault(pod.spec.priority, Counter()).update(held_by(pod))
    return by_priority


def preemptors_among(
    demands: Iterable[Demand], placement: Placement, priorities: Priorities, now: datetime
) -> tuple[Preemptor, ...]:
    """Return those of some pods without a node for which the scheduler may soon preempt pods of lower priority."""
    found: list[Preemptor] = []
    below: dict[int, NodeSet] = {}
    by_node = placement.view.snapshot.pods_by_node
    for each in demands:
        if not _may_preempt(each, placement, now):
            continue
        if (priority := each.pod.spec.priority) not in below:
            below[priority] = node_set(
                [
                    slot
                    for name, slot in placement.table.slot_of.items()
                    if (pods := by_node.get(name)) is not None and priorities.any_below(name, pods, priority)
                ]
            )
        nodes = each.prepared.statically_feasible & below[priority]
        if not nodes:
            continue
        if len(found) >= _MOST_PREEMPTORS:
            return (*found, Preemptor(each, placement.table.every))
        if (preemptor := _preemptor(each, nodes, placement, priorities)) is not None:
            found.append(preemptor)
            if preemptor.nodes == placement.table.every:
                break  # No other one adds a node.
    return tuple(found)


def enabled_by(
    left: Mapping[int, Iterable[Pod]],
    demands: Iterable[Demand],
    placement: Placement,
    priorities: Priorities,
    leaving: Leaving,
) -> Demand | None:
    """Return a pod for which the scheduler could preempt others only once pods have left their nodes, or None.

    `left` has these by the slots of the nodes, `leaving` is the room that others leave, and no demand has a feasible
    node.
    """
    for slot, pods in left.items():
        gone = Counter(leaving.of(slot))
        for pod in pods:
            gone.update(held_by(pod))
        name = placement.table.names[slot]
        there = placement.view.snapshot.pods_by_node[name]
        for each in demands:
            if not each.pod.spec.preempts or not each.prepared.statically_feasible >> slot & 1:
                continue
            below = priorities.held_below(name, there, each.pod.spec.priority)
            if (
                not _has_room(each, slot, below)
                and _has_room(each, slot, below + gone)
                and not _has_room(each, slot, gone)
            ):
                return each
    return None


def _has_room(demand: Demand, slot: int, besides: Mapping[str, int]) -> bool:
    """Return whether a node has room for a pod with so much more than what is free there."""
    return all(free.free[slot] + besides.get(name, 0) >= amount for name, free, amount in demand.prepared.needs)


def _may_preempt(demand: Demand, placement: Placement, now: datetime) -> bool:
    pod = demand.pod
    if not pod.spec.preempts:
        return False
    if demand.is_replacement:
        return True
    if pod.nominated_node_name in placement.table.slot_of:
        return False  # The scheduler has already made room for it.
    return is_recent(pod, now)


def _preemptor(demand: Demand, nodes: NodeSet, placement: Placement, priorities: Priorities) -> Preemptor | None:
    """Return the pod for which others may be preempted, and the nodes that this may affect."""
    prepared, priority = demand.prepared, demand.pod.spec.priority
    for constraint in prepared.hard_constraints:
        nodes &= constraint.admitted()
    table, by_node = placement.table, placement.view.snapshot.pods_by_node
    reach: NodeSet = 0
    for slot in slots_of(nodes):
        pods = by_node[table.names[slot]]
        below = priorities.held_below(table.names[slot], pods, priority)
        if not _has_room(demand, slot, below):
            continue
        reach |= 1 << slot
        for pod in pods.values():
            if pod.spec.priority < priority:
                reach |= placement.prepare(pod).statically_feasible
        if reach == table.every:
            break
    return Preemptor(demand, reach) if reach else None
