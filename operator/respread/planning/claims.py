"""Room that is kept while nothing can be planned for those it is for: pods without a node, and groups in motion.

A group is planned one step at a time, and left alone while its pods are in motion. Were the room for what is left to be
done given to others meanwhile, many groups would be begun and none finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from respread.cluster.pod import Pod
from respread.planning.search.placement import Placement
from respread.planning.search.solution import Claim, Taken
from respread.planning.search.tally import domain_map
from respread.planning.seekers import Seeker
from respread.planning.tasks import Task
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_sets import NodeSet, slots_of
from respread.spread.group import SpreadGroup

_MOST_ALIKE: Final = 16
"""For so many waiting pods that are alike room is kept: there is no end to those that wait for nothing."""
_MOST_STEPS: Final = 100
"""For so many moves of a group that is in motion room is kept."""
_MOST_LOOKS: Final = 64
"""So many nodes are compared by their room."""


class Claims:
    """What is claimed from plan to plan; a claim that has not changed is the same object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Know of none yet."""
        self._known: dict[tuple[tuple[int, int], ...], Claim] = {}
        """By slots and the identities of the pods, which the claims hold."""

    def of(self, placement: Placement, waiting: Iterable[Seeker], moving: Iterable[Task]) -> tuple[Claim, ...]:
        """Return the room that is claimed in the cluster as it is.

        Args:
            placement: the cluster; it is left as it was.
            waiting: the pods that look for a node.
            moving: components with pods in motion.
        """
        mark = placement.view.mark()
        waited_for: list[Claim] = []
        for seeker in waiting:
            taken = tuple(_landed(placement, seeker))
            name = f"the replacement of pod {seeker.pod.key}" if seeker.is_replacement else f"pod {seeker.pod.key}"
            waited_for.append(Claim(taken, name, is_waiting=True))
        landed = [each for claim in waited_for for each in claim.taken]
        to_do = [
            Claim(taken, f"the moves that restore {next(iter(task.cure))}", is_waiting=False)
            for task in moving
            if (taken := tuple(_left_to_do(placement, task, landed)))
        ]
        placement.view.revert(mark)
        by_content = {
            tuple((taken.slot, id(taken.pod)) for taken in claim.taken): claim for claim in (*waited_for, *to_do)
        }
        self._known = {content: self._known.get(content, claim) for content, claim in by_content.items()}
        return tuple(claim for claim in self._known.values() if claim.taken)


def _landed(placement: Placement, seeker: Seeker) -> Iterator[Taken]:
    """Yield where pods that wait may land, and place them there."""
    for _ in range(min(seeker.number, _MOST_ALIKE)):
        slot = _roomiest(placement, seeker.prepared, seeker.prepared.admitted() or seeker.sure)
        if slot is None:
            return
        placement.view.place(seeker.pod, placement.table.names[slot])
        yield Taken(slot, seeker.pod)


def _left_to_do(placement: Placement, task: Task, landed: Iterable[Taken]) -> Iterator[Taken]:
    """Yield where replacements are to go until the most violated group of a component is within maxSkew."""
    group = max((each for each in task.groups if each.key in task.cure), key=lambda each: each.excess)
    domains, matched = domain_map(placement.table, group), frozenset(group.matched)
    counts = {domain: group.count(domain) for domain in group.domains.nodes}
    for slot, pod in landed:
        if pod.namespace == group.key.namespace and pod.labels in matched:
            domain = domains.of_slot[slot]
            if domain is not None:
                counts[domain] += 1
    victims = _victims(group, task.victims)
    for _ in range(_MOST_STEPS):
        full = max((domain for domain in victims if victims[domain]), key=counts.__getitem__, default=None)
        fewest = min(counts, key=counts.__getitem__)
        minimum = 0 if len(counts) < group.key.min_domains else counts[fewest]
        if full is None or counts[full] - minimum <= group.key.max_skew:
            return
        pod = victims[full].pop()
        prepared = placement.prepare(pod)
        place = _roomiest(placement, prepared, prepared.admitted(spread=False) & domains.nodes[fewest])
        if place is None:
            return
        placement.view.place(pod, placement.table.names[place])
        counts[full] -= 1
        counts[fewest] += 1
        yield Taken(place, pod)


def _victims(group: SpreadGroup, victims: Iterable[Pod]) -> Mapping[str, list[Pod]]:
    matched = frozenset(group.matched)
    found: dict[str, list[Pod]] = {}
    for pod in victims:
        domain = group.domains.of_node.get(pod.node_name)
        if domain is not None and pod.labels in matched:
            found.setdefault(domain, []).append(pod)
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
