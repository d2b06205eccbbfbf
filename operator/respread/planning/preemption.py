"""Which pods may be preempted soon: the scheduler does that for a pod that it finds no node for.

It deletes pods of lower priority from one node. Their replacements take room elsewhere, nobody knows where yet. Which
node it chooses is not predicted; whether there is one to choose is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from immutables import Map

from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.seekers import Seeker, held_by
from respread.scheduling.node_sets import NodeSet, slots_of

PREEMPTS_WITHIN: Final = timedelta(minutes=10)
"""How old a pod may be that preemption is still expected for. The scheduler tries at once, and tries pods that it could
not place again every five minutes at least: for whom it has not made room by then, it has a reason not to."""


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
        """Return what the pods of a node hold that have a lower priority; empty if there are none."""
        known = self._of_node.get(node)
        if known is None or known[0] is not pods:
            by_priority: dict[int, Counter[str]] = {}
            for pod in pods.values():
                by_priority.setdefault(pod.spec.priority, Counter()).update(held_by(pod))
            known = self._of_node[node] = pods, by_priority
        held: Counter[str] = Counter()
        for each, amounts in known[1].items():
            if each < priority:
                held.update(amounts)
        return held

    def forget_others(self, nodes: Iterable[str]) -> None:
        """Keep nothing of nodes that are gone."""
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
    found = (_preemptor(each, placement, priorities) for each in seekers if _may_preempt(each, placement, now))
    return tuple(each for each in found if each is not None)


def _may_preempt(seeker: Seeker, placement: Placement, now: datetime) -> bool:
    pod = seeker.pod
    if not pod.spec.preempts:
        return False
    if seeker.is_replacement:
        return True
    if pod.nominated_node_name in placement.table.slot_of:
        return False  # the scheduler has made room for it already
    return pod.creation_timestamp is None or now - pod.creation_timestamp < PREEMPTS_WITHIN


def _preemptor(seeker: Seeker, placement: Placement, priorities: Priorities) -> Preemptor | None:
    prepared, priority = seeker.prepared, seeker.pod.spec.priority
    nodes = prepared.settled
    for constraint in prepared.hard_constraints:
        nodes &= constraint.admitted()
    table, by_node = placement.table, placement.view.snapshot.pods_by_node
    reach: NodeSet = 0
    for slot in slots_of(nodes):
        pods = by_node.get(table.names[slot])
        if pods is None:
            continue
        below = priorities.held_below(table.names[slot], pods, priority)
        if not below or any(free.free[slot] + below[name] < amount for name, free, amount in prepared.needs):
            continue
        reach |= 1 << slot
        for pod in pods.values():
            if reach == table.every:
                return Preemptor(seeker, reach)
            if pod.spec.priority < priority:
                reach |= placement.prepare(pod).settled
    return Preemptor(seeker, reach) if reach else None
