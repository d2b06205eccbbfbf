"""Which pods may be preempted soon: the scheduler does that for a pod that it finds no node for.

It deletes pods of lower priority from one node. Their replacements take room elsewhere, nobody knows where yet. Which
node it chooses is not predicted; whether there is one to choose is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.planning.search.placement import Placement
from respread.planning.seekers import Seeker, held_by, is_recent
from respread.scheduling.view.node_sets import NodeSet, node_set, slots_of

_MOST_PREEMPTORS: Final = 32
"""Of more it is not asked what they may reach."""


class Preemptor(NamedTuple):
    """Somebody for whom the scheduler may delete pods."""

    seeker: Seeker
    nodes: NodeSet
    """Those that may be chosen, and those that the replacements of what is deleted there may land on."""


class Priorities:
    """What pods hold by priority on each node, kept for as long as the node's pods are the same."""

    __slots__ = ("_of_node",)

    def __init__(self) -> None:
        """Know of no node yet."""
        self._of_node: dict[str, tuple[Map[ObjectKey, Pod], Mapping[int, Counter[str]]]] = {}

    def held_below(self, node: str, pods: Map[ObjectKey, Pod], priority: int) -> Counter[str]:
        """Return what the pods of a node hold that have a lower priority."""
        held: Counter[str] = Counter()
        for each, amounts in self._known(node, pods).items():
            if each < priority:
                held.update(amounts)
        return held

    def any_below(self, node: str, pods: Map[ObjectKey, Pod], priority: int) -> bool:
        """Tell whether a pod of a node has a lower priority."""
        return any(each < priority for each in self._known(node, pods))

    def _known(self, node: str, pods: Map[ObjectKey, Pod]) -> Mapping[int, Counter[str]]:
        known = self._of_node.get(node)
        if known is None or known[0] is not pods:
            by_priority: dict[int, Counter[str]] = {}
            for pod in pods.values():
                by_priority.setdefault(pod.spec.priority, Counter()).update(held_by(pod))
            known = self._of_node[node] = pods, by_priority
        return known[1]

    def forget_others(self, nodes: Iterable[str]) -> None:
        """Keep nothing of nodes that are gone."""
        if self._of_node:
            self._of_node = {name: known for name in nodes if (known := self._of_node.get(name)) is not None}


def preemptors_among(
    seekers: Iterable[Seeker], placement: Placement, priorities: Priorities, now: datetime
) -> tuple[Preemptor, ...]:
    """Return those for whom the scheduler may soon delete pods of a lower priority.

    Args:
        seekers: who may be left without a node.
        placement: the cluster as it is.
        priorities: of the pods on its nodes.
        now: the time, with a time zone.
    """
    found: list[Preemptor] = []
    below: dict[int, NodeSet] = {}
    by_node = placement.view.snapshot.pods_by_node
    for each in seekers:
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
        nodes = each.prepared.settled & below[priority]
        if not nodes:
            continue
        if len(found) >= _MOST_PREEMPTORS:
            return (*found, Preemptor(each, placement.table.every))
        if (preemptor := _preemptor(each, nodes, placement, priorities)) is not None:
            found.append(preemptor)
            if preemptor.nodes == placement.table.every:
                break
    return tuple(found)


def _may_preempt(seeker: Seeker, placement: Placement, now: datetime) -> bool:
    pod = seeker.pod
    if not pod.spec.preempts:
        return False
    if seeker.is_replacement:
        return True
    if pod.nominated_node_name in placement.table.slot_of:
        return False  # the scheduler has made room for it already
    return is_recent(pod, now)


def _preemptor(seeker: Seeker, nodes: NodeSet, placement: Placement, priorities: Priorities) -> Preemptor | None:
    """Return whom room may be made for on nodes that have pods of lower priority, and what that may reach."""
    prepared, priority = seeker.prepared, seeker.pod.spec.priority
    for constraint in prepared.hard_constraints:
        nodes &= constraint.admitted()
    table, by_node = placement.table, placement.view.snapshot.pods_by_node
    reach: NodeSet = 0
    for slot in slots_of(nodes):
        pods = by_node[table.names[slot]]
        below = priorities.held_below(table.names[slot], pods, priority)
        if any(free.free[slot] + below[name] < amount for name, free, amount in prepared.needs):
            continue
        reach |= 1 << slot
        for pod in pods.values():
            if pod.spec.priority < priority:
                reach |= placement.prepare(pod).settled
        if reach == table.every:
            break
    return Preemptor(seeker, reach) if reach else None
