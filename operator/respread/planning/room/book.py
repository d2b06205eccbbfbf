"""Whether there is room somewhere: claims on nodes beside one another, and what would become of the spread on a fork.

Whether there is room whatever the scheduler does is the question of `contention`. The search has its own boards,
because it tries thousands of positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import wanted_by
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS, FreeResources
from respread.scheduling.view.node_table import NodeSet, slots_of, union
from respread.scheduling.view.volumes import has_volumes
from respread.spread.counts import Counts
from respread.spread.group import GroupKey, SpreadGroup, domain_map


class Taken(NamedTuple):
    """Room that a solution uses on a node."""

    slot: int
    pod: Pod
    """A pod like the replacement that is placed there."""


class Claim(NamedTuple):
    """Room that is kept for somebody."""

    taken: tuple[Taken, ...]
    holder: str
    """Whose it is, for people."""
    is_waiting: bool
    """Whether it is for pods that wait for a node, rather than for moves that are still to be planned."""


class RoomBook:
    """What claims take of nodes."""

    __slots__ = ("_taken", "_unclear")

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._taken: dict[int, Counter[str]] = {}
        """By slot and resource."""
        self._unclear: Counter[int] = Counter()
        """By slot, how many pods are placed there that may need more than resource amounts."""
        for claim in claims:
            self.take(claim.taken)

    def take(self, taken: Iterable[Taken], by: int = 1) -> None:
        """Note what a claim takes, or with -1 that it takes it no more."""
        for each in taken:
            _take(self._taken.setdefault(each.slot, Counter()), each.pod, by)
            if _may_want_more(each.pod):
                self._unclear[each.slot] += by

    def taken(self, slot: int, name: str) -> int:
        """Return how much of a resource of a node is taken."""
        return self._taken[slot][name] if slot in self._taken else 0

    def holds(self, taken: Sequence[Taken], free: FreeResources) -> bool:
        """Whether there is room for a claim beside the others, if it has room without them."""
        together: dict[int, Counter[str]] = {}
        for each in taken:
            if (others := self._taken.get(each.slot)) is None:
                continue
            if _may_want_more(each.pod):
                return False
            _take(together.setdefault(each.slot, others.copy()), each.pod)
        return all(_fits(amounts, slot, free) for slot, amounts in together.items())

    def is_certain(self, slot: int, free: FreeResources) -> bool:
        """Whether a node has room for all that is taken of it, if it has for each claim alone."""
        amounts = self._taken.get(slot)
        if amounts is None or amounts[POD_SLOTS] <= 1:
            return True
        return not self._unclear[slot] and _fits(amounts, slot, free)


class RoomForAll:
    """Whether nodes have room for all claims of a plan, at the cost of what has changed since the last one."""

    __slots__ = ("_book", "_claims", "_short")

    def __init__(self) -> None:
        self._claims: dict[int, Claim] = {}
        """By identity."""
        self._book = RoomBook()
        self._short: set[int] = set()
        """The slots where it is not certain that all fit."""

    def holds(self, claims: Iterable[Claim], changed: NodeSet, placement: Placement) -> bool:
        """Whether it is certain that there is room for all claims, each of which has room alone, beside one another.

        `changed` are the nodes that are not as they were when this was called last.
        """
        before = self._claims
        self._claims = {id(each): each for each in claims}
        touched = set(slots_of(changed))
        for one, other, by in ((before, self._claims, -1), (self._claims, before, 1)):
            for claim in (each for identity, each in one.items() if identity not in other):
                self._book.take(claim.taken, by)
                touched.update(taken.slot for taken in claim.taken)
        free = placement.view.free
        self._short -= touched
        self._short.update(slot for slot in touched if not self._book.is_certain(slot, free))
        return not self._short


def _fits(amounts: Mapping[str, int], slot: int, free: FreeResources) -> bool:
    return all(amount <= free.of(name).free[slot] for name, amount in amounts.items())


def _may_want_more(pod: Pod) -> bool:
    """Whether a pod may need more of a node than resource amounts."""
    return bool(pod.spec.host_ports) or has_volumes(pod.spec)


def _take(amounts: Counter[str], pod: Pod, by: int = 1) -> None:
    for name, amount in wanted_by(pod).items():
        amounts[name] += by * amount


_MOST_LOOKS: Final = 64
"""So many nodes are compared by their room."""


@contextmanager
def simulated(placement: Placement, groups: Iterable[SpreadGroup]) -> Iterator[Simulation]:
    """Yield a simulation of the current cluster, which is as it was after the `with` block."""
    with placement.view.fork():
        yield Simulation(placement, groups)


class Simulation:
    """A cluster in which pods come and go, and the counts of groups follow."""

    __slots__ = ("_counting", "_counts", "placement")

    def __init__(self, placement: Placement, groups: Iterable[SpreadGroup]) -> None:
        """Start with the current cluster, and the groups whose counts matter."""
        self.placement = placement
        self._counts: dict[GroupKey, Counter[str]] = {}
        self._counting: dict[tuple[str, Labels], list[SpreadGroup]] = {}
        """The groups that count pods of a namespace with these labels."""
        for group in groups:
            self._counts[group.key] = Counter(group.counts)
            for labels in group.matched:
                self._counting.setdefault((group.key.namespace, labels), []).append(group)

    # What happens

    def place(self, pod: Pod, slot: int) -> None:
        """Place a pod like this one on a node."""
        name = self.placement.table.names[slot]
        self.placement.view.place(pod, name)
        self._count(pod, name, 1)

    def evict(self, pod: Pod) -> None:
        """Count a pod no more. It still has its room."""
        if counts_as_pod(pod):
            self._count(pod, pod.node_name, -1)

    def remove(self, pod: Pod) -> None:
        """Remove a pod from its node."""
        self.evict(pod)
        self.placement.view.remove(pod)

    def _count(self, pod: Pod, node: str, by: int) -> None:
        for group in self._counting.get((pod.namespace, pod.labels), ()):
            if (domain := group.domains.of_node.get(node)) is not None:
                self._counts[group.key][domain] += by

    # What there is then

    def levels(self, group: SpreadGroup, gone: frozenset[str] = frozenset()) -> Counts:
        """Return a group's counts, without the domains of which no pod is left, and no node besides some."""
        counts = self._counts[group.key]
        left = {
            domain: counts[domain]
            for domain, nodes in group.domains.nodes.items()
            if counts[domain] or not gone.issuperset(nodes)
        }
        return group.key.counts(left, len(left))

    def count_on(self, group: SpreadGroup, node: str) -> int:
        """Return the pods in the domain of a node."""
        domain = group.domains.of_node.get(node)
        return 0 if domain is None else self._counts[group.key][domain]

    def counts(self, group: SpreadGroup, pod: Pod) -> bool:
        """Return whether a group counts a pod where its domains are."""
        return pod.namespace == group.key.namespace and pod.labels in group.matched

    def beside(self, group: SpreadGroup, pod: Pod) -> int:
        """Return how many pods the domain of a pod has, with itself; 0 if it does not count."""
        return self.count_on(group, pod.node_name) if self.counts(group, pod) else 0

    def emptiest(self, group: SpreadGroup) -> NodeSet:
        """Return the nodes of the domains with the fewest pods."""
        domains, counts = domain_map(self.placement.table, group), self._counts[group.key]
        fewest = min(counts[domain] for domain in group.domains.nodes)
        return union(there for domain, there in domains.nodes.items() if counts[domain] == fewest)

    def roomiest(self, prepared: PreparedPod, nodes: NodeSet) -> int | None:
        """Return the slot of one of some nodes that has room for most pods of a kind; None if there are none."""
        free = self.placement.view.free
        wanted = [(POD_SLOTS, 1), *((name, amount) for name, amount in prepared.pod.spec.requests.items() if amount)]
        best, most = None, -1
        for looks, slot in enumerate(slots_of(nodes)):
            if looks == _MOST_LOOKS:
                break
            room = min(free.of(name).free[slot] // amount for name, amount in wanted)
            if room > most:
                best, most = slot, room
        return best
