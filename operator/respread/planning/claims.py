"""Room that is kept while nothing can be planned for those it is for: pods without a node, and groups in motion.

A group is left alone while something is still to come for it that nobody can foresee. Were the room for what is left
to be done given to others meanwhile, many groups would be begun and none finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from respread.cluster.incremental import Incremental
from respread.planning.placement import Placement
from respread.planning.room.book import Claim, Simulation, Taken, simulated
from respread.planning.room.demand import PLACED_WITHIN, Demand, is_recent
from respread.planning.tasks import Task
from respread.scheduling.view.node_table import NodeSet, union

_MOST_ALIKE: Final = 16
"""For so many waiting pods that are alike room is kept: there is no end to those that wait for nothing."""
_MOST_STEPS: Final = 100
"""For so many moves of a group that is in motion room is kept."""


class Kept(NamedTuple):
    """Room that is kept."""

    claims: tuple[Claim, ...] = ()
    coming: tuple[Demand, ...] = ()
    """The replacements of the moves that are still to be made, wherever they find room."""
    missed: NodeSet = 0
    """The nodes on which there is no room for such replacements yet."""


class Claims:
    """What is claimed from plan to plan; a claim that has not changed is the same object."""

    def __init__(self) -> None:
        self._known: Incremental[tuple[tuple[int, int], ...], Claim] = Incremental()
        """By slots and the identities of the pods, which the claims hold."""

    def of(self, placement: Placement, waiting: Iterable[Demand], moving: Iterable[Task], now: datetime) -> Kept:
        """Return the room that is reserved in the current cluster.

        The cluster is left as it was. Pods that wait look for a node. Where components with pods in motion have been
        stuck for long, no room is kept.
        """
        going_on = [task for task in moving if not _is_stuck(task, now)]
        restored = (group for task in going_on for group in task.groups if group.key in task.cure)
        with simulated(placement, restored) as simulation:
            waited_for = [_landed(simulation, demand) for demand in waiting]
            left = [_left_to_do(simulation, task) for task in going_on]
        self._known.begin()
        claims = [self._same(claim) for claim in (*waited_for, *(claim for claim, _, _ in left)) if claim.taken]
        return Kept(
            tuple({id(claim): claim for claim in claims}.values()),
            tuple(chain.from_iterable(demands for _, demands, _ in left)),
            union(missed for _, _, missed in left),
        )

    def _same(self, claim: Claim) -> Claim:
        """Return the claim of the last plan, if it takes the same."""
        return self._known.of(tuple((taken.slot, id(taken.pod)) for taken in claim.taken), (), lambda: claim)


def _is_stuck(task: Task, now: datetime) -> bool:
    """Whether all pods in motion have been so for so long that nobody knows when that ends."""
    moving = [pod for pod in task.pods if pod.terminating or not pod.node_name]
    return bool(moving) and not any(
        is_recent(pod, now) if pod.deletion_timestamp is None else now < pod.deletion_timestamp + PLACED_WITHIN
        for pod in moving
    )


def _landed(simulation: Simulation, demand: Demand) -> Claim:
    """Return where pods that wait may land, and place them there."""
    taken: list[Taken] = []
    for _ in range(min(demand.number, _MOST_ALIKE)):
        slot = simulation.roomiest(demand.prepared, demand.prepared.admitted() or demand.sure)
        if slot is None:
            break
        simulation.place(demand.pod, slot)
        taken.append(Taken(slot, demand.pod))
    return Claim(tuple(taken), str(demand), is_waiting=True)


def _left_to_do(simulation: Simulation, task: Task) -> tuple[Claim, list[Demand], NodeSet]:
    """Return where replacements are to go until the groups of a component are within maxSkew, as a claim and demands.

    And the nodes on which there is no room for the next move; none if all have room.
    """
    groups = [group for group in task.groups if group.key in task.cure]
    victims = list(task.victims)
    taken: list[Taken] = []
    demands: list[Demand] = []
    missed: NodeSet = 0
    for _ in range(_MOST_STEPS):
        levels = [simulation.levels(group) for group in groups]
        above = [(more, at) for at, each in enumerate(levels) if (more := each.skew - each.max_skew) > 0]
        if not above:
            break
        worst_first = [at for _, at in sorted(above, reverse=True)]
        violated = [groups[at] for at in worst_first]
        pod = max(victims, key=partial(simulation.beside, violated[0]), default=None)
        if pod is None or simulation.beside(violated[0], pod) <= levels[worst_first[0]].limit:
            break
        victims.remove(pod)
        prepared = simulation.placement.prepare(pod)
        wanted = prepared.statically_feasible & simulation.emptiest(violated[0])
        for other in violated[1:]:
            wanted = wanted & simulation.emptiest(other) or wanted
        nodes = wanted & prepared.admitted(spread=False)
        place = simulation.roomiest(prepared, nodes)
        if place is None:
            missed = wanted
            break
        simulation.evict(pod)
        simulation.place(pod, place)
        taken.append(Taken(place, pod))
        demands.append(Demand(pod, prepared, nodes, nodes, nodes, is_replacement=True))
    return Claim(tuple(taken), task.holder, is_waiting=False), demands, missed
