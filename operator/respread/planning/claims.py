"""Room that is kept while nothing can be planned for those it is for: pods without a node, and groups in motion.

A group is left alone while something is still to come for it that nobody can foresee. Were the room for what is left
to be done given to others meanwhile, many groups would be begun and none finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.book import Claim, Taken
from respread.planning.room.demand import PLACED_WITHIN, Seeker, is_recent
from respread.planning.search.tally import domain_map
from respread.planning.tasks import Task
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_sets import NodeSet, slots_of
from respread.spread.counts import Counts
from respread.spread.group import SpreadGroup

_MOST_ALIKE: Final = 16
"""For so many waiting pods that are alike room is kept: there is no end to those that wait for nothing."""
_MOST_STEPS: Final = 100
"""For so many moves of a group that is in motion room is kept."""
_MOST_LOOKS: Final = 64
"""So many nodes are compared by their room."""


class Kept(NamedTuple):
    """Room that is kept."""

    claims: tuple[Claim, ...] = ()
    coming: tuple[Seeker, ...] = ()
    """The replacements of the moves that are still to be made, wherever they find room."""
    missed: NodeSet = 0
    """The nodes on which there is no room for such replacements yet."""


class _LeftToDo(NamedTuple):
    taken: list[Taken]
    seekers: list[Seeker]
    missed: NodeSet


class Claims:
    """What is claimed from plan to plan; a claim that has not changed is the same object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], ...], Claim] = {}
        """By slots and the identities of the pods, which the claims hold."""

    def of(self, placement: Placement, waiting: Iterable[Seeker], moving: Iterable[Task], now: datetime) -> Kept:
        """Return the room that is reserved in the current cluster.

        Args:
            placement: the cluster; it is left as it was.
            waiting: the pods that look for a node.
            moving: components with pods in motion. Where these have been stuck for long, no room is kept.
            now: the time, with a time zone.
        """
        mark = placement.view.mark()
        waited_for: list[Claim] = []
        for seeker in waiting:
            taken = tuple(_landed(placement, seeker))
            name = f"the replacement of pod {seeker.pod.key}" if seeker.is_replacement else f"pod {seeker.pod.key}"
            waited_for.append(Claim(taken, name, is_waiting=True))
        landed = [each for claim in waited_for for each in claim.taken]
        to_do: list[Claim] = []
        coming: list[Seeker] = []
        missed: NodeSet = 0
        for task in moving:
            if _is_stuck(task, now):
                continue
            left = _left_to_do(placement, task, landed)
            to_do.append(Claim(tuple(left.taken), f"the moves that restore {next(iter(task.cure))}", is_waiting=False))
            coming.extend(left.seekers)
            missed |= left.missed
        placement.view.revert(mark)
        by_content = {
            tuple((taken.slot, id(taken.pod)) for taken in claim.taken): claim for claim in (*waited_for, *to_do)
        }
        self._known = {content: self._known.get(content, claim) for content, claim in by_content.items()}
        return Kept(tuple(claim for claim in self._known.values() if claim.taken), tuple(coming), missed)


def _is_stuck(task: Task, now: datetime) -> bool:
    """Whether all pods in motion have been so for so long that nobody knows when that ends."""
    moving = [pod for pod in task.pods if pod.terminating or not pod.node_name]
    return bool(moving) and not any(
        is_recent(pod, now) if pod.deletion_timestamp is None else now < pod.deletion_timestamp + PLACED_WITHIN
        for pod in moving
    )


def _landed(placement: Placement, seeker: Seeker) -> Iterator[Taken]:
    """Yield where pods that wait may land, and place them there."""
    for _ in range(min(seeker.number, _MOST_ALIKE)):
        slot = _roomiest(placement, seeker.prepared, seeker.prepared.admitted() or seeker.sure)
        if slot is None:
            return
        placement.view.place(seeker.pod, placement.table.names[slot])
        yield Taken(slot, seeker.pod)


class _Counts:
    """The counts of a group to be restored, while its pods are moved to where there are fewest."""

    __slots__ = ("counts", "domains", "group", "matched")

    def __init__(self, placement: Placement, group: SpreadGroup, landed: Iterable[Taken]) -> None:
        self.group = group
        self.domains = domain_map(placement.table, group)
        self.matched = frozenset(group.matched)
        self.counts = {domain: group.count(domain) for domain in group.domains.nodes}
        for slot, pod in landed:
            if pod.namespace == group.key.namespace:
                self.count(pod, slot, 1)

    def count(self, pod: Pod, slot: int | None, by: int) -> None:
        domain = None if slot is None else self.domains.of_slot[slot]
        if domain is not None and pod.labels in self.matched:
            self.counts[domain] += by

    @property
    def levels(self) -> Counts:
        """How many domains have how many pods."""
        return self.group.key.counts(self.counts, len(self.counts))

    def beside(self, pod: Pod) -> int:
        """Return how many pods the domain of a pod has, with itself; 0 if it does not count."""
        domain = self.group.domains.of_node.get(pod.node_name)
        return 0 if domain is None or pod.labels not in self.matched else self.counts[domain]

    def emptiest(self) -> NodeSet:
        """Return the nodes of the domains with the fewest pods."""
        fewest, nodes = min(self.counts.values()), 0
        for domain, count in self.counts.items():
            if count == fewest:
                nodes |= self.domains.nodes[domain]
        return nodes


def _left_to_do(placement: Placement, task: Task, landed: Sequence[Taken]) -> _LeftToDo:
    """Return where replacements are to go until the groups of a component are within maxSkew."""
    groups = [_Counts(placement, group, landed) for group in task.groups if group.key in task.cure]
    victims = list(task.victims)
    found = _LeftToDo([], [], 0)
    for _ in range(_MOST_STEPS):
        levels = [each.levels for each in groups]
        above = [(more, at) for at, each in enumerate(levels) if (more := each.skew - each.max_skew) > 0]
        if not above:
            break
        worst_first = [at for _, at in sorted(above, reverse=True)]
        violated = [groups[at] for at in worst_first]
        pod = max(victims, key=violated[0].beside, default=None)
        if pod is None or violated[0].beside(pod) <= levels[worst_first[0]].limit:
            break
        victims.remove(pod)
        prepared = placement.prepare(pod)
        wanted = prepared.statically_feasible & violated[0].emptiest()
        for other in violated[1:]:
            wanted = wanted & other.emptiest() or wanted
        nodes = wanted & prepared.admitted(spread=False)
        place = _roomiest(placement, prepared, nodes)
        if place is None:
            return found._replace(missed=wanted)
        placement.view.place(pod, placement.table.names[place])
        for each in groups:
            each.count(pod, placement.table.slot_of.get(pod.node_name), -1)
            each.count(pod, place, 1)
        found.taken.append(Taken(place, pod))
        found.seekers.append(Seeker(pod, prepared, nodes, nodes, nodes, is_replacement=True))
    return found


def _roomiest(placement: Placement, prepared: PreparedPod, nodes: NodeSet) -> int | None:
    """Return the slot of one of some nodes that has room for most pods of a kind; None if there are none."""
    free = placement.view.free
    wanted = [(POD_SLOTS, 1), *((name, amount) for name, amount in prepared.pod.spec.requests.items() if amount)]
    best, most = None, -1
    for looks, slot in enumerate(slots_of(nodes)):
        if looks == _MOST_LOOKS:
            break
        room = min(free.of(name).free[slot] // amount for name, amount in wanted)
        if room > most:
            best, most = slot, room
    return best
